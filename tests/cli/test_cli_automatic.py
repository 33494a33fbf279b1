"""`--model auto` on the command line, and the command that a warning of the language names."""

from __future__ import annotations

import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from retriever.encoders.model_folders import BUNDLED, MULTILINGUAL_MODEL
from tests.cli.conftest import assert_refused, printed_json

RUSSIAN = "Эта книга лежала на столе в старом доме, и много лет её никто не читал."
ENGLISH = "The book was on the table in the old house, and nobody had read it for years."
REASON = "since 100% of 3 passages are not English"


@pytest.fixture
def set_package(monkeypatch):
    """Return a function that says which package holds the multilingual model."""

    def replace_package(name):
        bundled = replace(BUNDLED[MULTILINGUAL_MODEL], packages=(name,))
        monkeypatch.setitem(BUNDLED, MULTILINGUAL_MODEL, bundled)

    return replace_package


@pytest.fixture
def multilingual(tiny_models, minilm, monkeypatch):
    """The note of `auto` for three Russian texts; a tiny model stands for the multilingual one."""
    model = str(tiny_models["bert"])
    monkeypatch.setattr("retriever.index.automatic.MULTILINGUAL_MODEL", model)
    return f"model auto: {model}, {REASON}\n"


def records(text, number=3):
    return [{"id": str(row), "text": f"{text} {row}"} for row in range(number)]


@pytest.mark.filterwarnings("ignore:the encoder does not know")
def test_index_says_once_which_model_auto_is_and_info_shows_it(
    retriever, write_jsonl, multilingual
):
    corpus = write_jsonl(*records(RUSSIAN))
    done = retriever("index", corpus, "--model", "auto", "--json")
    assert printed_json(done)["auto"] == "100% of 3 passages are not English"
    assert multilingual in done.err
    info = retriever("info")
    assert f"chosen       by auto, {REASON}\n" in info.out
    assert printed_json(retriever("info", "--json"))["encoder"]["auto"] == (
        "100% of 3 passages are not English"
    )
    # The index keeps its model, and nothing is decided again.
    more = write_jsonl(*records(ENGLISH, 5), name="more.jsonl")
    again = retriever("index", more, "--model", "auto", "--json")
    assert (printed_json(again)["auto"], "model auto" in again.err) == (None, False)
    anew = retriever("index", corpus, "--model", "auto", "--recreate")
    assert multilingual in anew.err
    assert "model auto" not in retriever("index", corpus, "-q", "--model", "auto", "-i", "x").err
    assert "auto" not in printed_json(retriever("index", corpus, "-i", "plain", "--json"))
    assert "chosen" not in retriever("info", "-i", "plain").out


@pytest.mark.filterwarnings("ignore:the encoder does not know")
def test_index_with_auto_reads_standard_input_completely(retriever, monkeypatch, multilingual):
    lines = "".join(json.dumps(record) + "\n" for record in records(RUSSIAN, 1200))
    stdin = io.TextIOWrapper(io.BytesIO(lines.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    done = retriever("index", "-", "--model", "auto", "--json")
    assert printed_json(done)["added"] == 1200
    assert "since 100% of 1,000 passages are not English" in done.err


# The small model of the tests knows no Russian.
@pytest.mark.filterwarnings("ignore:the encoder does not know the language")
def test_query_in_a_folder_takes_auto(retriever, multilingual):
    Path("notes").mkdir()
    for number in range(3):
        Path(f"notes/{number}.txt").write_text(RUSSIAN)
    query = ("query", "книга", "--in", "notes", "--model", "auto")
    assert multilingual in retriever(*query).err
    again = retriever(*query)
    assert (again.code, "model auto" in again.err) == (0, False)


def test_query_in_a_folder_with_another_model_names_the_command_that_removes_the_index(
    retriever,
):
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("A text.")
    assert retriever("query", "text", "--in", "notes").code == 0
    done = retriever("query", "text", "--in", "notes", "--model", "all-MiniLM-L6-v2::lc:0,6")
    assert_refused(done, "--recreate; for --in, remove the index with `retriever cache --clear`")


def test_missing_multilingual_package_is_refused_before_anything_is_written(
    retriever, write_jsonl, minilm, set_package
):
    set_package("no_such_package")
    corpus = write_jsonl(*records(RUSSIAN))
    done = retriever("index", corpus, "--model", "auto", "-q")
    assert_refused(done, "model multilingual-e5-small comes with a package", "[multilingual]")
    assert not Path(".retriever").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "corpus.jsonl", "-o", "x.npy"),
        ("query", "x"),
        ("reindex",),
        ("inspect", "layers", "corpus.jsonl"),
    ],
)
def test_commands_without_a_new_index_refuse_auto(arguments, retriever, write_jsonl):
    corpus = write_jsonl(*records(ENGLISH))
    assert retriever("index", corpus, "-q").code == 0
    done = retriever(*arguments, "--model", "auto")
    assert_refused(done, "the model auto is chosen by the documents of a new index")


def test_language_warning_names_the_command_that_mends_it(
    retriever, write_jsonl, set_package, minilm
):
    corpus = write_jsonl(*records(RUSSIAN, 20))
    set_package("no_such_package")
    with pytest.warns(UserWarning, match="the encoder does not know the language") as warned:
        retriever("index", corpus, "-i", "my index", "-q")
    (message,) = {str(warning.message) for warning in warned}
    _, command = message.split(". To search them by meaning: ")
    install, reindex = command.split(" && ")
    assert "[multilingual]" in shlex.split(install)[-1]
    assert shlex.split(reindex)[1:] == [
        *("reindex", "-i", "my index", "--model", "multilingual-e5-small")
    ]
    doctor = retriever("doctor", "-i", "my index", "--json")
    findings = json.loads(doctor.out)["findings"]
    assert [finding["mend"] for finding in findings if finding["kind"] == "language"] == [command]
    # A package of this name is installed.
    set_package("json")
    assert f"mend it: {reindex}\n" in retriever("doctor", "-i", "my index").out
