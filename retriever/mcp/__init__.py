"""Indexes as tools for agents, over the Model Context Protocol."""

from __future__ import annotations

from indexes.facade import lazy_names

__getattr__ = lazy_names(__name__)
