"""The compiled inner loops of a query; `compiled` is None if they were not built.

They are built with the package if there is a C compiler. Without them, Python and NumPy give the
same results up to rounding, several times slower.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any

__all__ = ["compiled"]

compiled: Any = None
# The loops read the files as they are, and numbers in files are little-endian.
if sys.byteorder == "little":
    with suppress(ImportError):
        compiled = importlib.import_module("indexes.compiled._inner_loops")
