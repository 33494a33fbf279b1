"""Encoders on similarity sets."""
