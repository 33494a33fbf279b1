"""Vectors of texts under many encoders, computed once and cached on disk."""
