"""What the systems of an evaluation share: splits, BM25, encoders, vectors, a corpus index."""

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
from retriever.encoders import DEFAULT_MODEL, Encoder, over_model, parse_encoder
from retriever.encoders.registry import require_asked
from retriever.errors import ConfigError, SourceError
from retriever.index import Index, NoProgress
from retriever.rerankers import QueryMap, load_cross_encoder, load_query_map
from retriever.search import FusionSettings, fuse
from retriever.search.engine import ScoredPassages
from retriever.search.fusion import ComponentScores, best_passages
from retriever.training import NegativeSource, TrainingSet

Questions = str | Path | QuestionSet | Mapping[str, QuestionSet]
"""A folder, one split that is loaded, or several by their names."""

Ranked = tuple[tuple[Question, ...], Floats]
"""Questions with what was ranked for them as candidates, and (pairs,) scores."""

_QUERIES_AT_ONCE = 256
_T = TypeVar("_T")


def split_reader(given: Questions, settings: QuestionSettings) -> Callable[[str], QuestionSet]:
    """Reads a split of a question set by name; each is read once."""
    loaded = {given.split: given} if isinstance(given, QuestionSet) else {}
    if isinstance(given, Mapping):
        loaded.update(given)

    def read(split: str) -> QuestionSet:
        if split not in loaded:
            if not isinstance(given, str | Path):
                raise ConfigError(
                    f"split: expected one of {', '.join(loaded)}, which are loaded, found {split}"
                )
            loaded[split] = read_question_set(
                Path(given), split, form=settings.form, variant=settings.variant
            )
        return loaded[split]

    return read


def _check_index(questions: QuestionSet, settings: QuestionSettings) -> None:
    """Make sure that a set without pools comes with an index, and no other."""
    if questions.corpus and settings.index is None:
        raise ConfigError(
            f"{questions.name}: the set has no pools of candidates, so the whole corpus is ranked; "
            "name a folder for an index of it with --index FOLDER, which is created if there is "
            "none"
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
    """What systems share; the index of a set without pools is open and complete meanwhile."""
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
            _complete(index, first, progress, notify)
            depth = settings.data.depth
            corpus = CorpusSearch(index, SearchSettings(k=depth, depth=depth))
        models = settings.models or Path(stack.enter_context(TemporaryDirectory()))
        yield Resources(read, first, settings, corpus, models, progress, notify, query_map)


def _complete(index: Index, questions: QuestionSet, progress: Progress, notify: Notify) -> None:
    reader = CorpusReader(list(questions.corpus))
    documents = len(index)
    if documents:
        found = index.difference(reader)
        if found.foreign:
            corpus = " ".join(map(str, questions.corpus))
            raise ConfigError(
                f"{index.store}: expected an index of {corpus} alone, found {found.foreign:,} of "
                f"its {documents:,} documents that are not among the {found.corpus:,} of the "
                "corpus; name another folder, or make this index again with `retriever index "
                f"{corpus} -i {index.store} --recreate`"
            )
        if not found.missing and not found.changed:
            return
        notify(
            f"note: {index.store}: {found.missing:,} documents of the corpus were missing and "
            f"{found.changed:,} had changed; they are indexed now"
        )
    index.add(reader, progress=_IndexingStage(progress))
    if reader.generated_ids is not None:
        notify(f"note: {reader.generated_ids}")
    if reader.empty:
        notify(f"warning: {reader.empty:,} documents of the corpus have no text and are left out")


class _IndexingStage(NoProgress):
    """The progress of indexing as a stage, whose number of passages is not known."""

    def __init__(self, progress: Progress) -> None:
        self._done = progress("indexing passages", None)

    def encoded(self, passages: int, pieces: int) -> None:
        """Count passages."""
        self._done(passages)


class CorpusSearch:
    """Ranks the whole corpus of an index for questions; `k` hits for each."""

    def __init__(self, index: Index, settings: SearchSettings) -> None:
        self.index = index
        self.depth = settings.k
        self._settings = settings
        self._candidates: dict[tuple[str, ...], list[ScoredPassages]] = {}

    def ranked(self, questions: QuestionSet, mode: Mode) -> Ranked:
        """The first `depth` hits of each question by one component."""
        texts = [one.text for one in questions.questions]
        found = self.index.rank(texts, replace(self._settings, mode=mode))
        return ranked(questions.questions, list(found))

    def fused(self, questions: QuestionSet, fusion: FusionSettings) -> Ranked:
        """The first hits by both components; the corpus is searched once for all fusions."""
        texts = tuple(one.text for one in questions.questions)
        if texts not in self._candidates:
            self._candidates[texts] = [
                found
                for start in range(0, len(texts), _QUERIES_AT_ONCE)
                for found in self.index.candidates(
                    texts[start : start + _QUERIES_AT_ONCE], self._settings
                )
            ]
        fusion = fusion.completed(self.index.default_weight)
        found = [_best_documents(one, fusion, self.depth) for one in self._candidates[texts]]
        return ranked(questions.questions, found)

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """The same questions with hits as pools, and whole relevant documents that are no hits."""
        texts = [one.text for one in questions.questions]
        found = self.index.search_many(texts, self._settings)
        passages: dict[str, str] = {}
        shown: dict[tuple[str, str], str] = {}
        pooled = []
        for question, hits in zip(questions.questions, found, strict=True):
            for hit in hits:
                text = _titled(hit.title, hit.passage)
                if passages.setdefault(hit.id, text) != text:
                    shown[question.id, hit.id] = text
            ids = sorted((hit.id for hit in hits), reverse=True)
            pooled.append(replace(question, candidates=tuple(ids)))
        relevant = {id_ for question in questions.questions for id_ in relevant_ids(question)}
        wanted = relevant - passages.keys()
        if wanted:
            passages |= {id_: text for id_, text in corpus_texts(questions) if id_ in wanted}
        return replace(questions, questions=tuple(pooled), passages=passages, shown=shown)


def _best_documents(
    candidates: ScoredPassages, fusion: FusionSettings, depth: int
) -> list[tuple[str, float]]:
    """Return ids and scores of the first `depth` documents; equal scores are ordered by id."""
    scores = fuse(candidates.dense, candidates.bm25, candidates.matches, fusion).tolist()
    best = best_passages(scores, candidates.documents, range(len(scores)))
    return [(id_, scores[position]) for id_, position in islice(best.items(), depth)]


def ranked(questions: Sequence[Question], hits: Sequence[Sequence[tuple[str, float]]]) -> Ranked:
    """Questions with these (document, score) as candidates, in `Question`'s order; the scores."""
    pools = []
    scores = []
    for question, found in zip(questions, hits, strict=True):
        descending = sorted(found, reverse=True)
        pools.append(replace(question, candidates=tuple(id_ for id_, _ in descending)))
        scores += [score for _, score in descending]
    return tuple(pools), np.array(scores, np.float64)


def corpus_texts(questions: QuestionSet) -> Iterator[tuple[str, str]]:
    """The id and the text, after its title, of each document of a set's corpus."""
    for document in CorpusReader(list(questions.corpus)):
        yield document.id, _titled(document.title, document.text)


def _titled(title: str | None, text: str) -> str:
    return f"{title} {text}" if title else text


@dataclass(eq=False)
class Resources:
    """What is read, computed or loaded when a system first needs it, and kept."""

    read: Callable[[str], QuestionSet]
    # The split to rank, as it was read: without pools where the whole corpus is ranked.
    questions: QuestionSet
    settings: QASettings
    corpus: CorpusSearch | None
    models: Path
    progress: Progress
    notify: Notify
    query_map: QueryMap | None = None
    # Lines on the split to rank, such as on models that did not read the end of its texts.
    remarks: list[str] = field(default_factory=list)
    _together: tuple[str, ...] = ()
    _encoders: dict[str, Encoder] = field(default_factory=dict)
    _indexes: list[tuple[Mapping[str, str], PoolBM25]] = field(default_factory=list)
    _kept: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def _once(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        if key not in self._kept:
            self._kept[key] = make()
        found: _T = self._kept[key]
        return found

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """The questions with pools, which are the hits of an index where the set has none."""
        corpus = self.corpus
        if corpus is None:
            return questions
        return self._once(("pools", _key(questions)), lambda: corpus.pools(questions))

    @cached_property
    def dev_questions(self) -> QuestionSet:
        """The questions with a relevant passage that weights are chosen on, as they were read."""
        if self.settings.data.dev_share is not None:
            return self._divided[1]
        return self.read(self.settings.data.dev_split).answered()

    @cached_property
    def dev(self) -> DevScore:
        """Scores trained systems on dev."""
        return DevScore(self.pools(self.dev_questions))

    @cached_property
    def _divided(self) -> tuple[QuestionSet, QuestionSet]:
        data = self.settings.data
        return hold_out(self.read(data.train_split), data.dev_share or 0)

    @cached_property
    def train_questions(self) -> QuestionSet:
        """The questions with pools that systems are trained on."""
        data = self.settings.data
        read = self.read(data.train_split) if data.dev_share is None else self._divided[0]
        questions = self.pools(read)
        if not data.without:
            return questions
        kept = without_overlap(questions, [one for path in data.without for one in _tested(path)])
        self.notify(
            f"note: {questions.name}: left out {len(questions) - len(kept):,} of "
            f"{len(questions):,} questions, which overlap with {', '.join(map(str, data.without))}"
        )
        return kept

    def training_set(self, negatives: NegativeSource) -> TrainingSet:
        """The data that systems are trained on."""

        def make() -> TrainingSet:
            train = self.train_questions
            return training_set(train, negatives, lambda: self._bm25(train))

        return self._once(("training", negatives), make)

    @property
    def model(self) -> str | None:
        """The model that the evaluation names."""
        return parse_encoder(self.settings.encoder).model

    def encoder(self, text: str = "") -> Encoder:
        """The encoder of a text form; that of the evaluation, or of its index, if it is empty."""
        return self._group(text)[text or self.settings.encoder]

    def form(self, encoder: str) -> str:
        """The text form with a model: settings alone are of that of the evaluation or its index."""
        if not encoder.startswith("::"):
            return encoder
        model = self.model
        if model is None and self.corpus is not None:
            model = self.corpus.index.encoder_spec.model
            require_asked(model, None)
        return over_model(encoder, model or DEFAULT_MODEL)

    def share(self, encoders: Iterable[str]) -> None:
        """Let encoders of one model share its passes, by their text forms, which may be empty."""
        forms = dict.fromkeys(one or self.settings.encoder for one in encoders)
        if self.corpus is not None:
            forms.pop(self.settings.encoder, None)
        self._together = tuple(forms)

    def _group(self, text: str) -> Mapping[str, Encoder]:
        """An encoder, and those of the evaluation that are of the same model, by text form."""
        text = text or self.settings.encoder
        if self.corpus is not None and text == self.settings.encoder:
            return {text: self.corpus.index.encoder}
        model = parse_encoder(text).model or DEFAULT_MODEL
        forms = [
            one for one in self._together if (parse_encoder(one).model or DEFAULT_MODEL) == model
        ]
        if text not in forms:
            forms = [text]
        if text not in self._encoders:
            loading = self.settings.loading
            several = len(forms) > 1
            loaded = loading.load_together(forms) if several else [loading.load(text)]
            self._encoders |= zip(forms, loaded, strict=True)
        return {one: self._encoders[one] for one in forms}

    def pairs(self, questions: QuestionSet, encoder: str = "") -> EmbeddedPairs:
        """The vectors of questions with pools."""
        key = _key(questions)
        encoder = encoder or self.settings.encoder
        if ("pairs", key, encoder) not in self._kept:
            group = self._group(encoder)
            cache = self.settings.loading.cache
            found = embed_pairs(list(group.values()), questions, cache, self.progress)
            for (form, model), pairs in zip(group.items(), found, strict=True):
                self._kept["pairs", key, form] = pairs
                if pairs.cut:
                    what = f"{model.spec}: the end of {pairs.cut:,} texts"
                    self._note_cut(what, questions, model.spec.max_length)
        kept: EmbeddedPairs = self._kept["pairs", key, encoder]
        return kept

    def lexical(self, questions: QuestionSet) -> tuple[Floats, NDArray[np.bool_]]:
        """(pairs,) BM25 of questions with pools, and (pairs,) which pairs share a term."""
        return self._once(
            ("lexical", _key(questions)), lambda: self._bm25(questions).scores(questions.questions)
        )

    def cosines(self, questions: QuestionSet, encoder: str) -> Floats:
        """(pairs,) cosines of questions with pools, with the query map if there is one."""
        pairs = self.pairs(questions, encoder)
        if self.query_map is not None:
            self.query_map.check(self.encoder(encoder).spec)
            pairs = replace(pairs, questions=self.query_map(pairs.questions))
        return pairs.cosines()

    def components(self, questions: QuestionSet, encoder: str) -> ComponentScores:
        """Both scores of the pairs of questions with pools."""
        dense = self.cosines(questions, encoder)
        sizes = tuple(len(one.candidates) for one in questions.questions)
        return ComponentScores(sizes, dense, *self.lexical(questions))

    def cross_scores(self, name: str, folder: Path, questions: QuestionSet) -> Floats:
        """(pairs,) scores of questions with pools by a saved cross-encoder of a unique name."""

        def make() -> Floats:
            model = load_cross_encoder(folder, device=self.settings.loading.device)
            left, right = questions.pairs()
            done = self.progress(f"scoring {questions.split} with {folder.name}", len(left))
            scores = model.score(left, right, done)
            if model.cut:
                what = f"{folder.name}: the end of {model.cut:,} of {len(left):,} pairs"
                self._note_cut(what, questions, model.max_length)
            return scores.astype(np.float64)

        return self._once(("cross", name, _key(questions)), make)

    def _note_cut(self, what: str, questions: QuestionSet, window: int) -> None:
        """Say that texts lost their ends, also in the report if they are those to rank."""
        line = (
            f"{what} of {questions.split} was not read: they are longer than the window of "
            f"{window} word pieces"
        )
        self.notify(f"warning: {line}")
        if questions.split == self.questions.split:
            self.remarks.append(line)

    @cached_property
    def rank_bm25(self) -> RankBM25:
        """The package rank-bm25 over all passages of the set, or over its whole corpus."""
        questions = self.questions
        texts = dict(corpus_texts(questions)) if questions.corpus else questions.passages
        return RankBM25(texts, self._analyzer)

    @property
    def _analyzer(self) -> Analyzer:
        return Analyzer() if self.corpus is None else self.corpus.index.analyzer

    def _bm25(self, questions: QuestionSet) -> PoolBM25:
        # Splits with the same passages share their statistics. Ids are not enough: some data sets
        # number the passages of each split from 1.
        for passages, found in self._indexes:
            if passages == questions.passages:
                return found
        made = PoolBM25(questions.passages, self._analyzer)
        self._indexes.append((questions.passages, made))
        return made


def _tested(path: Path) -> list[QuestionSet]:
    """The splits of a set that must not be trained on: dev and test, as many as there are."""
    splits = [one for one in splits_of(path) if not one.startswith("train")]
    if not splits:
        raise SourceError(
            f"{path}: expected a split that is not for training, to leave out what it has, found "
            "none; name another set with --without"
        )
    return [read_question_set(path, split) for split in splits]


def _key(questions: QuestionSet) -> tuple[str, ...]:
    """Distinguishes parts of a set: a split, its questions with answers, those held out."""
    return (questions.split, *(question.id for question in questions.questions))
