"""An index in Milvus answers as one in a folder does, after the same operations."""

from __future__ import annotations

import random
import re
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from test_congruence import SEED, Pair

from retriever import Document, FilterError, Index
from retriever.errors import ConfigError
from tests.indexes.random_samples import WORDS, random_filters
from tests.indexes.where_reference import evaluate, render

pytestmark = pytest.mark.milvus
ROOTS = [f"{a}{b}" for a in WORDS for b in ("bud", "kin", "mil", "rot", "zap")]
WEIGHTS = [1 / (1 + rank) for rank in range(len(ROOTS))]


class Directions:
    """An encoder with windows of 12 words that gives every text its own direction."""

    name, max_seq_length = "directions", 12

    def tokenizer(self, text, **options):
        if isinstance(text, list):
            return {"input_ids": [string.split() for string in text]}
        return {"offset_mapping": [match.span() for match in re.finditer(r"\S+", text)]}

    def encode(self, sentences):
        seeds = [zlib.crc32(sentence.encode()) for sentence in sentences]
        return np.array([np.random.default_rng(seed).standard_normal(16) for seed in seeds])


def is_beyond_lite(where):
    """Return whether Milvus Lite misreads a filter: 1 as true, or an escape literally."""
    text = where.lower()
    return re.search("true|false", text) or ("contains" in text and re.search(r"[%_\\]", text))


class Distinct(Pair):
    """Texts whose scores differ, and filters that Milvus answers; counts the hits it compared.

    All passages have 12 terms, so that the mean length, which Milvus takes from the first commit,
    stays that of the folder. No metadata has booleans, since Milvus Lite takes 1 for true.
    """

    compared = 0

    def text(self):
        return " ".join(self.chance.choices(ROOTS, WEIGHTS, k=self.chance.choice([12, 12, 24, 36])))

    def document(self, id_):
        title = self.chance.choice([None, "Fig", "pear"])
        return Document(id_, self.text(), title, self.metadata())

    def metadata(self):
        values = super().metadata().items()
        return {name: value for name, value in values if not isinstance(value, bool)}

    def where(self):
        while True:
            where = super().where()
            with suppress(FilterError):
                self.both[1].facets(["a"], where=where)
                ours, theirs = (index.filter_warning(where) for index in self.both)
                if ours == theirs and not is_beyond_lite(where):
                    return where

    def copies(self, copies):
        return None

    def _compare_search(self, mode, where):
        options = {"mode": mode, "where": where, "k": 11, "depth": 900}
        query = " ".join(self.chance.choices(ROOTS, k=3))
        ours, theirs = (index.search(query, **options) for index in self.both)
        assert [hit.score for hit in ours] == pytest.approx([x.score for x in theirs], abs=1e-5)
        scores = np.array([hit.score for hit in ours])
        for hit, match in zip(ours[:10], theirs, strict=False):
            apart = np.abs(scores - hit.score) > 0.01 * abs(hit.score)
            if apart.sum() == len(ours) - 1:
                self.compared += 1
                assert hit.id == match.id
                assert (hit.title, repr(hit.metadata)) == (match.title, repr(match.metadata))
                # Any of several passages of one document with equal scores may stand for it.
                assert match.passage == self.both[0][hit.id].text[match.start : match.stop]
                for x, y in ((hit.dense, match.dense), (hit.bm25, match.bm25)):
                    assert x == pytest.approx(y, abs=1e-5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, milvus_file):
    """The same index in a folder and in Milvus."""
    folder = tmp_path_factory.mktemp("both") / "x.index"
    with (
        Index.create(folder, encoder=Directions(), context="none", overlap=0) as reference,
        Index.create(
            f"{milvus_file}congruent", encoder=Directions(), context="none", overlap=0
        ) as other,
    ):
        yield Distinct(reference, other, SEED, random_filters(300))
        assert other.verify() == []


@pytest.mark.filterwarnings("ignore:(filter|facets). ")
def test_milvus_answers_as_the_folder_does(pair):
    for _ in range(6):
        for _ in range(8):
            pair.change()
        pair.compare()
    assert any(len(pair.both[1].spans(document.id)) > 1 for document in pair.both[1])
    assert pair.compared > 100


def test_milvus_filters_agree_with_an_independent_evaluator_or_are_refused(pair):
    _, other = pair.both
    documents = [{"id": d.id, "title": d.title, "metadata": d.metadata} for d in other]
    chance, answered = random.Random(0), 0
    for node in random_filters(120):
        where = render(node, chance)
        if is_beyond_lite(where):
            continue
        expected = {document["id"] for document in documents if evaluate(node, document)}
        with warnings.catch_warnings(), suppress(FilterError):
            warnings.simplefilter("ignore", UserWarning)
            hits = other.search("figbud", mode="dense", k=240, where=where)
            answered += 1
            assert {hit.id for hit in hits} == expected, where
            assert [hit.id for hit in other.browse(where, k=240)] == sorted(expected)
    assert answered > 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "bm25", "variant": "okapi"}, "Milvus ranks with BM25's default settings"),
        ({"mode": "hybrid", "k1": 0.9}, "leave them out, or keep the index in a folder"),
        ({"mode": "dense", "recall": 1.0}, "takes no recall"),
        ({"mode": "bm25", "raw": False, "text": "figb*"}, r"figb\*: .* no list of terms"),
        ({"mode": "bm25", "where": "title like 'F_g'"}, "Milvus cannot evaluate 'like'"),
        ({"mode": "bm25", "where": "not (id < 'b')"}, "Milvus cannot evaluate not '<'"),
        ({"mode": "bm25", "where": "a = 9007199254740993"}, "compare exactly with a number such"),
    ],
)
def test_operations_unsupported_by_milvus_are_refused_in_one_line(pair, options, message):
    for index in pair.both:
        index.add([{"id": "fig", "title": "Fig", "text": "figbud " * 12, "a": 1}])
    with pytest.raises((ConfigError, FilterError), match=message) as refused:
        pair.both[1].search(**{"text": "figbud"} | options)
    assert "\n" not in str(refused.value)
