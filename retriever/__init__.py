"""Local semantic retrieval: encoders, indexing and ranking.

>>> from retriever import Index
>>> with Index.create("my.index") as index:           # doctest: +SKIP
...     index.add(["The cat sat on the mat."])
...     hits = index.search("feline")

Importing it loads neither torch nor FAISS; searching by BM25 needs neither. Each
name is imported when it is asked for; `__version__` is the installed release.
"""

from __future__ import annotations

import importlib as _importlib
from pathlib import Path as _Path
from typing import Any as _Any

# Each name is listed once, where type checkers read it: "from MODULE import NAME as NAME".
_LINES = _Path(__file__).with_suffix(".pyi").read_text("utf-8").splitlines()
_MODULES = {line.split()[3]: line.split()[1] for line in _LINES if line.startswith("from ")}


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("layer-retriever")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES} - {"annotations"})
