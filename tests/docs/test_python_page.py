"""The page on the Python API is complete, and its examples print what it says."""

import re
import runpy
from pathlib import Path

import pytest

import retriever

ROOT = Path(__file__).resolve().parents[2]
MAKER = runpy.run_path(str(ROOT / "docs/make_python.py"))
PAGE = MAKER["reference"]()
README = (ROOT / "README.md").read_text()


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_page_has_every_public_name():
    for name in MAKER["public_names"]("retriever"):
        assert f"### `{name}`" in PAGE or f"| `{name}` |" in PAGE, name


def test_members_of_an_unlisted_base_class_are_listed_with_the_class():
    assert "#### `Index.add`" in PAGE
    assert "#### `Index.search`" in PAGE
    assert "ReadableIndex" not in PAGE


def test_public_names_equal_the_attributes_of_the_package():
    listed = set(MAKER["public_names"]("retriever"))
    offered = {name for name in dir(retriever) if not name.startswith("_")}
    assert listed == {name for name in offered if not _is_module(getattr(retriever, name))}


def _is_module(value):
    return type(value).__name__ == "module"


def test_a_public_name_without_a_place_on_the_page_is_an_error(monkeypatch):
    public_names = MAKER["public_names"]
    namespace = MAKER["reference"].__globals__
    monkeypatch.setitem(
        namespace, "public_names", lambda package: public_names(package) | {"Forgotten": int}
    )
    with pytest.raises(SystemExit, match="Forgotten"):
        MAKER["reference"]()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_every_example_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    pytest.importorskip("layer_retriever_minilm")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    examples = blocks(PAGE)
    assert len(examples) > 5
    for example in examples:
        exec(compile(example, "python.md", "exec"), namespace)
        expected = re.findall(r"^# prints: (.*)\n", example, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == expected, example
