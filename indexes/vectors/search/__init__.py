"""Searching a FAISS structure: candidates from its lists or its graph, exact scores."""
