"""`setup.py` compiles the inner loops for one platform, or leaves them out for all."""

import runpy
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "setup.py"


@pytest.mark.parametrize(("value", "count"), [("", 1), ("no", 0)])
def test_the_inner_loops_are_left_out_only_if_asked(monkeypatch, value, count):
    arguments = {}
    monkeypatch.setenv("RETRIEVER_COMPILE", value)
    monkeypatch.setattr("setuptools.setup", lambda **values: arguments.update(values))
    runpy.run_path(str(SETUP))
    assert len(arguments["ext_modules"]) == count
    # The tag of the stable ABI belongs to a wheel with compiled code.
    assert bool(arguments["options"]) == bool(count)
