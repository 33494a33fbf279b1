"""Fusion of hidden states to one vector: choice of layers, pooling, SBERT-WK."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
