"""Evaluation: which encoder, ranking or reranker is better, by how much, and how sure that is.

Each experiment is one function that takes data and settings and returns a result with `text()`,
`to_json()` and `write(folder)`:

>>> from eval import QASettings, rank_systems
>>> result = rank_systems("wikiqa", ["bm25", "cosine", "hybrid:tuned"])   # doctest: +SKIP
>>> print(result.text())                                                  # doctest: +SKIP

`progress` is called at each stage (see `Progress`), and `notify` with lines that a person should
read; the report of a result names `command` as what reproduces it. Settings of None are the
defaults, and an empty encoder is the bundled model.

Each name is imported when it is asked for, which loads neither torch, scikit-learn, scipy nor
matplotlib.
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


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES} - {"annotations"})
