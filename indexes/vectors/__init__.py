"""Vectors: exact search, FAISS structures, their choice, building, search and recall."""
