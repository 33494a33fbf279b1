"""Pairs of texts from a corpus alone: which ones, and which sample."""

from collections import Counter

import pytest

from eval.training.data import CorpusPairs
from retriever.documents import Document
from retriever.errors import BadInputError


def documents(count=20):
    return [
        Document(str(number), f"This is number {number} here.", f"Ships {number}")
        for number in range(count)
    ]


def test_title_pairs_need_distinct_title_and_text():
    good = {("A title", "A text."), ("Another title", "Another text.")}
    rows = [*good, ("", "No title."), ("No text", ""), ("Same", "Same")]
    pairs = CorpusPairs([Document(text, text, title) for title, text in rows], "title").draw()
    assert {pair[:2] for pair in pairs} == good


def test_corpus_pair_sample_is_uniform_and_repeatable_by_seed():
    drawn = Counter()
    for seed in range(200):
        pairs = CorpusPairs(documents(20), "title", sample=5, seed=seed).draw()
        assert len(pairs) == len(set(pairs)) == 5
        drawn.update(pair.left for pair in pairs)
    # 50 times each is expected; six standard deviations of the binomial are 37.
    assert min(drawn[f"Ships {number}"] for number in range(20)) > 13
    assert max(drawn.values()) < 87
    # The corpus is read once as a stream.
    done = []
    CorpusPairs(iter(documents(50)), "title", sample=2).draw(done.append)
    assert sum(done) == 50
    once = CorpusPairs(documents(20), sample=7, seed=3)
    assert once.draw() == once.draw()
    assert once.draw() != CorpusPairs(documents(20), sample=7, seed=4).draw()


def test_a_corpus_without_pairs_is_refused():
    with pytest.raises(BadInputError, match=r"^pairs: expected documents with .* found 0"):
        CorpusPairs([Document("1", "Text"), Document("2", "More")]).draw()
