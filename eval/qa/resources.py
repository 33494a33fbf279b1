"""Resources that the systems of an evaluation share: splits, BM25, encoders, vectors, an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_forms import read_question_set, splits_of
from eval.datasets.question_set import Question, QuestionSet
from eval.progress import Notify, Progress
from eval.qa.pools import (
    DevScore,
    EmbeddedPairs,
    Floats,
    PoolBM25,
    RankBM25,
    embed_pairs,
    hold_out,
    relevant_ids,
    training_set,
    without_overlap,
)
from eval.qa.systems import QASettings
from eval.settings import QuestionSettings
from retriever import Mode, SearchSettings
from retriever.documents import Analyzer, CorpusReader
from retriever.encoders import DEFAULT_MODEL, Encoder, over_model, parse_encoder, require_trusted
from retriever.errors import ConfigError, SourceError
from retriever.index import Index, NoProgress
from retriever.rerankers import QueryMap, load_cross_encoder, load_query_map
from retriever.search import ComponentScores, FusionSettings, best_passages, fuse
from retriever.search.engine import ScoredPassages
from retriever.training import NegativeSource, TrainingSet

Questions = str | Path | QuestionSet | Mapping[str, QuestionSet]
"""A folder, one split that is loaded, or several by their names."""

Ranked = tuple[tuple[Question, ...], Floats]
"""Questions with the ranked passages or documents as candidates, and (pairs,) scores."""

_QUERIES_AT_ONCE = 256
_T = TypeVar("_T")


def split_reader(questions: Questions, settings: QuestionSettings) -> Callable[[str], QuestionSet]:
    """Return a function that reads a split of a question set by name, each split once."""
    loaded = {questions.split: questions} if isinstance(questions, QuestionSet) else {}
    if isinstance(questions, Mapping):
        loaded.update(questions)

    def read(split: str) -> QuestionSet:
        if split not in loaded:
            if not isinstance(questions, str | Path):
                raise ConfigError(
                    f"split: expected one of {', '.join(loaded)}, which are loaded, found {split}"
                )
            loaded[split] = read_question_set(
                Path(questions), split, form=settings.form, variant=settings.variant
            )
        return loaded[split]

    return read


def _check_index(questions: QuestionSet, settings: QuestionSettings) -> None:
    """Refuse a set without pools that has no index, and a set with pools that has one."""
    if questions.corpus and settings.index is None:
        raise ConfigError(
            f"{questions.name}: the set has no pools of candidates, so the whole corpus is "
            "ranked; name its index with --index FOLDER, which is created if needed"
        )
    if settings.index is not None and not questions.corpus:
        raise ConfigError(
            f"{questions.name}: the set has pools of candidates, which need no index; leave out "
            "--index"
        )


@contextmanager
def open_resources(
    questions: Questions, settings: QASettings, progress: Progress, notify: Notify
) -> Iterator[Resources]:
    """Open the resources of an evaluation; the index of a set without pools is completed first."""
    read = split_reader(questions, settings.data)
    first = read(questions.split if isinstance(questions, QuestionSet) else settings.split)
    _check_index(first, settings.data)
    query_map = None if settings.query_map is None else load_query_map(settings.query_map)
    with ExitStack() as stack:
        corpus = None
        if settings.data.index is not None:
            index = stack.enter_context(
                Index.create(
                    settings.data.index,
                    settings.encoder,
                    device=settings.loading.device,
                    download=settings.loading.download,
                    dtype="float32",
                )
            )
            index.query_map = query_map
            _complete_index(index, first, progress, notify)
            depth = settings.data.depth
            corpus = CorpusSearch(index, SearchSettings(k=depth, depth=depth))
        models = settings.models or Path(stack.enter_context(TemporaryDirectory()))
        yield Resources(read, first, settings, corpus, models, progress, notify, query_map)


def _complete_index(
    index: Index, questions: QuestionSet, progress: Progress, notify: Notify
) -> None:
    reader = CorpusReader(list(questions.corpus))
    documents = len(index)
    if documents:
        difference = index.difference(reader)
        if difference.foreign:
            corpus = " ".join(map(str, questions.corpus))
            raise ConfigError(
                f"{index.store}: expected only documents of {corpus}, found "
                f"{difference.foreign:,} of its {documents:,} documents that are not among the "
                f"{difference.corpus:,} of the corpus; name another folder, or run `retriever "
                f"index {corpus} -i {index.store} --recreate`"
            )
        if not difference.missing and not difference.changed:
            return
        notify(
            f"note: {index.store}: {difference.missing:,} documents of the corpus were missing and "
            f"{difference.changed:,} had changed; they are indexed now"
        )
    index.add(reader, progress=_IndexingStage(progress))
    if reader.generated_ids is not None:
        notify(f"note: {reader.generated_ids}")
    if reader.empty:
        notify(f"warning: {reader.empty:,} documents of the corpus have no text and are left out")


class _IndexingStage(NoProgress):
    """The progress of indexing, as a stage of unknown length."""

    def __init__(self, progress: Progress) -> None:
        self._done = progress("indexing passages", None)

    def encoded(self, passages: int, pieces: int) -> None:
        """Report encoded passages."""
        self._done(passages)


class CorpusSearch:
    """Ranks the whole corpus of an index for questions, with `k` hits for each."""

    def __init__(self, index: Index, settings: SearchSettings) -> None:
        self.index = index
        self.depth = settings.k
        self._settings = settings
        self._candidates: dict[tuple[str, ...], list[ScoredPassages]] = {}

    def rank(self, questions: QuestionSet, mode: Mode) -> Ranked:
        """Return the first `depth` hits of each question in a mode."""
        texts = [question.text for question in questions.questions]
        hits = self.index.rank(texts, replace(self._settings, mode=mode))
        return pool_hits(questions.questions, list(hits))

    def rank_fused(self, questions: QuestionSet, fusion: FusionSettings) -> Ranked:
        """Return the first hits by both components; all fusions share one search of the corpus."""
        texts = tuple(question.text for question in questions.questions)
        if texts not in self._candidates:
            self._candidates[texts] = [
                candidates
                for start in range(0, len(texts), _QUERIES_AT_ONCE)
                for candidates in self.index.candidates(
                    texts[start : start + _QUERIES_AT_ONCE], self._settings
                )
            ]
        fusion = fusion.completed(self.index.default_weight)
        best = [
            _best_documents(candidates, fusion, self.depth)
            for candidates in self._candidates[texts]
        ]
        return pool_hits(questions.questions, best)

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """Return the questions with their hits as pools.

        Relevant documents that are no hits become passages with their whole text.
        """
        texts = [question.text for question in questions.questions]
        hit_lists = self.index.search_many(texts, self._settings)
        passages: dict[str, str] = {}
        question_texts: dict[tuple[str, str], str] = {}
        pooled = []
        for question, hits in zip(questions.questions, hit_lists, strict=True):
            for hit in hits:
                text = _titled(hit.title, hit.passage)
                if passages.setdefault(hit.id, text) != text:
                    question_texts[question.id, hit.id] = text
            ids = sorted((hit.id for hit in hits), reverse=True)
            pooled.append(replace(question, candidates=tuple(ids)))
        relevant = {id_ for question in questions.questions for id_ in relevant_ids(question)}
        missing_ids = relevant - passages.keys()
        if missing_ids:
            passages |= {id_: text for id_, text in corpus_texts(questions) if id_ in missing_ids}
        return replace(questions, questions=tuple(pooled), passages=passages, shown=question_texts)


def _best_documents(
    candidates: ScoredPassages, fusion: FusionSettings, depth: int
) -> list[tuple[str, float]]:
    """Return ids and scores of the first `depth` documents; equal scores are ordered by id."""
    scores = fuse(candidates.dense, candidates.bm25, candidates.matches, fusion).tolist()
    best = best_passages(scores, candidates.documents, range(len(scores)))
    return [(id_, scores[position]) for id_, position in islice(best.items(), depth)]


def pool_hits(questions: Sequence[Question], hits: Sequence[Sequence[tuple[str, float]]]) -> Ranked:
    """Return questions with their (document, score) hits as candidates, and (pairs,) scores.

    Candidates are in the order of `Question.candidates`.
    """
    pools = []
    scores = []
    for question, question_hits in zip(questions, hits, strict=True):
        descending = sorted(question_hits, reverse=True)
        pools.append(replace(question, candidates=tuple(id_ for id_, _ in descending)))
        scores += [score for _, score in descending]
    return tuple(pools), np.array(scores, np.float64)


def corpus_texts(questions: QuestionSet) -> Iterator[tuple[str, str]]:
    """Yield id and text of each document of a corpus; the text begins with the title."""
    for document in CorpusReader(list(questions.corpus)):
        yield document.id, _titled(document.title, document.text)


def _titled(title: str | None, text: str) -> str:
    return f"{title} {text}" if title else text


@dataclass(eq=False)
class Resources:
    """Splits, models and scores of an evaluation, each read or computed when first needed.

    Attributes:
        read: reads a split by name.
        questions: the split to rank, as it was read: without pools where a corpus is ranked.
        settings: the settings of the evaluation.
        corpus: the index of a set without pools.
        models: the folder of cross-encoders.
        progress, notify: see `rank_systems`.
        query_map: the map of query vectors of ``cosine`` and ``hybrid``.
        remarks: remarks on the split to rank, such as on texts that were cut.
    """

    read: Callable[[str], QuestionSet]
    questions: QuestionSet
    settings: QASettings
    corpus: CorpusSearch | None
    models: Path
    progress: Progress
    notify: Notify
    query_map: QueryMap | None = None
    remarks: list[str] = field(default_factory=list)
    # Text forms of encoders that share the passes of one model.
    _shared_forms: tuple[str, ...] = ()
    _encoders: dict[str, Encoder] = field(default_factory=dict)
    _bm25_indexes: list[tuple[Mapping[str, str], PoolBM25]] = field(default_factory=list)
    _values: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def _compute_once(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        if key not in self._values:
            self._values[key] = make()
        value: _T = self._values[key]
        return value

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """Return the questions with pools: their own, or the hits of the index."""
        corpus = self.corpus
        if corpus is None:
            return questions
        return self._compute_once(("pools", _key(questions)), lambda: corpus.pools(questions))

    @cached_property
    def dev_questions(self) -> QuestionSet:
        """The dev questions with a relevant passage, as they were read."""
        if self.settings.data.dev_share is not None:
            return self._divided[1]
        return self.read(self.settings.data.dev_split).answered()

    @cached_property
    def dev(self) -> DevScore:
        """The score of systems on the dev questions."""
        return DevScore(self.pools(self.dev_questions))

    @cached_property
    def _divided(self) -> tuple[QuestionSet, QuestionSet]:
        data = self.settings.data
        return hold_out(self.read(data.train_split), data.dev_share or 0)

    @cached_property
    def train_questions(self) -> QuestionSet:
        """The training questions with pools."""
        data = self.settings.data
        if data.dev_share is None:
            questions = self.pools(self.read(data.train_split))
        else:
            questions = self.pools(self._divided[0])
        if not data.without:
            return questions
        test_sets = [test_set for path in data.without for test_set in _read_test_splits(path)]
        disjoint = without_overlap(questions, test_sets)
        self.notify(
            f"note: {questions.name}: left out {len(questions) - len(disjoint):,} of "
            f"{len(questions):,} questions, which overlap with {', '.join(map(str, data.without))}"
        )
        return disjoint

    def training_set(self, negatives: NegativeSource) -> TrainingSet:
        """Return the training data, with negatives from this source."""

        def make() -> TrainingSet:
            train = self.train_questions
            return training_set(train, negatives, lambda: self._bm25(train))

        return self._compute_once(("training", negatives), make)

    @property
    def model(self) -> str | None:
        """The model that the evaluation names."""
        return parse_encoder(self.settings.encoder).model

    def encoder(self, text: str = "") -> Encoder:
        """Return the encoder of a text form; an empty form is the evaluation's or its index's."""
        return self._group(text)[text or self.settings.encoder]

    def form(self, encoder: str) -> str:
        """Return a text form with a model; one without gets the evaluation's or its index's."""
        if not encoder.startswith("::"):
            return encoder
        model = self.model
        if model is None and self.corpus is not None:
            model = self.corpus.index.encoder_spec.model
            require_trusted(model, None)
        return over_model(encoder, model or DEFAULT_MODEL)

    def share(self, encoders: Iterable[str]) -> None:
        """Let encoders of one model share its passes; an empty form is the evaluation's."""
        forms = dict.fromkeys(encoder or self.settings.encoder for encoder in encoders)
        if self.corpus is not None:
            forms.pop(self.settings.encoder, None)
        self._shared_forms = tuple(forms)

    def _group(self, text: str) -> Mapping[str, Encoder]:
        """Return an encoder and the other encoders of its model, by text form."""
        text = text or self.settings.encoder
        if self.corpus is not None and text == self.settings.encoder:
            return {text: self.corpus.index.encoder}
        model = parse_encoder(text).model or DEFAULT_MODEL
        forms = [
            form
            for form in self._shared_forms
            if (parse_encoder(form).model or DEFAULT_MODEL) == model
        ]
        if text not in forms:
            forms = [text]
        if text not in self._encoders:
            loading = self.settings.loading
            several = len(forms) > 1
            loaded = loading.load_together(forms) if several else [loading.load(text)]
            self._encoders |= zip(forms, loaded, strict=True)
        return {form: self._encoders[form] for form in forms}

    def pairs(self, questions: QuestionSet, encoder: str = "") -> EmbeddedPairs:
        """Return the vectors of questions with pools."""
        key = _key(questions)
        encoder = encoder or self.settings.encoder
        if ("pairs", key, encoder) not in self._values:
            group = self._group(encoder)
            cache = self.settings.loading.cache
            embedded = embed_pairs(list(group.values()), questions, cache, self.progress)
            for (form, model), pairs in zip(group.items(), embedded, strict=True):
                self._values["pairs", key, form] = pairs
                if pairs.cut:
                    subject = f"{model.spec}: the end of {pairs.cut:,} texts"
                    self._note_cut(subject, questions, model.spec.max_length)
        question_pairs: EmbeddedPairs = self._values["pairs", key, encoder]
        return question_pairs

    def lexical(self, questions: QuestionSet) -> tuple[Floats, NDArray[np.bool_]]:
        """Return (pairs,) BM25 of questions with pools, and (pairs,) whether they share a term."""
        return self._compute_once(
            ("lexical", _key(questions)), lambda: self._bm25(questions).scores(questions.questions)
        )

    def cosines(self, questions: QuestionSet, encoder: str) -> Floats:
        """Return (pairs,) cosines of questions with pools, with the query map if there is one."""
        pairs = self.pairs(questions, encoder)
        if self.query_map is not None:
            self.query_map.check(self.encoder(encoder).spec)
            pairs = replace(pairs, questions=self.query_map(pairs.questions))
        return pairs.cosines()

    def components(self, questions: QuestionSet, encoder: str) -> ComponentScores:
        """Return both component scores of questions with pools."""
        dense = self.cosines(questions, encoder)
        sizes = tuple(len(question.candidates) for question in questions.questions)
        return ComponentScores(sizes, dense, *self.lexical(questions))

    def cross_scores(self, name: str, folder: Path, questions: QuestionSet) -> Floats:
        """Return (pairs,) scores of questions with pools by the cross-encoder in `folder`.

        `name` tells cross-encoders apart.
        """

        def make() -> Floats:
            model = load_cross_encoder(folder, device=self.settings.loading.device)
            left, right = questions.pairs()
            done = self.progress(f"scoring {questions.split} with {folder.name}", len(left))
            scores = model.score(left, right, done)
            if model.cut:
                subject = f"{folder.name}: the end of {model.cut:,} of {len(left):,} pairs"
                self._note_cut(subject, questions, model.max_length)
            return scores.astype(np.float64)

        return self._compute_once(("cross", name, _key(questions)), make)

    def _note_cut(self, subject: str, questions: QuestionSet, window: int) -> None:
        """Warn that texts were cut, also in the report if they belong to the split to rank."""
        line = (
            f"{subject} of {questions.split} was not read: they are longer than the window of "
            f"{window} tokens"
        )
        self.notify(f"warning: {line}")
        if questions.split == self.questions.split:
            self.remarks.append(line)

    @cached_property
    def rank_bm25(self) -> RankBM25:
        """BM25 of the package rank-bm25 over all passages of the set or its corpus."""
        questions = self.questions
        texts = dict(corpus_texts(questions)) if questions.corpus else questions.passages
        return RankBM25(texts, self._analyzer)

    @property
    def _analyzer(self) -> Analyzer:
        return Analyzer() if self.corpus is None else self.corpus.index.analyzer

    def _bm25(self, questions: QuestionSet) -> PoolBM25:
        # Splits with the same passages share their statistics. The ids do not decide: some data
        # sets number the passages of each split from 1.
        for passages, bm25 in self._bm25_indexes:
            if passages == questions.passages:
                return bm25
        bm25 = PoolBM25(questions.passages, self._analyzer)
        self._bm25_indexes.append((questions.passages, bm25))
        return bm25


def _read_test_splits(path: Path) -> list[QuestionSet]:
    """Read the splits of a set that must not be trained on: all but training splits."""
    splits = [split for split in splits_of(path) if not split.startswith("train")]
    if not splits:
        raise SourceError(
            f"{path}: expected a dev or test split to compare with, found none; name another set "
            "with --without"
        )
    return [read_question_set(path, split) for split in splits]


def _key(questions: QuestionSet) -> tuple[str, ...]:
    """Return a key of a part of a set: its split and the ids of its questions."""
    return (questions.split, *(question.id for question in questions.questions))
