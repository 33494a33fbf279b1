"""Ranking: the engine, fusion of scores, reranking."""
