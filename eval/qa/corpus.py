"""Question sets without pools of candidates: the whole corpus is ranked through an index of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from eval.datasets.question_set import Question, QuestionSet
from eval.progress import Notify, Progress
from eval.qa.scores import Floats
from retriever import Mode, SearchSettings, Store
from retriever.documents.reader import CorpusReader
from retriever.encoders.loading.choice import ModelChoice
from retriever.errors import ConfigError
from retriever.index import Index
from retriever.search import BM25Settings
from retriever.search.engine import ScoredPassages
from retriever.search.fusion import FusionSettings, fuse

_QUERIES_AT_ONCE = 256

Ranked = tuple[tuple[Question, ...], Floats]
"""Questions with what was ranked for them as candidates, and (pairs,) scores."""


@contextmanager
def open_corpus(
    folder: Path | Store,
    questions: QuestionSet,
    choice: ModelChoice,
    depth: int,
    bm25: BM25Settings,
    progress: Progress,
    notify: Notify,
) -> Iterator[CorpusSearch]:
    """The index of a set's corpus: created if there is none, and completed where it differs.

    Args:
        folder: of the index, or another store.
        questions: of the set, whose corpus is compared with the index.
        choice: the encoder; where the index exists, only what it was made with.
        depth: number of hits per question.
        bm25: variant and parameters.
        progress: of indexing.
        notify: what a person should know.

    Raises:
        ConfigError: the index holds documents that the corpus does not have.
        What `Index.create` and `Index.add` raise.
    """
    with Index.create(
        folder, choice.encoder, device=choice.device, download=choice.download
    ) as index:
        _complete(index, questions, progress, notify)
        yield CorpusSearch(index, depth, bm25)


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
    index.add(reader, progress=_Stage(progress("indexing passages", None)))
    if reader.generated_ids is not None:
        notify(f"note: {reader.generated_ids}")
    if reader.empty:
        notify(f"warning: {reader.empty:,} documents of the corpus have no text and are left out")


class _Stage:
    """Shows the progress of indexing as a stage."""

    def __init__(self, done: Callable[[int], object]) -> None:
        self._done = done

    def window(self, passages: int) -> None:
        """Do nothing: the number of all passages is not known."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Count passages."""
        self._done(passages)


class CorpusSearch:
    """Ranks the whole corpus for the questions of a set.

    Args:
        index: of the corpus, with the documents' own ids.
        depth: number of hits per question, at least 1.
        bm25: variant and parameters.
    """

    def __init__(self, index: Index, depth: int, bm25: BM25Settings | None = None) -> None:
        self.index = index
        self.depth = depth
        self._settings = SearchSettings(k=depth, depth=depth, bm25=bm25 or BM25Settings())
        self._candidates: dict[tuple[str, ...], list[_Candidates]] = {}

    def ranked(self, questions: QuestionSet, mode: Mode) -> Ranked:
        """The first `depth` hits of each question by one component."""
        texts = [one.text for one in questions.questions]
        found = self.index.search_many(texts, replace(self._settings, mode=mode))
        return ranked(
            questions.questions,
            [[(hit.id, hit.score) for hit in hits] for hits in found],
        )

    def fused(self, questions: QuestionSet, fusion: FusionSettings) -> Ranked:
        """The first `depth` hits of each question by both components, fused in one of many ways.

        The corpus is searched once for all fusions of the same questions.
        """
        texts = tuple(one.text for one in questions.questions)
        if texts not in self._candidates:
            self._candidates[texts] = [
                _Candidates(found)
                for start in range(0, len(texts), _QUERIES_AT_ONCE)
                for found in self.index.candidates(
                    texts[start : start + _QUERIES_AT_ONCE], self._settings
                )
            ]
        found = [one.hits(fusion, self.depth) for one in self._candidates[texts]]
        return ranked(questions.questions, found)

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """The same questions with the hits of a hybrid search as pools.

        A passage is the best passage of a hit, for each question its own. A relevant document that
        was not found, which only training reads, is its whole text. BM25 of these pools reads the
        passage of the first question that found the document.
        """
        texts = [one.text for one in questions.questions]
        found = self.index.search_many(texts, self._settings)
        passages: dict[str, str] = {}
        shown: dict[tuple[str, str], str] = {}
        pooled = []
        for question, hits in zip(questions.questions, found, strict=True):
            for hit in hits:
                text = _text(hit.title, hit.passage)
                if passages.setdefault(hit.id, text) != text:
                    shown[question.id, hit.id] = text
            ids = sorted((hit.id for hit in hits), reverse=True)
            pooled.append(replace(question, candidates=tuple(ids)))
        wanted = {
            id_
            for question in questions.questions
            for id_, grade in question.grades.items()
            if grade >= 1 and id_ not in passages
        }
        if wanted:
            passages |= {id_: text for id_, text in corpus_texts(questions) if id_ in wanted}
        return replace(questions, questions=tuple(pooled), passages=passages, shown=shown)


class _Candidates:
    """The candidates of a question, with passages gathered by document."""

    def __init__(self, found: ScoredPassages) -> None:
        self._found = found
        self._documents, self._places = np.unique(
            np.array(found.documents, object), return_inverse=True
        )

    def hits(self, fusion: FusionSettings, depth: int) -> list[tuple[str, float]]:
        """The best documents, each by its best passage; equal ones by id."""
        found = self._found
        best = np.full(len(self._documents), -np.inf)
        np.maximum.at(best, self._places, fuse(found.dense, found.bm25, found.matches, fusion))
        # Documents are sorted by id, and the sort is stable.
        order = np.argsort(-best, kind="stable")[:depth]
        return [(str(self._documents[place]), float(best[place])) for place in order]


def ranked(questions: Sequence[Question], hits: Sequence[Sequence[tuple[str, float]]]) -> Ranked:
    """Questions with these (document, score) as candidates, in `Question`'s order; the scores."""
    pools, scores = [], []
    for question, found in zip(questions, hits, strict=True):
        descending = sorted(found, reverse=True)
        pools.append(replace(question, candidates=tuple(id_ for id_, _ in descending)))
        scores += [score for _, score in descending]
    return tuple(pools), np.array(scores, np.float64)


def corpus_texts(questions: QuestionSet) -> Iterator[tuple[str, str]]:
    """The id and the text, after its title, of each document of a set's corpus."""
    for document in CorpusReader(list(questions.corpus)):
        yield document.id, _text(document.title, document.text)


def _text(title: str | None, text: str) -> str:
    return f"{title} {text}" if title else text
