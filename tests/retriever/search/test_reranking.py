"""Reranked searches equal scoring each document by itself; unfit rerankers are refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from retriever import Document, Index, SearchSettings, load_reranker
from retriever.errors import EncoderMismatchError, ModelError
from retriever.rerankers import HeadReranker, TrainedHead, load_cross_encoder, write_cross_encoder
from retriever.rerankers.scorers import InteractionHead
from retriever.training import HeadSettings, HeadTrainingSettings
from tests.retriever.encoders.architectures import save
from tests.retriever.training.training_samples import cross_encoder

QUERIES = ["w1 w2 w3", "w7", "w1 w30 w12 w12"]
MODES = ("dense", "bm25", "hybrid")
KINDS = ("head", "cross-encoder")
ALL = 1000


pytestmark = pytest.mark.usefixtures("one_thread")


def random_documents(documents, seed, first=0):
    """Return random documents of few or many words, half of them with a title."""
    chance = random.Random(seed)
    for number in range(first, first + documents):
        # Some have several passages.
        count = 70 if number % 9 == 4 else chance.randint(1, 12)
        words = [f"w{chance.randrange(40)}" for _ in range(count)]
        title = f"w{chance.randrange(40)}" if number % 2 else None
        yield Document(f"d{number:03}", " ".join(words), title, {"number": number})


def encoded_text(hit):
    """Return the text of a hit's passage as it was encoded."""
    return f"{hit.title} {hit.passage}" if hit.title else hit.passage


@pytest.fixture
def documents():
    """Documents of the index, after some were replaced or deleted."""
    held = {
        one.id: one
        for one in (
            *random_documents(30, 1),
            *random_documents(20, 2, 20),
            *random_documents(15, 3, 45),
        )
    }
    return {id_: one for id_, one in held.items() if one.metadata["number"] % 7}


@pytest.fixture
def index(tmp_path, fake_encoder, documents, monkeypatch):
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 20)
    with Index.create(tmp_path / "my.index") as index:
        index.add(random_documents(30, 1), compact=False)
        index.add(random_documents(20, 2, 20), compact=False)
        index.add(random_documents(15, 3, 45), compact=False)
        index.delete([f"d{number:03}" for number in range(0, 65, 7)])
        info = index.info()
        assert len(info["segments"]) > 1
        assert info["deleted_passages"] > 0
        assert info["documents"] == len(documents)
        yield index


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a transformer and of a cross-encoder."""
    place = tmp_path_factory.mktemp("models")
    model = cross_encoder(save("bert", place / "bert"), training=True, max_length=40)
    write_cross_encoder(place / "cross", model, {})
    return place


def head_folder(folder, spec):
    torch.manual_seed(2)
    settings = HeadSettings("bilinear", "linear", initial="random")
    head = InteractionHead(settings, spec.dimensions)
    trained = TrainedHead(head, HeadTrainingSettings(), (), 0)
    HeadReranker.of(spec, trained).save(folder)
    return folder


@pytest.fixture
def rerankers(tmp_path, folders, fake_encoder):
    """For each kind a reranker, and a function that scores a query and a text without it."""
    head = head_folder(tmp_path / "head", fake_encoder.spec)
    matrix = load_file(head / "head.safetensors")["matrix"]
    model = load_cross_encoder(folders / "cross", device="cpu", backend="torch")

    def bilinear(query, text):
        u, v = fake_encoder.encode([query, text])
        return float(u @ matrix @ v)

    def pair(query, text):
        return float(model.score([query], [text])[0])

    return {
        "head": (load_reranker(head), cache(bilinear)),
        "cross-encoder": (load_reranker(folders / "cross", device="cpu"), cache(pair)),
    }


def ordered(scores):
    return sorted(scores, key=lambda id_: (-scores[id_], id_))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", [None, "number < 30"])
def test_the_best_hits_are_reranked_and_the_best_of_those_given(
    index, rerankers, mode, kind, where
):
    reranker, score = rerankers[kind]
    for k, depth in ((3, 8), (8, 3), (5, 5), (1, 100), (ALL, ALL)):
        settings = SearchSettings(mode, k=k, depth=depth)
        many = index.search_many(QUERIES, settings, where=where, reranker=reranker)
        for query, hits in zip(QUERIES, many, strict=True):
            first = index.search(query, replace(settings, k=max(k, depth)), where=where)
            expected = {hit.id: score(query, encoded_text(hit)) for hit in first}
            assert [hit.id for hit in hits] == ordered(expected)[:k]
            before = {hit.id: hit for hit in first}
            for rank, hit in enumerate(hits, start=1):
                earlier = before[hit.id]
                assert hit == replace(earlier, rank=rank, score=hit.score, first_rank=earlier.rank)
                assert hit.score == pytest.approx(expected[hit.id], abs=1e-5)


class Scripted:
    """A reranker with given scores."""

    reads_vectors = False

    def __init__(self, scores):
        self.scores = scores
        self.seen = []

    def check(self, encoder):
        self.seen.append(encoder)

    def score(self, query, vector, passages, vectors):
        assert vector is None
        assert vectors is None
        self.seen.append((query, list(passages)))
        return np.array([self.scores(text) for text in passages], np.float32)


def test_equal_scores_are_ordered_by_id_and_texts_are_those_that_were_encoded(index, documents):
    settings = SearchSettings("dense", k=ALL, depth=ALL)
    first = {hit.id: encoded_text(hit) for hit in index.search("w1", settings)}
    reranker = Scripted(lambda text: float("w1 " in text))
    hits = index.search("w1", settings, reranker=reranker)
    assert reranker.seen == [index.encoder_spec, ("w1", list(first.values()))]
    with_w1 = [id_ for id_, text in first.items() if "w1 " in text]
    assert [hit.id for hit in hits] == sorted(with_w1) + sorted(documents.keys() - set(with_w1))


def test_a_head_needs_the_encoder_in_every_mode_and_a_cross_encoder_in_none(
    index, fake_encoder, rerankers
):
    bm25 = SearchSettings("bm25", k=3, depth=20)
    with Index.open(index.folder) as opened:
        before = fake_encoder.loads
        assert opened.search("w1", bm25, reranker=rerankers["cross-encoder"][0])
        assert fake_encoder.loads == before
        assert opened.search("w1", bm25, reranker=rerankers["head"][0])
        assert fake_encoder.loads == before + 1


@pytest.mark.parametrize("kind", KINDS)
def test_reranking_without_hits_returns_no_hits(tmp_path, fake_encoder, rerankers, kind):
    reranker, _ = rerankers[kind]
    with Index.create(tmp_path / "empty.index") as index:
        for mode in MODES:
            assert index.search("w1", SearchSettings(mode), reranker=reranker) == []
        index.add([Document("a", "w1")])
        assert index.search("w2", SearchSettings("bm25"), reranker=reranker) == []


def test_a_head_of_another_encoder_is_refused_naming_both(tmp_path, index, fake_encoder):
    other = replace(fake_encoder.spec, weights="1" * 64)
    reranker = load_reranker(head_folder(tmp_path / "other", other))
    with pytest.raises(EncoderMismatchError) as caught:
        index.search("w1", SearchSettings("bm25"), reranker=reranker)
    message = str(caught.value)
    assert "\n" not in message
    for spec in (other, index.encoder_spec):
        assert f"{spec} ({spec.fingerprint})" in message


def test_folder_without_reranker_is_refused(tmp_path, folders):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "reranker.json").write_text(json.dumps({"format": 1, "kind": "oracle"}))
    for folder, expected in (
        (tmp_path / "nowhere", "expected a reranker's folder"),
        (folders / "bert", "expected a reranker's folder"),
        (tmp_path / "odd", "found 'oracle'"),
    ):
        with pytest.raises(ModelError, match=expected) as caught:
            load_reranker(str(folder))
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_cross_encoder_says_which_passages_its_window_cut(index, folders):
    model = cross_encoder(folders / "bert", training=True, max_length=8)
    write_cross_encoder(folders / "narrow", model, {})
    reranker = load_reranker(folders / "narrow")
    with pytest.warns(UserWarning, match=r"window of 8 tokens and were cut") as caught:
        list(index.search_many(["w1 w2 w3"] * 2, k=ALL, depth=ALL, reranker=reranker))
    first, second = [str(one.message) for one in caught]
    assert first == second
    with pytest.raises(TypeError, match="expected a loaded reranker"):
        index.search("w1", reranker=str(folders / "narrow"))
