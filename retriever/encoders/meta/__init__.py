"""Meta-embeddings: a linear map of each source encoder's words, then pooling."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
