"""Text to vectors: models, pooling, layer fusion, batching."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
