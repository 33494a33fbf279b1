"""Where data sets are looked for: at the path, else in the folder that RETRIEVER_DATA names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.evaluation_options import data_set
from retriever.errors import SourceError
from tests.cli.conftest import refused


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A folder of data sets beside the working folder."""
    for folder in ("sets/stsb", "sets/both", "both"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("RETRIEVER_DATA", str(tmp_path / "sets"))
    return tmp_path / "sets"


def test_a_path_that_exists_is_taken_before_the_one_in_the_folder_of_data_sets(
    sets, monkeypatch, retriever
):
    for asked in (("eval", "sts", "stsb"), ("train", "encoder", "stsb", "--output", "e")):
        refused(retriever(*asked), f"{sets / 'stsb'}: expected")
    assert data_set(Path("both")) == Path("both")
    assert data_set(Path("stsb")) == data_set(sets / "stsb") == sets / "stsb"
    monkeypatch.delenv("RETRIEVER_DATA")
    assert data_set(Path("both")) == Path("both")
    with pytest.raises(SourceError, match=r"^stsb: no such file or folder; check the path, or"):
        data_set(Path("stsb"))
