"""A collection of documents and questions, and the quality of pipelines on it, by arrays.

What a pipeline computes is that of an index made with it: the same passages, terms, vectors, BM25
and fusion of candidates. What pipelines share is computed once; vectors and values stay in the
cache, so that a run that was interrupted continues.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from eval.layers.search import PoolObjective
from eval.layers.subsets import PairGrams, layer_subsets, pair_grams
from eval.metrics.measures import PoolMeasures
from eval.progress import Done, Progress
from eval.qa.pools import HARD, Components, Floats
from eval.settings import Loading
from eval.tuning.pipeline import RANKING, RANKINGS, Pipeline
from eval.vectors import embed, layer_form, split_layers
from retriever.documents import Analyzer, Document, cut_document, passage_text
from retriever.encoders import (
    Encoder,
    EncoderSettings,
    ModelChoice,
    Pooling,
    parse_encoder,
    scale_to_unit,
)
from retriever.encoders.model_folders import find_path
from retriever.encoders.settings import format_layers, resolve_layers
from retriever.errors import ConfigError
from retriever.files import whole_file
from retriever.index.fit import PassageSample, measured_fit
from retriever.search import (
    BM25,
    DEFAULT_WEIGHT,
    FusionSettings,
    Postings,
    Reranker,
    SearchableSegment,
    SearchSettings,
    load_reranker,
)
from retriever.training import HeadSettings, HeadTrainingSettings, JudgedPools

if TYPE_CHECKING:
    from retriever.encoders import EncoderSpec
    from retriever.rerankers import TrainedHead
    from retriever.rerankers.head import Scorer

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Part = NDArray[np.bool_]
_T = TypeVar("_T")

_QUERIES_AT_ONCE = 256
# Of the search for layers.
_POOL = 30
_PAIRS_AT_ONCE = 4096
_SETS_AT_ONCE = 256
_LAYERED_QUESTIONS = 600
_ALL_SETS = 13
_FEW_LAYERS = 3
# Questions whose times are measured.
_TIMED = 8
# Parts of the training questions: each is mapped by what is learned from the others.
_MAP_FOLDS = 3
# A change of what is computed makes the values of earlier releases another's.
_VERSION = 1


class OutOfTimeError(Exception):
    """The budget ended during a computation."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Documents by descending id, and questions that each have a relevant one among them."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    # Whether each question ranks its own candidates instead of all documents.
    pooled: bool
    # The place of each question in the collection that this one is a part of.
    rows: Rows

    @classmethod
    def of(
        cls, name: str, documents: Sequence[Document], questions: Sequence[Question], pooled: bool
    ) -> Collection:
        """All documents and questions."""
        ordered = tuple(sorted(documents, key=lambda one: one.id, reverse=True))
        return cls(name, ordered, tuple(questions), pooled, np.arange(len(questions)))

    def sample(self, documents: int, questions: int) -> Collection:
        """A part: some questions, and the documents that are relevant to them with random ones."""
        random = np.random.default_rng(0)
        rows = np.sort(random.permutation(len(self.questions))[:questions])
        asked = tuple(self.questions[row] for row in rows)
        if self.pooled:
            return replace(self, questions=asked, rows=self.rows[rows])
        kept = {id_ for one in asked for id_, grade in one.grades.items() if grade >= 1}
        order = random.permutation(len(self.documents))[: max(0, documents - len(kept))]
        kept |= {self.documents[place].id for place in order}
        chosen = tuple(one for one in self.documents if one.id in kept)
        return replace(self, documents=chosen, questions=asked, rows=self.rows[rows])

    def digest(self) -> str:
        """SHA-256 over documents, questions, pools and grades."""
        found = hashlib.sha256()
        for document in self.documents:
            found.update(repr((document.id, document.title, document.text)).encode())
        for one in self.questions:
            grades = sorted(one.grades.items())
            found.update(repr((one.id, one.text, one.candidates, grades)).encode())
        return found.hexdigest()


class _Passages(NamedTuple):
    """Texts of passages as they are encoded."""

    texts: list[str]
    documents: Rows  # (n,) ascending numbers of their documents
    spans: list[tuple[int, int]]  # in these


class _Candidates(NamedTuple):
    """Candidate passages of all questions, by question, then document by descending id."""

    components: Components
    rows: Rows  # numbers of passages
    starts: Rows  # places where another document begins
    pools: list[Question]  # the questions with these documents


class _Recent(LRUCache[Hashable, Any]):
    """The last things that were made, by key."""

    def made(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What was made for a key, or is made now."""
        if key not in self:
            self[key] = make()
        found: _T = self[key]
        return found


class ArrayCache:
    """Arrays by key, in a folder of the cache if there is one, and in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Floats] = {}

    def get(self, key: str, make: Callable[[], Floats]) -> Floats:
        """The array of a key, which is made if there is none."""
        if key in self._known:
            return self._known[key]
        path = self._folder and self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"
        found = None
        if path is not None:
            with suppress(OSError, ValueError, EOFError):
                found = np.load(path, allow_pickle=False)
        if found is None:
            found = make()
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(path, "the cache") as new, new.open("wb") as file:
                    np.save(file, found)
        self._known[key] = found
        return found


class Evaluator:
    """The quality, latency and size of pipelines on a collection, by one measure."""

    def __init__(
        self, collection: Collection, measure: str, loading: Loading, progress: Progress
    ) -> None:
        self.collection = collection
        self.measure = measure
        self.loading = loading
        self.deadline = float("inf")
        self.evaluated = 0
        self._progress = progress
        name = f"{_VERSION}-{measure}-{collection.digest()[:32]}"
        self._arrays = ArrayCache(loading.cache and loading.cache / "tune" / name)
        # Vectors of all layers are the largest, facts are single numbers.
        self._layers = _Recent(2)
        self._dense = _Recent(6)
        self._kept = _Recent(24)
        self._encoders = _Recent(6)
        self._facts = _Recent(1_000)
        self._texts = [one.text for one in collection.questions]

    def values(self, pipeline: Pipeline, training: Part) -> Floats:
        """(questions,) values of the measure; see `table`."""
        if pipeline.rerank is not None:
            key = self._key(pipeline, training)
            return self._arrays.get(key, lambda: self._reranked(pipeline, training))
        ranking = RANKING.value(pipeline)
        if pipeline.search.mode != "hybrid":
            ranking = pipeline.search.mode, FusionSettings()
        found: Floats = self.table(pipeline, training)[RANKINGS.index(ranking)]
        return found

    def table(self, pipeline: Pipeline, training: Part) -> Floats:
        """(rankings, questions) values of the candidates of a pipeline, ranked in every way."""
        pipeline = pipeline.candidates

        def rank() -> Floats:
            self.check_time()
            self.evaluated += 1
            return ranking_values(self.candidates(pipeline, training), self.measure)

        return self._arrays.get(self._key(pipeline, training), rank)

    def _reranked(self, pipeline: Pipeline, training: Part) -> Floats:
        """(questions,) values where a reranker scores the first documents again."""
        # As the engine finds them for that many hits.
        depth = pipeline.search.depth
        found = self.candidates(pipeline.candidates.put(**{"search.depth": 2 * depth}), training)
        mode, fusion = RANKING.value(pipeline)
        scores, best = _best_passages(found, mode, fusion)
        name = str(pipeline.rerank)
        passages = self.passages(pipeline)
        sizes = [len(one.candidates) for one in found.pools]
        done = self._timed(self._progress(f"reranking with {name}", len(sizes)))
        known = self._kept.made(
            ("pairs", name, self._division(pipeline)), dict[tuple[int, int], float]
        )
        for number, stop in enumerate(np.cumsum(sizes).tolist()):
            start = stop - sizes[number]
            # Of equal documents the first by id, which is the last of them here.
            order = stop - 1 - np.argsort(-scores[start:stop][::-1], kind="stable")
            first = order[np.isfinite(scores[order])][:depth]
            rows = found.rows[best[first]].tolist()
            new = [row for row in rows if (number, row) not in known]
            for row, score in zip(new, self._pair_scores(name, number, passages, new), strict=True):
                known[number, row] = score
            again = [known[number, row] for row in rows]
            # What the reranker does not see stays behind, as it was.
            scores[order] = min(again, default=0.0) - 1.0 - np.arange(len(order))
            scores[first] = again
            done(1)
        pools = found.pools
        if mode == "bm25":
            matched, pools = _matched(found)
            scores = scores[matched]
        return PoolMeasures(pools, [self.measure])(scores)[self.measure]

    def _pair_scores(
        self, name: str, number: int, passages: _Passages, rows: Sequence[int]
    ) -> list[float]:
        """A reranker's scores of a question and some passages with their titles."""
        documents = self.collection.documents
        texts = [
            passage_text(documents[passages.documents[row]], passages.spans[row]) for row in rows
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = self.reranker(name).score(self._texts[number], None, texts, None)
        return [float(score) for score in scores]

    def reranker(self, name: str) -> Reranker:
        """A cross-encoder by its folder or hub id; a head on vectors is refused."""
        loading = self.loading
        found = self._encoders.made(
            ("reranker", name),
            lambda: load_reranker(name, device=loading.device, download=loading.download),
        )
        if found.reads_vectors:
            raise ConfigError(
                f"{name}: expected a cross-encoder, found a head on the vectors of one encoder; "
                "name a cross-encoder (`tune` trains a query map, a kind of head, by itself)"
            )
        return found

    def check_time(self) -> None:
        """Raise OutOfTimeError if the budget is used up."""
        if time.monotonic() > self.deadline:
            raise OutOfTimeError

    def candidates(self, pipeline: Pipeline, training: Part) -> _Candidates:
        """What is fused for each question."""
        passages = self.passages(pipeline)
        vectors, queries = self.vectors(pipeline)
        if pipeline.query_map:
            queries = self._mapped(pipeline, training)
        segment, asked = self._lexicon(pipeline)
        depth = self._depth(pipeline)
        pooled = self.collection.pooled
        numbers = {one.id: place for place, one in enumerate(self.collection.documents)}
        nearest: list[Rows] = []
        if not pooled:
            key = ("nearest", str(pipeline.encoder), pipeline.passages, depth)
            of_map = pipeline.query_map and training.tobytes()
            nearest = self._kept.made((*key, of_map), lambda: nearest_rows(vectors, queries, depth))
        rows = []
        sizes = []
        dense = []
        bm25 = []
        matches = []
        search = BM25([segment], pipeline.search.bm25)
        for number, terms in enumerate(asked):
            query = search.query(terms)
            if pooled:
                pool = self.collection.questions[number].candidates
                chosen = np.array([numbers[id_] for id_ in pool], np.int64)
            else:
                chosen = np.union1d(nearest[number], query.search(depth).positions)
            scores, matched = query.at(0, chosen)
            rows.append(chosen)
            sizes.append(len(chosen))
            dense.append(vectors[chosen] @ queries[number])
            bm25.append(scores)
            matches.append(matched)
        components = Components(
            tuple(sizes),
            np.concatenate(dense).astype(np.float64),
            np.concatenate(bm25),
            np.concatenate(matches),
        )
        return self._gathered(components, np.concatenate(rows), passages.documents)

    def _gathered(self, components: Components, rows: Rows, documents: Rows) -> _Candidates:
        numbers = documents[rows]
        asked = np.repeat(np.arange(len(components.sizes)), components.sizes)
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (numbers[1:] != numbers[:-1]) | (asked[1:] != asked[:-1])
        starts = np.flatnonzero(begins)
        found: list[list[str]] = [[] for _ in components.sizes]
        ids = self.collection.documents
        for question, number in zip(asked[starts].tolist(), numbers[starts].tolist(), strict=True):
            found[question].append(ids[number].id)
        pools = [
            replace(one, candidates=tuple(ids))
            for one, ids in zip(self.collection.questions, found, strict=True)
        ]
        return _Candidates(components, rows, starts, pools)

    def _depth(self, pipeline: Pipeline) -> int:
        """As the engine deepens it for the ranks that the measure reads."""
        _, at, cutoff = self.measure.partition("@")
        return max(2 * int(cutoff) if at else 200, pipeline.search.depth)

    def passages(self, pipeline: Pipeline) -> _Passages:
        """The passages of all documents, as an index has them."""
        documents = self.collection.documents
        if self.collection.pooled:
            texts = [one.text for one in documents]
            return _Passages(texts, np.arange(len(texts)), [(0, len(one)) for one in texts])
        encoder = self._encoder(str(replace(pipeline.encoder, query_prompt=None)))

        def cut() -> _Passages:
            texts = []
            numbers = []
            places = []
            for number, document in enumerate(documents):
                if number % 64 == 0:
                    self.check_time()
                for spans, _, _ in cut_document(document, encoder, pipeline.passages):
                    context = pipeline.passages.context
                    tables = pipeline.passages.tables
                    texts += [
                        passage_text(document, span, context, tables=tables) for span in spans
                    ]
                    numbers += [number] * len(spans)
                    places += spans
            return _Passages(texts, np.array(numbers, np.int64), places)

        return self._kept.made(self._division(pipeline), cut)

    def _division(self, pipeline: Pipeline) -> Hashable:
        """What passages depend on."""
        if self.collection.pooled:
            return "pools"
        asked = pipeline.encoder
        return asked.model, asked.static, asked.max_length, asked.passage_prompt, pipeline.passages

    def _lexicon(self, pipeline: Pipeline) -> tuple[SearchableSegment, list[list[str]]]:
        """Postings of all passages, and the terms of each question."""
        passages = self.passages(pipeline)

        def build() -> tuple[SearchableSegment, list[list[str]]]:
            analyzer = Analyzer(pipeline.analyzer)
            held = Counter[str]()
            terms = []
            for text in passages.texts:
                found, languages = analyzer.analyzed(text)
                terms.append(found)
                held.update(languages)
            segment = SearchableSegment(Postings.build(terms))
            if self.collection.pooled:
                # Every word of a question ranks a pool, as in `eval qa`.
                return segment, list(map(analyzer.tokens, self._texts))
            count = BM25([segment]).document_frequencies
            return segment, [analyzer.query_tokens(text, held, count) for text in self._texts]

        return self._kept.made(("terms", pipeline.analyzer, self._division(pipeline)), build)

    def vectors(self, pipeline: Pipeline) -> tuple[Vectors, Vectors]:
        """(n, d) of passages, and (q, d) of questions."""
        asked = pipeline.encoder

        def compute() -> tuple[Vectors, Vectors]:
            if self.layered(asked) is None:
                return self._embedded(pipeline, asked)
            passages, questions = self._states(pipeline)
            return fused_layers(passages, asked), fused_layers(questions, asked)

        return self._dense.made((str(asked), pipeline.passages), compute)

    def _mapped(self, pipeline: Pipeline, training: Part) -> Vectors:
        """(q, d) vectors of questions, each by a map that was not trained on it: for those in
        `training` it is learned from others of them, for all others from all of them.
        """
        from retriever.rerankers import QueryMap

        _, queries = self.vectors(pipeline)
        plain = pipeline.put(query_map=False)

        def learn() -> Vectors:
            found = np.array(queries)
            known = np.flatnonzero(training)
            fold = np.random.default_rng(0).permutation(len(known)) % _MAP_FOLDS
            parts = [(known[fold != number], known[fold == number]) for number in range(_MAP_FOLDS)]
            for rows, asked in [*parts, (known, np.flatnonzero(~training))]:
                if len(asked):
                    self.check_time()
                    head = self.trained_map(plain, rows).head
                    matrix = head.matrix.detach().numpy()
                    found[asked] = QueryMap(matrix)(queries[asked])
            return found

        return self._dense.made(
            ("mapped", str(plain.encoder), plain.passages, training.tobytes()), learn
        )

    def trained_map(self, pipeline: Pipeline, rows: Rows) -> TrainedHead:
        """A bilinear head trained on questions, of which a fifth chooses the epoch."""
        from retriever.rerankers import train_head

        vectors, queries = self.vectors(pipeline)
        numbers = self.passages(pipeline).documents
        place = {one.id: number for number, one in enumerate(self.collection.documents)}
        nearest: list[Rows] | None = None
        if not self.collection.pooled:
            nearest = self._kept.made(
                ("negatives", str(pipeline.encoder), pipeline.passages),
                lambda: nearest_rows(vectors, queries, HARD),
            )
        positives = []
        negatives = []
        for row in rows.tolist():
            one = self.collection.questions[row]
            relevant = [
                place[id_] for id_, grade in one.grades.items() if grade > 0 and id_ in place
            ]
            pool = (
                [place[id_] for id_ in one.candidates] if nearest is None else nearest[row].tolist()
            )
            negatives.append([n for n in pool if numbers[n] not in relevant])
            # Of a document, the passage that is nearest.
            parts = [np.flatnonzero(numbers == document) for document in relevant]
            near = [part[(vectors[part] @ queries[row]).argmax()] for part in parts if len(part)]
            positives.append([int(one) for one in near])
        pools = JudgedPools.of(positives, negatives, len(vectors))
        dev = np.arange(0, len(rows), 5)
        rest = np.flatnonzero(np.arange(len(rows)) % 5)
        lists = [positives[n] + negatives[n] for n in dev]
        asked_rows = np.repeat(rows[dev], [len(one) for one in lists])
        passage_rows = np.concatenate(lists).astype(np.int64)
        judged = [[1] * len(positives[n]) + [0] * len(negatives[n]) for n in dev]
        measures = PoolMeasures([_question(one) for one in judged], ["AP"])

        def score(scorer: Scorer) -> float:
            self.check_time()
            found = scorer(queries, vectors, asked_rows, passage_rows)
            return float(measures(found.astype(np.float64))["AP"].mean())

        return train_head(
            HeadTrainingSettings(),
            HeadSettings(),
            queries[rows[rest]],
            vectors,
            pools.part(rest),
            score,
        )

    def spec(self, pipeline: Pipeline) -> EncoderSpec:
        """The specification of its encoder."""
        return self._encoder(str(pipeline.encoder)).spec

    def _states(self, pipeline: Pipeline) -> tuple[Vectors, Vectors]:
        """(n, layers, width) pooled hidden states of passages, and (q, layers, width)."""
        layered = self.layered(pipeline.encoder)
        assert layered is not None
        passages, questions = self._layers.made(
            (str(layered), pipeline.passages), lambda: self._embedded(pipeline, layered)
        )
        depth = self.depth(pipeline.encoder)
        return split_layers(passages, depth), split_layers(questions, depth)

    def layered(self, asked: EncoderSettings) -> EncoderSettings | None:
        """The encoder of every hidden state of the same model; None if it has no such states."""
        if asked.static or asked.head or asked.fusion == "sbert-wk":
            return None
        plain = replace(asked, layers=None, fusion=None, normalize=None)

        def find() -> EncoderSettings | None:
            try:
                spec = self._encoder(str(plain)).spec
                pooling: Pooling | None = spec.meaning("pooling")
                if spec.settings.head or pooling is None:
                    return None
                form = EncoderSettings(**{**plain.named, "pooling": None})
                found = layer_form(str(form), pooling)
                self._encoder(found)
            except ConfigError:
                return None
            return parse_encoder(found)

        return self._facts.made(("layered", str(plain)), find)

    def depth(self, asked: EncoderSettings) -> int:
        """Transformer layers of a model with hidden states."""
        return self._encoder(str(self.layered(asked))).depth

    def _embedded(self, pipeline: Pipeline, asked: EncoderSettings) -> tuple[Vectors, Vectors]:
        texts = self.passages(pipeline).texts
        wanted = list(range(len(texts)))
        if self.collection.pooled:
            pooled = {id_ for one in self.collection.questions for id_ in one.candidates}
            wanted = [n for n, one in enumerate(self.collection.documents) if one.id in pooled]
        encoder = self._encoder(str(replace(asked, query_prompt=None)))
        questions = self._encoder(str(replace(asked, passage_prompt=None)))
        cache = self.loading.cache
        name = str(asked).partition("::layers=all")[0]
        done = self._timed(self._progress(f"encoding with {name}", len(wanted)))
        found = embed(encoder, [texts[row] for row in wanted], cache, done=done).vectors
        vectors = np.zeros((len(texts), found.shape[1]), np.float32)
        vectors[wanted] = found
        return vectors, embed(questions, self._texts, cache, query=True).vectors

    def _timed(self, done: Done) -> Done:
        def count(steps: int) -> None:
            done(steps)
            self.check_time()

        return count

    def _encoder(self, form: str) -> Encoder:
        return self._encoders.made(form, lambda: self.loading.load(form))

    def _key(self, pipeline: Pipeline, training: Part | None = None) -> str:
        weights = self._facts.made(
            ("weights", pipeline.encoder.model),
            lambda: ModelChoice(str(pipeline.encoder)).weights(),
        )
        key = f"{weights} {pipeline}"
        if pipeline.query_map and training is not None:
            key += hashlib.sha256(training.tobytes()).hexdigest()
        if (name := pipeline.rerank) is not None:
            key += self._facts.made(("weights", name), lambda: _digest(name))
        return key

    def default_weight(self, pipeline: Pipeline) -> float:
        """The weight of the embeddings that an index of these documents would have."""
        if self.collection.pooled:
            return DEFAULT_WEIGHT
        sample = PassageSample()
        texts = self.passages(pipeline).texts
        for text in texts:
            sample.take(hashlib.blake2b(text.encode(), digest_size=16).digest(), text)
        encoder = self._encoder(str(pipeline.encoder))
        fit = measured_fit(sample.texts, encoder, Analyzer(pipeline.analyzer), len(texts))
        return DEFAULT_WEIGHT if fit is None else fit.weight

    def _fact(self, name: str, pipeline: Pipeline, find: Callable[[Pipeline], float]) -> float:
        """A number that stays in the cache."""
        key = f"{name} {self._key(pipeline)}"
        return float(self._arrays.get(key, lambda: np.array(find(pipeline))))

    def megabytes(self, pipeline: Pipeline) -> float:
        """The size of an index: vectors, postings and texts, in 10^6 bytes."""
        return self._fact("size", pipeline.put(search=SearchSettings()), self._megabytes)

    def milliseconds(self, pipeline: Pipeline) -> float:
        """The median time of a question, in a process that has loaded the encoder."""
        return self._fact("time", pipeline, self._milliseconds)

    def _megabytes(self, pipeline: Pipeline) -> float:
        width = self.spec(pipeline).dimensions
        passages = len(self.passages(pipeline).texts)
        segment, _ = self._lexicon(pipeline)
        held = int(segment.postings.document_frequencies().sum())
        text = sum(len(one.text.encode()) for one in self.collection.documents)
        return (4 * width * passages + 5 * held + text) / 1e6

    def _milliseconds(self, pipeline: Pipeline) -> float:
        asked = self._texts[:_TIMED]
        mode = pipeline.search.mode
        total = 0.0
        if mode != "bm25":
            form = pipeline.encoder
            layered = self.layered(form)
            share = 1.0
            if layered is not None:
                depth = self.depth(form)
                share = max(*resolve_layers(form.layers or "last", depth), 0.5) / depth
                form = replace(form, layers=None, fusion=None)
            encoder = self._encoder(str(replace(form, passage_prompt=None)))
            total += share * self._facts.made(
                ("encode", str(form)),
                lambda: _median_ms(lambda one: encoder.encode([one], query=True), asked),
            )
        vectors, embedded = self.vectors(pipeline)
        (segment, queries) = self._lexicon(pipeline)
        depth = self._depth(pipeline)

        def search(number: int) -> None:
            if mode != "bm25":
                nearest_rows(vectors, embedded[number : number + 1], depth)
            if mode != "dense":
                BM25([segment], pipeline.search.bm25).query(queries[number]).search(depth)

        key = ("search", vectors.shape, pipeline.analyzer, depth, mode, pipeline.passages)
        total += self._facts.made(key, lambda: _median_ms(search, range(len(asked))))
        if (name := pipeline.rerank) is not None:
            passages = self.passages(pipeline)
            rows = range(min(depth, len(passages.texts)))
            total += self._facts.made(
                ("rerank", name, depth, self._division(pipeline)),
                lambda: _median_ms(
                    lambda number: self._pair_scores(name, number, passages, rows), range(3)
                ),
            )
        return total

    def layer_choices(self, pipeline: Pipeline, training: Part, best: int) -> tuple[Any, ...]:
        """Values of the knob of layers: the `best` sets of layers by the values of some questions,
        whose means rank the candidates of the pipeline by cosine, and two as concatenations.
        """
        if self.layered(pipeline.encoder) is None:
            return ()
        depth = self.depth(pipeline.encoder)
        key = ("sets", str(self.layered(pipeline.encoder)), pipeline.passages)
        asked, values = self._facts.made(key, lambda: self._layer_values(pipeline, training))
        subsets = layer_subsets(depth + 1, None if depth < _ALL_SETS else _FEW_LAYERS)
        means = np.round(values[:, training[asked]].mean(axis=1), 12)
        order = np.argsort(-means, kind="stable")[:best].tolist()
        sets = [format_layers(subsets.layers(place), depth) for place in order]
        several = [one for one in sets if len(resolve_layers(one, depth)) > 1]
        return (*((one, None) for one in sets), *((one, "concat") for one in several[:2]))

    def _layer_values(self, pipeline: Pipeline, training: Part) -> tuple[Rows, Floats]:
        """Some questions, and (sets of layers, questions) values of the candidates by cosine."""
        states, queries = self._states(pipeline)
        candidates = self.candidates(pipeline, training)
        documents = self.passages(pipeline).documents
        ends = np.cumsum(candidates.components.sizes)
        strength = candidates.components.fused(FusionSettings())
        asked = np.arange(len(queries))[:_LAYERED_QUESTIONS]
        pools = []
        left = []
        right = []
        for number in asked.tolist():
            first = int(ends[number]) - candidates.components.sizes[number]
            grades = self.collection.questions[number].grades
            part = np.arange(first, ends[number])
            best = part[np.argsort(-strength[part], kind="stable")[:_POOL]]
            ids = [self.collection.documents[n].id for n in documents[candidates.rows[best]]]
            pools.append(_question([grades.get(id_, 0) for id_ in ids]))
            left.append(np.full(len(best), number))
            right.append(candidates.rows[best])
        asked_rows = np.concatenate(left)
        rows = np.concatenate(right)
        grams = []
        for start in range(0, len(rows), _PAIRS_AT_ONCE):
            self.check_time()
            pairs = slice(start, start + _PAIRS_AT_ONCE)
            grams.append(pair_grams(queries[asked_rows[pairs]], states[rows[pairs]]).triangles)
        joined = PairGrams(states.shape[1], np.concatenate(grams, axis=2))
        depth = states.shape[1] - 1
        masks = layer_subsets(depth + 1, None if depth < _ALL_SETS else _FEW_LAYERS).masks
        objective = PoolObjective(pools, self.measure)
        values = []
        for start in range(0, len(masks), _SETS_AT_ONCE):
            self.check_time()
            cosines = joined.cosines(masks[start : start + _SETS_AT_ONCE])
            values.append(objective.per_question(cosines))
        return asked, np.concatenate(values)


def _question(grades: Sequence[int]) -> Question:
    """A question with candidates of these grades."""
    names = tuple(f"{len(grades) - place:06}" for place in range(len(grades)))
    return Question("", "", names, dict(zip(names, grades, strict=True)))


def nearest_rows(vectors: Vectors, queries: Vectors, depth: int) -> list[Rows]:
    """For each query, the numbers of the `depth` passages with the greatest product."""
    found: list[Rows] = []
    depth = min(depth, len(vectors))
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        scores = queries[start : start + _QUERIES_AT_ONCE] @ vectors.T
        found += list(np.argpartition(-scores, depth - 1, axis=1)[:, :depth].astype(np.int64))
    return found


def fused_layers(states: Vectors, asked: EncoderSettings) -> Vectors:
    """(n, layers, width) hidden states to (n, d) vectors of an encoder with these settings."""
    chosen = states[:, list(resolve_layers(asked.layers or "last", states.shape[1] - 1))]
    if asked.fusion == "concat":
        fused = chosen.reshape(len(chosen), -1)
    else:
        fused = chosen.max(axis=1) if asked.fusion == "max" else chosen.mean(axis=1)
    found: Vectors = np.ascontiguousarray(fused, np.float32)
    return found if asked.normalize is False else scale_to_unit(found)


def ranking_values(candidates: _Candidates, measure: str) -> Floats:
    """(rankings, questions) values of all `RANKINGS`."""
    components = candidates.components
    starts = candidates.starts
    normalized = {
        (name, weight): components.fused(FusionSettings(alpha=weight, normalization=name))
        for name in ("min-max", "z-score")
        for weight in (0.0, 1.0)
    }
    measures = PoolMeasures(candidates.pools, [measure])
    matched, pools = _matched(candidates)
    of_words = PoolMeasures(pools, [measure])
    found = []
    for mode, fusion in RANKINGS:
        if mode == "bm25":
            scores = np.maximum.reduceat(components.bm25, starts)[matched]
            found.append(of_words(scores)[measure])
            continue
        if mode == "dense":
            scores = components.dense
        elif fusion.method == "rrf":
            scores = components.fused(fusion)
        else:
            name = fusion.normalization
            alpha = fusion.alpha
            scores = alpha * normalized[name, 1.0] + (1 - alpha) * normalized[name, 0.0]
        found.append(measures(np.maximum.reduceat(scores, starts))[measure])
    return np.stack(found)


def _best_passages(
    candidates: _Candidates, mode: str, fusion: FusionSettings
) -> tuple[Floats, Rows]:
    """(documents,) float64 scores by the best passage, and the place of the first such passage."""
    components = candidates.components
    starts = candidates.starts
    if mode == "hybrid":
        scores = components.fused(fusion)
    else:
        scores = components.dense if mode == "dense" else components.bm25
        if mode == "bm25":
            # Documents without a term of their question.
            scores = np.where(components.matches, scores, -np.inf)
    owners = np.repeat(starts, np.diff(starts, append=len(scores)))
    best = np.lexsort((-scores, owners))[starts]
    return scores[best], best


def _digest(name: str) -> str:
    """SHA-256 over the weights of a reranker."""
    found = hashlib.sha256()
    for file in sorted(find_path(name).glob("*.safetensors")):
        found.update(file.read_bytes())
    return found.hexdigest()


def _matched(candidates: _Candidates) -> tuple[NDArray[np.bool_], list[Question]]:
    """Which documents hold a term of their question, and the questions with these alone."""
    matched = np.logical_or.reduceat(candidates.components.matches, candidates.starts)
    pools = []
    place = 0
    for one in candidates.pools:
        held = matched[place : (place := place + len(one.candidates))]
        ids = tuple(id_ for id_, kept in zip(one.candidates, held.tolist(), strict=True) if kept)
        pools.append(replace(one, candidates=ids))
    return matched, pools


def _median_ms(call: Callable[[Any], object], arguments: Sequence[Any]) -> float:
    call(arguments[0])
    times = []
    for one in arguments:
        start = time.perf_counter()
        call(one)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))
