"""BM25: formulas, postings, scoring and the k best passages."""
