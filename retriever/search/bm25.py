"""BM25 over texts in memory, without an index folder."""

from indexes import BM25, BM25Settings, Postings, SearchableSegment

__all__ = ["BM25", "BM25Settings", "Postings", "SearchableSegment"]
