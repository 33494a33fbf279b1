"""Segments: immutable files of vectors and postings, how they are merged and when."""
