"""Encoders without a forward pass: averages of word vectors, SIF, uSIF, p-means."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
