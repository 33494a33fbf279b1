"""Where an index is kept: vectors, tokens and ids, never models; see docs/architecture.md.

`retriever` enters through the names in the stub beside this file, imported when they are asked for.
"""

from __future__ import annotations

import importlib as _importlib
from pathlib import Path as _Path
from typing import Any as _Any

# Each name is listed once, where type checkers read it: "from MODULE import NAME as NAME".
_LINES = _Path(__file__).with_suffix(".pyi").read_text("utf-8").splitlines()
_MODULES = {line.split()[3]: line.split()[1] for line in _LINES if line.startswith("from ")}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_MODULES[name]), name)
