"""Rerankers: heads over vectors and cross-encoders, each in a folder of its own."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
