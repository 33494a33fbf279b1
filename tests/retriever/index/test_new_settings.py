"""An index without documents takes other settings; one with documents keeps its own."""

from __future__ import annotations

from dataclasses import replace
from typing import get_type_hints

import pytest

from indexes import writer_lock
from retriever import AnalyzerSettings, Index, PassageSettings, StructureSettings
from retriever.encoders import Encoder
from retriever.errors import ConfigError, EncoderMismatchError, IndexLockedError
from retriever.index import import_documents
from retriever.search.opened import IndexKeywords, holds_documents
from tests.retriever.index.collection_samples import Lengths

STORES = ["folder", "postgres_url", pytest.param("milvus_url", marks=pytest.mark.milvus)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


@pytest.mark.parametrize("store", STORES)
def test_an_index_without_documents_takes_another_encoder_and_analyzer(store, request):
    where = request.getfixturevalue(store)
    with Index.create(where, encoder=Lengths(3), language="german", overlap=7) as first:
        assert len(first) == 0
    with Index.create(where, encoder=Lengths(5), on_long="truncate", overlap=9) as index:
        assert index.encoder_spec.dimensions == 5
        assert index.passages == PassageSettings("truncate", 9)
        # What is not given stays.
        assert index.analyzer.settings.language == "german"
        index.add(["ein Text"])
        assert index.search("Texte", mode="bm25")
        assert index.verify() == []
    for encoder, keywords in ((Lengths(3), {}), (Lengths(5), {"language": "english"})):
        with pytest.raises((ConfigError, EncoderMismatchError), match="the index was made with"):
            Index.create(where, encoder=encoder, **keywords)
    with Index.open(where, encoder=Lengths(5)) as index:
        assert len(index) == 1


def test_partial_encoder_settings_keep_other_settings(folder, fake_encoder):
    with Index.create(folder, "::max-length=32") as index:
        index.add(["a text"])
        index.clear()
    asked = []
    settings = replace(fake_encoder.spec.settings, max_length=16)
    fake_encoder.spec = replace(fake_encoder.spec, settings=settings)
    load = Encoder.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoder, "load", lambda encoder, **options: asked.append(encoder) or load())
        with Index.create(folder, "::max-length=16") as index:
            assert index.encoder_spec.max_length == 16
    assert [(one.model, one.max_length) for one in asked] == [("fake", 16)]


def test_an_index_that_another_process_fills_meanwhile_keeps_its_settings(folder, monkeypatch):
    with Index.create(folder, encoder=Lengths(3)) as index:

        def seen(store):
            found = holds_documents(store)
            if not len(index):
                index.add(["a text"])
            return found

        monkeypatch.setattr("retriever.index.opening.holds_documents", seen)
        with pytest.raises(EncoderMismatchError, match="the index was made with"):
            Index.create(folder, encoder=Lengths(5))
        assert [document.text for document in index] == ["a text"]
        assert index.verify() == []
        index.clear()
        with writer_lock(folder), pytest.raises(IndexLockedError):
            Index.create(folder, encoder=Lengths(5))
        assert index.encoder_spec.dimensions == 3


def test_import_takes_an_index_without_documents(folder, fake_encoder, tmp_path, monkeypatch):
    weights = fake_encoder.spec.weights
    monkeypatch.setattr("retriever.encoders.encoder.find_weights", lambda *_, **__: weights)
    with Index.create(folder, encoder=Lengths(3)):
        pass
    source = tmp_path / "v.jsonl"
    source.write_text('{"id": "1", "text": "a", "vector": [' + ",".join(["1"] * 16) + "]}\n")
    assert import_documents(folder, source, "fake").added == 1


def test_keywords_of_an_index_have_the_types_of_the_dataclasses():
    keywords = get_type_hints(IndexKeywords)
    kinds = (AnalyzerSettings, PassageSettings, StructureSettings)
    fields = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
    whole = {"analyzer", "passages", "structures"}
    assert whole < keywords.keys()
    for name in keywords.keys() - whole:
        assert keywords[name] == fields[name], name
