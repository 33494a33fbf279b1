"""Filters on metadata, and facets: the values of a field, counted."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
