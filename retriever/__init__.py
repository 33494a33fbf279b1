"""Local semantic retrieval: encoders, indexing and ranking."""
