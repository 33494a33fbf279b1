"""Vectors: exact search and search structures."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
