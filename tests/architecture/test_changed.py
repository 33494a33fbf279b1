"""`make check` runs the tests that belong to what was changed."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SELECTION = runpy.run_path(str(ROOT / "tests/changed.py"))["selection"]


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        ("indexes/folder/lock.py", "tests/indexes/folder/test_lock.py"),
        ("indexes/folder/documents.py", "tests/indexes/folder"),
        ("indexes/folder/writer.py", "tests/indexes/folder/test_writer.py"),
        ("retriever/encoders/fusion/pooling.py", "tests/retriever/encoders/fusion"),
        ("tests/indexes/index_samples.py", "tests/indexes"),
        ("tests/indexes/folder/test_lock.py", "tests/indexes/folder/test_lock.py"),
        ("docs/reference/ranking.md", "tests/docs"),
        ("README.md", "tests/docs"),
    ],
)
def test_a_file_selects_its_own_tests_or_those_of_its_folder(changed, selected):
    assert SELECTION([changed]) == sorted(["tests/architecture", selected])


def test_a_folder_holds_its_files():
    assert SELECTION(["indexes/folder/lock.py", "indexes/folder/documents.py"]) == [
        "tests/architecture",
        "tests/indexes/folder",
    ]


def test_what_has_no_tests_selects_those_of_the_architecture():
    assert SELECTION(["LICENSE", "constraints.txt"]) == ["tests/architecture"]
