"""Ranking: its settings, the engine, fusion and reranking.

`BM25` and what it takes rank texts in memory, without an index, for evaluations.
"""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
