"""An index in Milvus answers as one in a folder does, after the same operations."""

from __future__ import annotations

import random
import re
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from random_samples import WORDS, random_filters
from test_congruence import SEED, Pair
from where_reference import evaluate, render

from retriever import FilterError, Index
from retriever.errors import ConfigError

pytestmark = pytest.mark.milvus
VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l"]
ROOTS = [f"{a}{b}" for a in WORDS for b in ("bud", "kin", "mil", "rot", "zap")]
WEIGHTS = [1 / (1 + rank) for rank in range(len(ROOTS))]


class Directions:
    """An encoder that gives every text a direction of its own, of windows of 12 words."""

    name, max_seq_length = "directions", 12

    def tokenizer(self, text, **options):
        if isinstance(text, list):
            return {"input_ids": [one.split() for one in text]}
        return {"offset_mapping": [match.span() for match in re.finditer(r"\S+", text)]}

    def encode(self, sentences):
        seeds = [zlib.crc32(sentence.encode()) for sentence in sentences]
        return np.array([np.random.default_rng(seed).standard_normal(16) for seed in seeds])


_UNKNOWN = "no document has the field"


class Distinct(Pair):
    """Texts whose scores differ, and filters that Milvus answers; counts the hits it compared."""

    compared = 0

    def text(self):
        return " ".join(self.chance.choices(ROOTS, WEIGHTS, k=self.chance.choice([1, 5, 7, 30])))

    def where(self):
        while True:
            where = super().where()
            with suppress(FilterError):
                self.both[1].facets(["a"], where=where)
                ours, theirs = (index.filter_warning(where) or "" for index in self.both)
                # Milvus does not remember a field that no document has any longer.
                if _UNKNOWN not in theirs or _UNKNOWN in ours:
                    return where

    def copies(self, copies):
        return None

    def doubts(self, where):
        ours, theirs = super().doubts(where)
        # Milvus does not remember a field that no document has any longer.
        return [ours or theirs, theirs]

    def _compare_search(self, mode, where):
        variant = self.chance.choice(VARIANTS)
        asked = {"mode": mode, "where": where, "variant": variant, "b": 0.6, "k": 11, "depth": 900}
        query = " ".join(self.chance.choices(ROOTS, k=3))
        one, two = (index.search(query, **asked) for index in self.both)
        assert [x.score for x in one] == pytest.approx([x.score for x in two], abs=1e-5)
        scores = np.array([hit.score for hit in one])
        for hit, match in zip(one[:10], two, strict=False):
            apart = np.abs(scores - hit.score) > 0.01 * abs(hit.score)
            if apart.sum() == len(one) - 1:
                self.compared += 1
                assert hit.id == match.id
                assert (hit.title, repr(hit.metadata)) == (match.title, repr(match.metadata))
                # Of passages of one document with equal scores, any may stand for it.
                assert match.passage == self.both[0][hit.id].text[match.start : match.stop]
                for x, y in ((hit.dense, match.dense), (hit.bm25, match.bm25)):
                    assert x == pytest.approx(y, abs=1e-5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, milvus_file):
    """The same index in a folder and in Milvus."""
    folder = tmp_path_factory.mktemp("both") / "x.index"
    with (
        Index.create(folder, encoder=Directions()) as reference,
        Index.create(f"{milvus_file}congruent", encoder=Directions()) as other,
    ):
        yield Distinct(reference, other, SEED, random_filters(300))
        assert other.verify() == []


@pytest.mark.filterwarnings("ignore:(filter|facets). ")
def test_milvus_answers_as_the_folder_does(pair):
    for _ in range(4):
        for _ in range(10):
            pair.change()
        pair.compare()
    info = [index.info()["mean_passage_terms"] for index in pair.both]
    assert info[0] == pytest.approx(info[1], abs=1e-3)
    assert any(len(pair.both[1].spans(document.id)) > 1 for document in pair.both[1])
    assert pair.compared > 100


def test_filters_select_what_they_say_or_are_refused(pair):
    _, other = pair.both
    documents = [{"id": d.id, "title": d.title, "metadata": d.metadata} for d in other]
    chance, answered = random.Random(0), 0
    for node in random_filters(80):
        where = render(node, chance)
        expected = {one["id"] for one in documents if evaluate(node, one)}
        with warnings.catch_warnings(), suppress(FilterError):
            warnings.simplefilter("ignore", UserWarning)
            hits = other.search("figbud", mode="dense", k=240, where=where)
            answered += 1
            assert {hit.id for hit in hits} == expected, where
            assert [hit.id for hit in other.browse(where, k=240)] == sorted(expected)
    assert answered > 40


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mode": "bm25", "variant": "okapi"}, "BM25 variant okapi: Milvus does not count"),
        ({"mode": "dense", "k": 10_000}, "returns 16,384 passages at most, and 20,000"),
        ({"mode": "bm25", "where": "title like 'F_g'"}, "Milvus cannot evaluate 'like'"),
    ],
)
def test_what_milvus_cannot_do_is_refused_in_one_line(pair, asked, message):
    for index in pair.both:
        index.add([{"id": "fig", "title": "Fig", "text": "figbud"}])
    with pytest.raises((ConfigError, FilterError), match=message) as refused:
        pair.both[1].search("fig", **asked)
    assert "\n" not in str(refused.value)
