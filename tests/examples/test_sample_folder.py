"""`examples/sample_folder.py` writes files of several kinds that the product reads whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from retriever import CorpusReader

SCRIPT = Path(__file__).parents[2] / "examples/sample_folder.py"


def test_every_file_of_the_sample_folder_is_read_in_whole(tmp_path):
    pytest.importorskip("pypdfium2")
    subprocess.run([sys.executable, SCRIPT, tmp_path / "home"], check=True)
    reader = CorpusReader(tmp_path / "home")
    texts = {document.id: document.text for document in reader}
    assert "three months" in texts["lease.pdf"]
    assert "Electricity: 69" in texts["budget.xlsx"]
    assert reader.skipped == 0
    assert reader.files.in_part == 0


def test_two_sample_folders_have_equal_files(tmp_path):
    for name in ("first", "second"):
        subprocess.run([sys.executable, SCRIPT, tmp_path / name], check=True)
    for path in (tmp_path / "first").rglob("*.*"):
        copy = tmp_path / "second" / path.relative_to(tmp_path / "first")
        assert copy.read_bytes() == path.read_bytes()
        assert copy.stat().st_mtime == path.stat().st_mtime
