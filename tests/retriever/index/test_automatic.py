"""The model ``auto`` of a new index: by which passages it is chosen, and that none is lost."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from retriever import ConfigError, CorpusReader, Index, MissingExtraError, ModelError
from retriever.encoders.model_folders import BUNDLED, MULTILINGUAL_MODEL
from retriever.encoders.settings import DEFAULT_MODEL
from retriever.index.automatic import decide_model

ENGLISH = "The book was on the table in the old house, and nobody had read it for many years. "
RUSSIAN = "Эта книга лежала на столе в старом доме, и много лет её никто не читал. "
JAPANESE = "その本は古い家の机の上にあり、長い間誰も読んでいませんでした。"
GERMAN = "Das Buch lag auf dem Tisch in dem alten Haus, und niemand hatte es gelesen. "
CODE = "def add(self, value):\n    self.values.append(value)\n    return len(self.values)\n"


@pytest.fixture
def decide(tmp_path, minilm, monkeypatch):
    """Return a function that returns the model and the reason for some documents."""
    loader = SimpleNamespace(load=lambda: minilm)
    monkeypatch.setattr("retriever.index.automatic.Encoder", loader)

    def call(documents, **keywords):
        decision, _ = decide_model(tmp_path / "none", documents, {"model": "auto", **keywords})
        return decision.settings.model, decision.reason

    return call


@pytest.mark.parametrize(
    ("texts", "model", "reason"),
    [
        ([ENGLISH] * 9, DEFAULT_MODEL, "100% of 9 passages are English"),
        ([RUSSIAN] * 9, MULTILINGUAL_MODEL, "100% of 9 passages are not English"),
        ([JAPANESE] * 9, MULTILINGUAL_MODEL, "100% of 9 passages are not English"),
        ([GERMAN] * 9, MULTILINGUAL_MODEL, "100% of 9 passages are not English"),
        ([ENGLISH] * 10 + [RUSSIAN] * 10, MULTILINGUAL_MODEL, "50% of 20 passages are not English"),
        ([ENGLISH] * 95 + [RUSSIAN] * 5, DEFAULT_MODEL, "95% of 100 passages are English"),
        ([ENGLISH] * 90 + [JAPANESE] * 10, MULTILINGUAL_MODEL, "10% of 100 passages are not"),
        ([CODE] * 9, DEFAULT_MODEL, "100% of 9 passages are English"),
        (["12 345 67,8", "2020-01-01", RUSSIAN], MULTILINGUAL_MODEL, "100% of 1 passages"),
        (["12 345", "+-*/", ""], DEFAULT_MODEL, "there are no words to decide by"),
        ([], DEFAULT_MODEL, "there are no words to decide by"),
        (["ᚠᚢᚦᚨᚱᚲ ᚷᚹᚺᚾᛁᛃ ᛈᛇᛉᛊᛏᛒ"] * 3, MULTILINGUAL_MODEL, "100% of 3 passages"),
    ],
)
def test_language_of_the_passages_chooses_the_model(decide, texts, model, reason):
    name, decided_reason = decide(texts)
    assert name == model
    assert decided_reason.startswith(reason)


def test_long_document_counts_as_many_passages(decide):
    documents = [{"id": "long", "text": RUSSIAN * 400}, *[ENGLISH] * 20]
    model, reason = decide(documents)
    assert (model, reason.endswith("are not English")) == (MULTILINGUAL_MODEL, True)


def test_other_settings_and_language_count(decide, tmp_path):
    decision, _ = decide_model(
        tmp_path / "none", [GERMAN], {"model": "auto::pooling=max", "language": "english"}
    )
    assert str(decision.settings) == f"{DEFAULT_MODEL}::pooling=max"
    assert decide([ENGLISH], language="german")[0] == MULTILINGUAL_MODEL


def test_only_the_first_thousand_passages_are_read_and_none_is_lost(decide, tmp_path):
    numbers = count()
    stream = ({"id": str(number), "text": f"{ENGLISH}{number}"} for number in numbers)
    decision, documents = decide_model(tmp_path / "none", stream, {"model": "auto"})
    assert decision.reason == "100% of 1,000 passages are English"
    assert next(numbers) == 1000
    rest = iter(documents)
    assert [next(rest)["id"] for _ in range(1000)] == [str(number) for number in range(1000)]


def lines(number: int) -> bytes:
    records = ({"id": str(row), "text": f"{RUSSIAN}{row}"} for row in range(number))
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.mark.parametrize("number", [3, 1500])
def test_standard_input_is_read_once_and_completely(decide, number):
    reader = CorpusReader("-", stdin=io.BytesIO(lines(number)))
    assert decide(reader)[0] == MULTILINGUAL_MODEL
    assert [document.id for document in reader] == [str(row) for row in range(number)]
    assert reader.bytes_read == len(lines(number))


def test_pipe_is_read_once_and_completely(decide, tmp_path):
    pipe = tmp_path / "corpus.jsonl"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(lines(1500)))
    writer.start()
    reader = CorpusReader(pipe)
    assert decide(reader)[0] == MULTILINGUAL_MODEL
    assert len(list(reader)) == 1500
    writer.join()


def test_files_are_read_again_with_counts_that_start_over(decide, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(RUSSIAN)
    reader = CorpusReader(tmp_path)
    assert decide(reader)[0] == MULTILINGUAL_MODEL
    (tmp_path / "1.txt").write_text(ENGLISH)
    assert [document.text.strip() for document in reader] == [
        RUSSIAN.strip(),
        ENGLISH.strip(),
        RUSSIAN.strip(),
    ]
    assert sum(reader.files.read.values()) == 3


def test_malformed_corpus_is_refused_before_an_index_is_made(decide, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "text": "x"}\n{"id"\n')
    with pytest.raises(Exception, match=r"corpus.jsonl:2"):
        Index.from_documents(corpus, tmp_path / "index", model="auto")
    assert not (tmp_path / "index").exists()


def stream(text: str) -> Iterator[str]:
    yield from (f"{text}{number}" for number in range(3))


def test_index_keeps_the_model_that_was_chosen_first(decide, tmp_path):
    place = tmp_path / "index"
    with Index.from_documents(stream(ENGLISH), place, model="auto", device="cpu") as index:
        assert index.encoder_spec.model == DEFAULT_MODEL
        assert index.info()["encoder"]["auto"] == "100% of 3 passages are English"
        created = index.info()["created"]
    with Index.from_documents(stream(GERMAN), place, model="auto", device="cpu") as index:
        assert (index.encoder_spec.model, len(index)) == (DEFAULT_MODEL, 6)
        assert index.info()["encoder"]["auto"] == "100% of 3 passages are English"
        assert index.info()["created"] == created
    with Index.from_documents(stream(ENGLISH), tmp_path / "named", device="cpu") as index:
        assert index.info()["encoder"]["auto"] is None


def test_missing_package_is_an_error_before_anything_is_written(decide, tmp_path, monkeypatch):
    bundled = replace(BUNDLED[MULTILINGUAL_MODEL], packages=("no_such_package",))
    monkeypatch.setitem(BUNDLED, MULTILINGUAL_MODEL, bundled)
    place = tmp_path / "index"
    with pytest.raises(MissingExtraError, match=r"pip install .*\[multilingual\]"):
        Index.from_documents([RUSSIAN], place, model="auto")
    assert not place.exists()


@pytest.mark.parametrize("make", [Index.create, Index.open])
def test_auto_needs_documents(make, tmp_path):
    with Index.create(tmp_path / "index"):
        pass
    place = tmp_path / ("index" if make == Index.open else "new")
    with pytest.raises(ModelError, match="chosen by the documents of a new index"):
        make(place, model="auto")
    assert not (tmp_path / "new").exists()


def test_folder_named_auto_is_a_model_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("auto").mkdir()
    with pytest.raises(ModelError, match="auto: no model here"):
        Index.from_documents([ENGLISH], "index", model="auto")


def test_encoder_and_auto_are_not_both_given(tmp_path, fake_encoder):
    with pytest.raises((TypeError, ConfigError), match="both given"):
        Index.from_documents([ENGLISH], tmp_path / "index", model="auto", encoder=fake_encoder)
