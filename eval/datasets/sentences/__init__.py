"""Similarity and classification sets."""
