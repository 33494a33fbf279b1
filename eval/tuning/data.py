"""The documents and questions of `tune`, and which questions choose and test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eval.datasets.question_forms import FORMS, read_question_set, splits_of
from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.trec import read_qrels
from eval.progress import Notify, Progress
from eval.settings import QuestionSettings, TuneSettings
from eval.tuning.collection import JudgedCollection
from eval.tuning.search import Division, divide_into_folds
from retriever import Index, open_store
from retriever.documents import CorpusReader, Document
from retriever.errors import BadInputError, ConfigError, NotAnIndexError, SourceError

FEWEST = 20
"""Questions that a choice needs; so few show only great differences."""


class TuneData(NamedTuple):
    """A collection, and how its questions are divided."""

    collection: JudgedCollection
    divisions: list[Division]
    # Lines for the report; the first is its title.
    remarks: tuple[str, ...]


def read_data(path: Path, settings: TuneSettings, progress: Progress, notify: Notify) -> TuneData:
    """Read a folder of questions, or a corpus or an index with the questions of `settings`.

    A corpus or an index without questions gets questions that are made from its documents.
    """
    if (settings.queries is None) != (settings.qrels is None):
        raise ConfigError("queries and qrels: expected both or neither, found only one of the two")
    if settings.queries is not None and settings.qrels is not None:
        questions = _read_questions(settings.queries, settings.qrels)
        return _divide(path.name, _read_documents(path), questions, settings)
    splits = _question_splits(path)
    if splits:
        return _read_question_set(path, splits, settings)
    return _make_questions(path, settings, progress, notify)


def _read_questions(queries: Path, qrels: Path) -> list[Question]:
    reader = CorpusReader([queries], number_ids=True, on_empty="fail")
    texts = {document.id: document.text for document in reader}
    judgments = read_qrels(qrels)
    unknown = next((id_ for id_ in judgments if id_ not in texts), None)
    if unknown is not None:
        raise SourceError(
            f"{qrels}: expected judgments of the questions in {queries}, "
            f"found {unknown!r}; add it there or remove its lines"
        )
    return [Question(id_, text, (), judgments.get(id_, {})) for id_, text in texts.items()]


def _question_splits(path: Path) -> tuple[str, ...]:
    """Return the splits of a folder of questions; none if the path is something else."""
    if not path.is_dir() or _is_index(path):
        return ()
    try:
        return splits_of(path)
    except SourceError:
        # A folder of documents may have one file that is named as a file of questions.
        if any(len(form.needs) - len(form.missing(path)) > 1 for form in FORMS.values()):
            raise
        return ()


def _make_questions(
    path: Path, settings: TuneSettings, progress: Progress, notify: Notify
) -> TuneData:
    from eval.questions import make_questions

    collection = make_questions(_read_documents(path), progress=progress, notify=notify)
    questions = collection.questions.questions
    data = _divide(path.name, collection.documents, questions, settings)
    title = (
        f"no judgments: settings are chosen by {len(data.collection.questions):,} questions made "
        "from the documents"
    )
    return data._replace(remarks=(title, *collection.remarks, *data.remarks))


def _is_index(path: Path) -> bool:
    try:
        return path.is_dir() and open_store(path).exists()
    except NotAnIndexError:
        return False


def _read_documents(path: Path) -> list[Document]:
    if _is_index(path):
        with Index.open(path) as index:
            return list(index)
    return list(CorpusReader([path]))


def _divide(
    name: str, documents: Sequence[Document], questions: Sequence[Question], settings: TuneSettings
) -> TuneData:
    """Divide questions without splits into folds."""
    questions = _select_questions(questions, {document.id for document in documents}, settings)
    collection = JudgedCollection.of(name, documents, questions, _is_pooled(questions))
    title = (
        f"{name}: settings are chosen by {len(questions):,} questions; what is said of them is "
        f"measured on {settings.folds} parts of these, each with settings chosen on the others"
    )
    divisions = divide_into_folds(len(questions), settings.folds, settings.resampling.seed)
    return TuneData(collection, divisions, (title,))


def _read_question_set(path: Path, splits: Sequence[str], settings: TuneSettings) -> TuneData:
    """Read the splits to choose on and those to test on."""
    data = settings.data
    training_splits, test_splits = _select_splits(splits, data)
    sets = {
        split: read_question_set(path, split, form=data.form, variant=data.variant)
        for split in [*training_splits, *test_splits]
    }
    name = next(iter(sets.values())).name
    documents, questions_of = _merge_passages(sets)
    if not training_splits or not test_splits:
        questions = [question for split in sets for question in questions_of[split]]
        return _divide(name, documents, questions, settings)
    ids = {document.id for document in documents}
    training, test = (
        _select_questions(
            [question for split in part for question in questions_of[split]], ids, settings
        )
        for part in (training_splits, test_splits)
    )
    questions = [*training, *test]
    collection = JudgedCollection.of(name, documents, questions, _is_pooled(questions))
    is_training = np.arange(len(questions)) < len(training)
    title = (
        f"{name}: settings are chosen on {len(training):,} questions of "
        f"{' and '.join(training_splits)}, and tested once on {len(test):,} of "
        f"{' and '.join(test_splits)}"
    )
    return TuneData(collection, [Division(is_training, ~is_training)], (title,))


def _select_splits(
    splits: Sequence[str], settings: QuestionSettings
) -> tuple[list[str], list[str]]:
    """Return the splits to choose on and those to test on; a split that is named must exist."""
    usual = QuestionSettings()
    defaults = {settings.train_split: usual.train_split, settings.dev_split: usual.dev_split}
    training = [split for split, default in defaults.items() if split in splits or split != default]
    test = [split for split in splits if split not in training and not split.startswith("train")]
    return training, test


def _is_pooled(questions: Iterable[Question]) -> bool:
    return any(question.candidates for question in questions)


def _merge_passages(
    sets: Mapping[str, QuestionSet],
) -> tuple[list[Document], dict[str, list[Question]]]:
    """Return the documents of all splits, and the questions of each.

    Where splits give one id to different texts, ids of passages and questions begin with the split.
    """
    first = next(iter(sets.values()))
    questions = {split: list(question_set.questions) for split, question_set in sets.items()}
    if first.corpus:
        return list(CorpusReader(list(first.corpus))), questions
    if all(question_set.passages == first.passages for question_set in sets.values()):
        return [Document(id_, text) for id_, text in first.passages.items()], questions
    documents = []
    for split, question_set in sets.items():
        documents += [
            Document(f"{split} {id_}", text) for id_, text in question_set.passages.items()
        ]
        questions[split] = [
            replace(
                question,
                id=f"{split} {question.id}",
                candidates=tuple(f"{split} {id_}" for id_ in question.candidates),
                grades={f"{split} {id_}": grade for id_, grade in question.grades.items()},
            )
            for question in question_set.questions
        ]
    return documents, questions


def _select_questions(
    questions: Sequence[Question], document_ids: set[str], settings: TuneSettings
) -> list[Question]:
    """Return the questions with a relevant document, at most as many as the settings say."""
    answered = [
        question
        for question in questions
        if any(grade >= 1 and id_ in document_ids for id_, grade in question.grades.items())
    ]
    if len(answered) < FEWEST:
        raise BadInputError(
            f"expected at least {FEWEST} questions with a relevant document in the corpus, found "
            f"{len(answered)}; add judgments, check their document ids, or leave them out to make "
            "questions"
        )
    if len(answered) > settings.questions:
        random = np.random.default_rng(settings.resampling.seed)
        rows = np.sort(random.permutation(len(answered))[: settings.questions])
        return [answered[row] for row in rows]
    return answered
