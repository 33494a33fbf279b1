"""Rerankers: models that score a question and a passage together, and their training."""
