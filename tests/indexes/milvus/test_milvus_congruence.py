"""An index in Milvus answers as one in a folder does, after the same operations."""

from __future__ import annotations

import random
import re
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from random_samples import WORDS, random_filters, random_metadata
from where_reference import evaluate, render

from retriever import Document, FilterError, Index
from retriever.errors import ConfigError

pytestmark = pytest.mark.milvus
VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l"]
ROOTS = [f"{a}{b}" for a in WORDS for b in ("bud", "kin", "mil", "rot", "zap")]


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


@pytest.fixture(scope="module")
def both(tmp_path_factory, milvus_file):
    """The same index in a folder and in Milvus; documents by id."""
    chance = random.Random(4)
    weights = [1 / (1 + rank) for rank in range(len(ROOTS))]

    def made(numbers):
        for number in numbers:
            words = chance.choices(ROOTS, weights, k=chance.choice([1, 5, 7, 30]))
            title = chance.choice([None, "Fig", "pear"])
            yield Document(f"{number:03}é", " ".join(words), title, random_metadata(chance))

    folder = Index.create(tmp_path_factory.mktemp("both") / "x.index", encoder=Directions())
    other = Index.create(f"{milvus_file}congruent", encoder=Directions())
    steps = [list(made(numbers)) for numbers in (range(150), range(100, 200), range(190, 240))]
    reports = []
    for index in (folder, other):
        report = []
        for documents in steps:
            done = index.add(documents)
            report.append((done.added, done.updated, done.passages))
        report.append(index.delete([f"{number:03}é" for number in range(0, 240, 9)]))
        report.append(index.delete_where("id < '02'"))
        index.update("050é", metadata={"a": 2})
        report.append(index.add(steps[1][::2]).unchanged)
        reports.append(report)
    assert reports[0] == reports[1]
    yield folder, other
    assert other.verify() == []
    folder.close()
    other.close()


def test_documents_fields_and_facets_are_the_same(both):
    folder, other = both
    shown = [[(d, repr(d.metadata), index.spans(d.id)) for d in index] for index in both]
    assert shown[0] == shown[1]
    assert len(folder) == len(other) == len(shown[0]) > 150
    assert any(len(spans) > 1 for *_, spans in shown[0])
    summaries = [[(x.name, x.types, x.values, x.range) for x in index.fields()] for index in both]
    assert summaries[0] == summaries[1]
    names = ["a", "b", "né", "a.b"]
    counted = [index.facets(names, "figbud pearkin", where="a exists") for index in both]
    assert [(one.documents, one.matches) for one in counted] == [
        (counted[0].documents, counted[0].matches)
    ] * 2
    for name in names:
        one, two = (found.fields[name].values for found in counted)
        assert [(x.documents, x.matches) for x in one] == [(x.documents, x.matches) for x in two]
    text = " ".join(ROOTS)
    assert folder.term_weights(text) == other.term_weights(text)
    info = [index.info()["mean_passage_terms"] for index in both]
    assert info[0] == pytest.approx(info[1], abs=1e-3)


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("where", [None, "a exists and not a = 1"])
def test_the_best_ten_are_the_same(both, mode, where):
    chance = random.Random(mode)
    compared, texts = 0, {document.id: document.text for document in both[0]}
    for variant in VARIANTS if mode == "bm25" else VARIANTS[:1]:
        for _ in range(6):
            query = " ".join(chance.choices(ROOTS, k=3))
            asked = {"mode": mode, "where": where, "variant": variant, "b": 0.6}
            one, two = (index.search(query, k=11, depth=900, **asked) for index in both)
            assert [x.score for x in one] == pytest.approx([x.score for x in two], abs=1e-5)
            scores = np.array([hit.score for hit in one])
            for hit, match in zip(one[:10], two, strict=False):
                apart = np.abs(scores - hit.score) > 0.01 * abs(hit.score)
                if apart.sum() == len(one) - 1:
                    compared += 1
                    assert hit.id == match.id
                    assert (hit.title, repr(hit.metadata)) == (match.title, repr(match.metadata))
                    # Of passages of one document with equal scores, any may stand for it.
                    assert match.passage == texts[hit.id][match.start : match.stop]
                    for x, y in ((hit.dense, match.dense), (hit.bm25, match.bm25)):
                        assert x == pytest.approx(y, abs=1e-5)
    assert compared > 15


def test_filters_select_what_they_say_or_are_refused(both):
    _, other = both
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
    assert answered > 40


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mode": "bm25", "variant": "okapi"}, "BM25 variant okapi: Milvus does not count"),
        ({"mode": "dense", "k": 10_000}, "returns 16,384 passages at most, and 20,000"),
        ({"mode": "bm25", "where": "title like 'F_g'"}, "Milvus cannot evaluate 'like'"),
    ],
)
def test_what_milvus_cannot_do_is_refused_in_one_line(both, asked, message):
    with pytest.raises((ConfigError, FilterError), match=message) as refused:
        both[1].search("fig", **asked)
    assert "\n" not in str(refused.value)
