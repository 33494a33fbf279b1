"""Where things are kept that can be computed again."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """The folder of the cache: $RETRIEVER_CACHE or ~/.cache/retriever."""
    named = os.environ.get("RETRIEVER_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "retriever"
