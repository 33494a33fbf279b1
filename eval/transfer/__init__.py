"""Classifiers on sentence vectors: transfer and probing tasks."""
