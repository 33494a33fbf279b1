"""Documents: their sources, and the way from a document to passages and terms."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
