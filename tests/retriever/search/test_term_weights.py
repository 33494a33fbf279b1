"""`Index.term_weights` against a count of the passages that hold each term."""

from __future__ import annotations

import math
import random

import pytest

from retriever import Document, Index

WORDS = ["how", "do", "sharpen", "chisel", "oil", "stone", "plane", "saw"]


@pytest.fixture
def texts():
    chance = random.Random(3)
    return {f"d{i}": " ".join(chance.choices(WORDS, k=4)) for i in range(40)}


def test_weights_are_lucene_s_idf_of_the_live_passages_of_all_segments(
    tmp_path, fake_encoder, texts
):
    with Index.create(tmp_path / "index") as index:
        items = list(texts.items())
        for part in (items[:30], items[30:]):
            index.add(Document(id_, text) for id_, text in part)
        index.add([Document("gone", "chisel zebra")])
        index.delete(["gone", *list(texts)[::7]])
        live = [text for id_, text in texts.items() if id_ not in list(texts)[::7]]
        query = "How do I sharpen a chisel, sharpen it like a zebra?"
        found = index.term_weights(query)
        terms = list(dict.fromkeys(index.analyzer.tokens(query)))
        counts = {term: sum(term in index.analyzer.tokens(text) for text in live) for term in terms}
    assert counts["zebra"] == counts["like"] == 0
    assert list(found) == [term for term in terms if counts[term]]
    n = len(live)
    assert found == pytest.approx(
        {term: math.log(1 + (n - df + 0.5) / (df + 0.5)) for term, df in counts.items() if df}
    )


def test_an_empty_index_and_a_text_without_terms_have_no_weights(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        assert index.term_weights("how do I") == {}
        index.add([Document("a", "how do I")])
        assert index.term_weights("the ?!") == {}
        assert index.term_weights("how") == {"how": pytest.approx(math.log(1 + 0.5 / 1.5))}
