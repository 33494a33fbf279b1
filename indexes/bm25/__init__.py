"""Okapi BM25: the terms of queries, postings and scores."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
