"""Fixtures shared by the tests of readers."""

from __future__ import annotations

import pytest


@pytest.fixture
def longest(monkeypatch):
    """A bound on lines, rows and files that is quickly exceeded."""
    for module in ("sources", "text", "files"):
        monkeypatch.setattr(f"retriever.documents.{module}.LONGEST", 1 << 20)
    return 1 << 20
