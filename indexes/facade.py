"""Façades: packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_names(package: str) -> dict[str, str]:
    """Return the names that a package offers, each with the module that has it.

    They are listed once, in the stub beside the package's `__init__.py`, where type checkers
    read them: ``from MODULE import NAME as NAME``.
    """
    path = sys.modules[package].__file__
    assert path is not None
    lines = Path(path).with_suffix(".pyi").read_text("utf-8").splitlines()
    return {line.split()[3]: line.split()[1] for line in lines if line.startswith("from ")}


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports each of its names on first use."""
    modules = read_names(package)

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return import_name
