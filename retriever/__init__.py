"""Local semantic retrieval: encoders, indexing and ranking.

>>> from retriever import Index
>>> with Index.create("my.index") as index:           # doctest: +SKIP
...     index.add(["The cat sat on the mat."])
...     hits = index.search("feline")

Importing it loads neither torch nor FAISS; a search by BM25 needs neither. Each name is imported on
first use. `__version__` is the installed release.
"""

from __future__ import annotations

from typing import Any as _Any

from indexes.facade import lazy_names as _lazy_names
from indexes.facade import read_names as _read_names

_import_name = _lazy_names(__name__)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("layer-retriever")
    return _import_name(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_read_names(__name__)} - {"annotations"})
