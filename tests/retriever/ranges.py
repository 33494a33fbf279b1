"""The ranges of declared settings."""

from __future__ import annotations

import pytest

from retriever.errors import ConfigError
from retriever.settings import declared_settings


def check_ranges(kind, ranges):
    """The numbers of a dataclass by their range, in words; a number out of range is refused."""
    expected = {name: text for text, names in ranges.items() for name in names.split()}
    declared = declared_settings(kind).values()
    assert {one.name: one.expected for one in declared if one.low is not None} == expected
    with pytest.raises(ConfigError, match=r": expected .* found -1"):
        kind(**{next(iter(expected)): -1})
