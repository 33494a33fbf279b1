"""Where data sets are looked for: at the path, else in the folder that RETRIEVER_DATA names."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from cli.evaluation_options import data_set
from retriever.errors import SourceError
from tests.cli.error_cases import refused
from tests.cli.test_cli_help import LEAVES


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A working folder, and beside it a folder of data sets."""
    for folder in ("here", "sets/stsb", "sets/both", "here/both"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sets/stsb/test.tsv").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RETRIEVER_DATA", str(tmp_path / "sets"))
    return tmp_path / "sets"


def test_a_data_set_is_found_in_the_folder_of_data_sets(sets):
    assert data_set(Path("stsb")) == sets / "stsb"
    assert data_set(Path("stsb/test.tsv")) == sets / "stsb/test.tsv"
    assert data_set(sets / "stsb") == sets / "stsb"


def test_a_path_that_exists_is_taken_first(sets):
    assert data_set(Path("both")) == Path("both")


def test_without_the_variable_only_the_path_counts(sets, monkeypatch):
    monkeypatch.delenv("RETRIEVER_DATA")
    assert data_set(Path("both")) == Path("both")
    for folder in (None, ""):
        if folder is not None:
            monkeypatch.setenv("RETRIEVER_DATA", folder)
        with pytest.raises(SourceError, match=r"^stsb: no such file or folder; check the path, or"):
            data_set(Path("stsb"))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("eval sts", "datasets"),
        ("eval transfer", "datasets"),
        ("eval probe", "datasets"),
        ("eval qa", "dataset"),
        ("train reranker", "dataset"),
        ("train cross-encoder", "dataset"),
        ("train encoder", "dev"),
        ("train meta", "train"),
        ("train meta", "dev"),
        ("eval layers", "data"),
        ("eval layers", "test"),
    ],
)
def test_every_command_finds_its_data_sets_there(sets, words, name):
    command = LEAVES[words]
    (parameter,) = [one for one in command.params if one.name == name]
    several = parameter.nargs == -1 or parameter.multiple
    found = parameter.type_cast_value(click.Context(command), ("stsb",) if several else "stsb")
    assert found == ((sets / "stsb",) if several else sets / "stsb")


def test_an_encoder_is_trained_on_a_data_set_that_is_found_there(sets, retriever):
    refused(retriever("train", "encoder", "stsb", "--output", "e"), f"{sets / 'stsb'}: expected")
