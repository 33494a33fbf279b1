"""`setup.py` compiles the inner loops for one platform, or leaves them out for all."""

import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "setup.py"


@pytest.mark.parametrize(("value", "count"), [("", 1), ("no", 0)])
def test_the_inner_loops_are_left_out_only_if_asked(monkeypatch, value, count):
    arguments = {}
    monkeypatch.setenv("RETRIEVER_COMPILE", value)
    monkeypatch.setattr("setuptools.setup", lambda **values: arguments.update(values))
    runpy.run_path(str(SETUP))
    assert len(arguments["ext_modules"]) == count
    # The tag of the stable ABI belongs to a wheel with compiled code.
    assert bool(arguments["options"]) == bool(count)


def test_the_packages_are_all_python_folders_of_the_product_and_no_others():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    names = {"retriever", "indexes", "cli", "eval"}
    modules = [path for name in names for path in (ROOT / name).rglob("*.py")]
    folders = {path.parent.relative_to(ROOT) for path in modules}
    packages = set(find_namespace_packages(str(ROOT), include=include))
    assert packages >= {".".join(folder.parts) for folder in folders}
    assert {package.partition(".")[0] for package in packages} == names


@pytest.mark.skipif(sys.platform == "win32", reason="CC names no compiler on Windows")
def test_without_a_compiler_the_build_succeeds_without_inner_loops(tmp_path):
    folders = ["--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
    done = subprocess.run(
        [sys.executable, str(SETUP), "build_ext", "--force", *folders],
        cwd=SETUP.parent,
        env={**os.environ, "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "no-such-compiler" in done.stderr
    assert not list(tmp_path.rglob("*inner_loops*"))
