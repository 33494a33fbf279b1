"""Where data sets are looked for: at the path, else in the folder that RETRIEVER_DATA names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.evaluation_options import DataSet, data_set
from retriever.errors import SourceError
from tests.cli.conftest import refused
from tests.cli.test_cli_help import LEAVES


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A folder of data sets beside the working folder."""
    for folder in ("sets/stsb", "sets/both", "both"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("RETRIEVER_DATA", str(tmp_path / "sets"))
    return tmp_path / "sets"


def test_a_path_that_exists_is_taken_before_the_one_in_the_folder_of_data_sets(sets, monkeypatch):
    assert data_set(Path("both")) == Path("both")
    assert data_set(Path("stsb")) == data_set(sets / "stsb") == sets / "stsb"
    monkeypatch.delenv("RETRIEVER_DATA")
    assert data_set(Path("both")) == Path("both")
    with pytest.raises(SourceError, match=r"^stsb: no such file or folder; check the path, or"):
        data_set(Path("stsb"))


def test_every_command_finds_its_data_sets_there(sets, retriever):
    names = {
        f"{words} {one.name}"
        for words, command in LEAVES.items()
        for one in command.params
        if isinstance(one.type, DataSet)
    }
    training = ("reranker", "cross-encoder", "encoder")
    assert names == {
        *("eval sts datasets", "eval transfer datasets", "eval probe datasets", "eval qa dataset"),
        *("eval layers data", "eval layers test", "train reranker dataset"),
        *("train cross-encoder dataset", "train encoder dev", "train meta train", "train meta dev"),
        *(f"train {one} without" for one in training),
    }
    refused(retriever("train", "encoder", "stsb", "--output", "e"), f"{sets / 'stsb'}: expected")
