"""Public names of `retriever`, its light import, and its tree of errors."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import retriever
from retriever import errors

HEAVY = [
    *("torch", "transformers", "faiss", "pyarrow", "tqdm", "huggingface_hub", "scipy"),
    *("sqlite_utils", "filelock", "pyroaring"),
]


def imported_by(code):
    """Return the heavy libraries that a Python program has imported at its end."""
    shown = f"import json, sys\n{code}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_names_that_do_not_exist_are_refused_as_python_does():
    with pytest.raises(ImportError):
        from retriever import Indx  # noqa: F401


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert retriever.__version__ == project["version"]


def test_importing_the_package_imports_nothing_heavy():
    assert imported_by("import retriever") == []


def test_every_error_is_a_retriever_error_with_an_exit_code():
    tree = [found for found in vars(errors).values() if isinstance(found, type)]
    assert len(tree) > 10
    assert all(issubclass(error, retriever.RetrieverError) for error in tree)
    assert {error.exit_code for error in tree} == {1, 2, 3}
