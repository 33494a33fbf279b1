"""Reading: documents, the sources that they come from, and how they become passages and terms."""

from __future__ import annotations

from retriever.facade import lazy_names

__getattr__ = lazy_names(__name__)
