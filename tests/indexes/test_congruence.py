"""Every store answers as the folder does: the same random operations on both, then compared.

A store is one line in `STORES`: a fixture that gives the location of an index that does not exist.
"""

import os
import random

import pytest

from retriever import Document, FilterError, Index, Mark
from tests.indexes.random_samples import WORDS, WordDirections, random_filters, random_metadata
from tests.indexes.where_reference import render

# Fixtures that give the URL of a new index.
STORES = ["postgres_url"]
SCORE = 1e-5
VARIANTS = ["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
SEED = int(os.environ.get("RETRIEVER_SEED", "0"))


class Pair:
    """The same index in a folder and in another store."""

    def __init__(self, folder, other, seed, filters):
        self.both = (folder, other)
        self.chance = random.Random(seed)
        self.filters = filters

    def text(self):
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 14)))

    def ids(self):
        return [f"{self.chance.choice('aBé-_')}{self.chance.randint(0, 30)}" for _ in range(4)]

    def document(self, id_):
        title = self.chance.choice([None, "Fig", "pear"])
        label = (Mark(0, "label", self.chance.choice(WORDS)),) if self.chance.random() < 0.3 else ()
        return Document(id_, self.text(), title, self.metadata(), label)

    def metadata(self):
        return random_metadata(self.chance)

    def where(self):
        return render(self.chance.choice(self.filters), self.chance)

    def change(self):
        """Perform one random operation on both indexes."""
        kind = self.chance.choices(
            ["add", "metadata", "delete", "where", "prune", "clear", "compact"],
            [50, 20, 12, 6, 4, 1, 2],
        )[0]
        ids = sorted(set(self.ids()))
        documents = [self.document(id_) for id_ in ids]
        stored_ids = [id_ for id_ in ids if id_ in self.both[0]]
        changed = [(id_, self.metadata()) for id_ in stored_ids[:2]]
        where = self.where()
        # Most random filters are refused.
        while self.chance.random() < 0.9 and self.both[0].filter_warning(where):
            where = self.where()
        results = []
        for index in self.both:
            match kind:
                case "add":
                    done = index.add(documents)
                    results.append((done.added, done.updated, done.unchanged, done.passages))
                case "metadata":
                    for id_, metadata in changed:
                        index.update(id_, metadata=metadata)
                case "delete":
                    results.append(index.delete(ids[:2]))
                case "where":
                    results.append(self._answer(index.delete_where, where))
                case "prune":
                    remaining = [index[id_] for id_ in sorted(d.id for d in index)[::2]]
                    done = index.add([*remaining, *documents], prune=True)
                    results.append((done.added, done.updated, done.unchanged, done.deleted))
                case "clear":
                    index.clear()
                case "compact":
                    index.compact()
        assert not results or results[0] == results[1], (kind, ids, where)

    def copies(self, copies):
        """Return the number of copies that the other store counts."""
        return copies

    def doubts(self, where):
        """Return the warning of each store about a filter."""
        return [index.filter_warning(where) for index in self.both]

    def compare(self):
        """Assert that both indexes have the same documents, facets, fields and hits."""
        folder, other = self.both
        assert list(folder) == list(other)
        assert len(folder) == len(other)
        copies = len(folder) - len({(document.title, document.text) for document in folder})
        assert [index.count_copies() for index in self.both] == [copies, self.copies(copies)]
        assert _exact(folder) == _exact(other)
        for where in (None, self.where(), self.where()):
            if where is not None:
                ours, theirs = self.doubts(where)
                assert ours == theirs, where
            for mode in ("dense", "bm25", "hybrid"):
                self._compare_search(mode, where)
            query = self.chance.choice([None, self.text()])
            names = self.chance.sample(["a", "b", "né", "`x y`", "a.b", "`id`"], 3)
            answers = [self._answer(_facets, index, names, query, where) for index in self.both]
            assert answers[0] == answers[1], (names, query, where)
        summaries = [[(x.name, x.types, x.values, x.range) for x in i.fields()] for i in self.both]
        assert summaries[0] == summaries[1]
        with folder._opened.view() as folder_view, other._opened.view() as store_view:
            terms = [*folder.analyzer.tokens(" ".join(WORDS)), "absent"]
            assert folder_view.document_frequencies(terms) == store_view.document_frequencies(terms)
            assert folder_view.passage_count == store_view.passage_count

    def _compare_search(self, mode, where):
        options = {
            "mode": mode,
            "k": self.chance.choice([1, 3, 10, 50]),
            "depth": self.chance.choice([1, 5, 100]),
            "variant": self.chance.choice(VARIANTS),
            "b": self.chance.choice([0.0, 0.75]),
        }
        query = self.text()
        answers = [self._answer(_search, index, query, where, options) for index in self.both]
        folder_answer, store_answer = answers
        if isinstance(folder_answer, str) or isinstance(store_answer, str):
            assert folder_answer == store_answer
            return
        context = (query, where, options)
        assert [hit.id for hit in folder_answer] == [hit.id for hit in store_answer], context
        for a, b in zip(folder_answer, store_answer, strict=True):
            assert (a.rank, a.passage, a.start, a.stop, a.metadata, a.bm25_rank, a.dense_rank) == (
                b.rank, b.passage, b.start, b.stop, b.metadata, b.bm25_rank, b.dense_rank
            ), context  # fmt: skip
            for x, y in ((a.score, b.score), (a.dense, b.dense), (a.bm25, b.bm25)):
                assert (x is None) == (y is None)
                assert x is None or y is None or abs(x - y) <= SCORE, context

    def _answer(self, call, *arguments):
        try:
            return call(*arguments)
        except FilterError as error:
            return str(error)


def _search(index, query, where, options):
    return index.search(query, where=where, **options)


def _facets(index, names, query, where):
    facets = index.facets(names, query, where=where)
    # Of equal numbers, such as 1 and 1.0, any may stand for all.
    return [facets.documents, facets.matches] + [
        (name, facet.distinct, [_rounded(value) for value in facet.values])
        for name, facet in facets.fields.items()
    ]


def _rounded(value):
    is_number = type(value.value) in (int, float)
    return value._replace(where=None) if is_number else value


def _exact(index):
    return [(d.id, repr(d.metadata), index.spans(d.id)) for d in index]


@pytest.fixture(scope="module")
def filters():
    return random_filters(300)


def run(folder, url, filters, operations, every, seed):
    encoder = WordDirections()
    with (
        Index.create(folder, encoder=encoder) as reference,
        Index.create(url, encoder=encoder) as other,
    ):
        pair = Pair(reference, other, seed, filters)
        pair.compare()
        for number in range(operations):
            pair.change()
            if number % every == every - 1:
                pair.compare()
        assert other.verify() == []
    with Index.open(url, encoder=encoder) as again:
        assert len(again) >= 0


@pytest.mark.filterwarnings("ignore:(filter|facets). ")
@pytest.mark.parametrize(
    ("operations", "every"), [(40, 6), pytest.param(1000, 10, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("store", STORES)
def test_a_store_answers_as_the_folder_does(store, request, tmp_path, filters, operations, every):
    url = request.getfixturevalue(store)
    run(tmp_path / "x.index", url, filters, operations, every, SEED + operations)
