"""The compiled form of what a query does for every posting or passage; None if there is none.

It is built with the package if there is a C compiler. Without it the same is done in Python and
NumPy, with the same results up to rounding, several times slower.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any

__all__ = ["compiled"]

compiled: Any = None
# It reads the files as they are, and their numbers are little-endian.
if sys.byteorder == "little":
    with suppress(ImportError):
        compiled = importlib.import_module("indexes.compiled._inner_loops")
