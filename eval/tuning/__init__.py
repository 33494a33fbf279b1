"""Choosing the settings of a whole pipeline by questions, and saying what that is worth."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eval.datasets.question_forms import FORMS, read_question_set, splits_of
from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.measures import canonical_measures
from eval.metrics.trec import read_qrels
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.pools import Floats
from eval.settings import QuestionSettings, TuneSettings
from eval.tuning.evaluation import Collection, Evaluator, OutOfTimeError
from eval.tuning.pipeline import KNOBS, Knob, Pipeline, turned_knobs
from eval.tuning.result import FEW_QUESTIONS, TuneResult, few_questions
from eval.tuning.search import (
    SMALL_DOCUMENTS,
    SMALL_QUESTIONS,
    Chooser,
    Search,
    divided,
    set_back,
    simplest,
)
from retriever import Index, open_store
from retriever.documents import CorpusReader, Document
from retriever.encoders import DEFAULT_MODEL, parse_encoder
from retriever.errors import BadInputError, ConfigError, NotAnIndexError, SourceError

FEWEST = 20
"""Questions that a choice needs; so few tell only great differences."""
# Pipelines in the report, the best ones.
_SHOWN = 40
# Parts of the budget: until a first result is tested, and until the end of what is computed.
_SEARCH = 0.75
_WHOLE = 0.97


class _Data(NamedTuple):
    """What is chosen on: the collection, who chooses, and lines on both; the first one leads."""

    collection: Collection
    choosers: list[Chooser]
    remarks: tuple[str, ...]


def tune(
    data: str | Path,
    settings: TuneSettings | None = None,
    *,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> TuneResult:
    """Choose the settings of a pipeline by questions, and test the choice on questions unseen.

    `data` is a folder of questions in any form that `read_question_set` reads, or a corpus, or an
    index with documents; of the last two `settings` names questions and judgments, or questions are
    made from the documents. With a training and a test split, settings are chosen on the first and
    tested once on the second; otherwise questions are divided into folds, and the settings that are
    tested on a fold are chosen on the others alone.

    Raises:
        ConfigError: the measure is unknown, or settings contradict each other.
        SourceError: a file cannot be read.
        BadInputError: there are fewer than 20 questions with a relevant document in the corpus, or
            the defaults alone exceed the budget, or nothing is within the limits.
        What `Encoder.load` and `load_reranker` raise.
    """
    start = time.monotonic()
    settings = settings or TuneSettings()
    encoders = settings.encoders or (DEFAULT_MODEL,)
    settings = replace(settings, encoders=encoders)
    if settings.measure is not None:
        (measure,) = canonical_measures([settings.measure])
    read = _read(Path(data), settings, progress, notify)
    collection = read.collection
    if settings.measure is None:
        measure = "AP" if collection.pooled else "nDCG@10"
    notify(read.remarks[0])
    tested = sum(int(chooser.test.sum()) for chooser in read.choosers)
    if tested < FEW_QUESTIONS:
        notify(few_questions(tested))
    full = Evaluator(collection, measure, settings.loading, progress)
    small = None
    if len(collection.documents) > 2 * SMALL_DOCUMENTS:
        part = collection.sample(SMALL_DOCUMENTS, SMALL_QUESTIONS)
        small = Evaluator(part, measure, settings.loading, progress)
    evaluators = [one for one in (full, small) if one is not None]
    if settings.rerank is not None:
        full.reranker(settings.rerank)

    def until(share: float) -> None:
        for one in evaluators:
            one.deadline = start + 60 * settings.minutes * share

    until(_WHOLE)
    try:
        defaults = Pipeline(parse_encoder(encoders[0]))
        defaults = defaults.put(**{"search.fusion.alpha": full.default_weight(defaults)})
        full.table(defaults, read.choosers[-1].training)
    except OutOfTimeError:
        raise BadInputError(
            f"minutes: the default settings alone take more than {settings.minutes:g}; name more, "
            "or run the same command again, which continues from its cache"
        ) from None
    search = Search(full, small, read.choosers, defaults, settings)
    share = _SEARCH
    while True:
        until(share)
        progress("turning knobs", None)
        search.run()
        until(_WHOLE)
        begun = time.monotonic()
        result = _tested(search, read, measure)
        seconds = time.monotonic() - start
        # What the test took tells how much longer the search may go on before the next test.
        share = _WHOLE - 2 * (time.monotonic() - begun) / (60 * settings.minutes)
        if not search.ended or share <= seconds / (60 * settings.minutes):
            return replace(result, seconds=seconds, settings=settings, command=command)


def _read(path: Path, settings: TuneSettings, progress: Progress, notify: Notify) -> _Data:
    if (settings.queries is None) != (settings.qrels is None):
        raise ConfigError(
            "queries and qrels: expected both or neither, found one; questions need judgments"
        )
    if settings.queries is not None and settings.qrels is not None:
        reader = CorpusReader([settings.queries], number_ids=True, on_empty="fail")
        asked = {one.id: one.text for one in reader}
        judged = read_qrels(settings.qrels)
        unknown = next((one for one in judged if one not in asked), None)
        if unknown is not None:
            raise SourceError(
                f"{settings.qrels}: expected judgments of the questions in {settings.queries}, "
                f"found {unknown!r}; add it there or remove its lines"
            )
        questions = [Question(one, text, (), judged.get(one, {})) for one, text in asked.items()]
        return _folded(path.name, _documents(path), questions, settings)
    if path.is_dir() and not _is_index(path):
        try:
            splits = splits_of(path)
        except SourceError:
            # A folder of documents may have one such file.
            if any(len(one.needs) - len(one.missing(path)) > 1 for one in FORMS.values()):
                raise
            splits = ()
        if splits:
            return _question_set(path, splits, settings)
    from eval.questions import make_questions

    made = make_questions(_documents(path), progress=progress, notify=notify)
    found = _folded(path.name, made.documents, made.questions.questions, settings)
    lead = (
        f"no judgments: settings are chosen by {len(found.collection.questions):,} questions made "
        "from the documents"
    )
    return found._replace(remarks=(lead, *made.remarks, *found.remarks))


def _is_index(path: Path) -> bool:
    try:
        return path.is_dir() and open_store(path).exists()
    except NotAnIndexError:
        return False


def _documents(path: Path) -> list[Document]:
    if _is_index(path):
        with Index.open(path) as index:
            return list(index)
    return list(CorpusReader([path]))


def _folded(
    name: str, documents: Sequence[Document], questions: Sequence[Question], settings: TuneSettings
) -> _Data:
    kept = _answered(questions, {one.id for one in documents}, settings)
    collection = Collection.of(name, documents, kept, pooled=any(one.candidates for one in kept))
    lead = (
        f"{name}: settings are chosen by {len(kept):,} questions; what is said of them is measured "
        f"on {settings.folds} parts of these, each with settings chosen on the others"
    )
    choosers = divided(len(kept), settings.folds, settings.resampling.seed)
    return _Data(collection, choosers, (lead,))


def _question_set(path: Path, splits: Sequence[str], settings: TuneSettings) -> _Data:
    data = settings.data
    usual = QuestionSettings()
    named = {data.train_split: usual.train_split, data.dev_split: usual.dev_split}
    chosen = [one for one, default in named.items() if one in splits or one != default]
    tested = [one for one in splits if one not in chosen and not one.startswith("train")]
    sets = {
        split: read_question_set(path, split, form=data.form, variant=data.variant)
        for split in [*chosen, *tested]
    }
    first = next(iter(sets.values()))
    documents, renamed = _passages(sets)
    known = {one.id for one in documents}
    if not chosen or not tested:
        questions = [one for split in sets for one in renamed[split]]
        return _folded(first.name, documents, questions, settings)
    training, test = (
        _answered([one for split in part for one in renamed[split]], known, settings)
        for part in (chosen, tested)
    )
    questions = [*training, *test]
    pooled = any(one.candidates for one in questions)
    collection = Collection.of(first.name, documents, questions, pooled)
    seen = np.arange(len(questions)) < len(training)
    lead = (
        f"{first.name}: settings are chosen on {len(training):,} questions of "
        f"{' and '.join(chosen)}, and tested once on {len(test):,} of {' and '.join(tested)}"
    )
    return _Data(collection, [Chooser(seen, ~seen)], (lead,))


def _passages(sets: Mapping[str, QuestionSet]) -> tuple[list[Document], dict[str, list[Question]]]:
    """The documents of all splits, and their questions; ids of passages that splits give to
    different texts have the split before them.
    """
    first = next(iter(sets.values()))
    renamed = {split: list(one.questions) for split, one in sets.items()}
    if first.corpus:
        return list(CorpusReader(list(first.corpus))), renamed
    if all(one.passages == first.passages for one in sets.values()):
        return [Document(id_, text) for id_, text in first.passages.items()], renamed
    documents = []
    for split, one in sets.items():
        documents += [Document(f"{split} {id_}", text) for id_, text in one.passages.items()]
        renamed[split] = [
            replace(
                question,
                id=f"{split} {question.id}",
                candidates=tuple(f"{split} {id_}" for id_ in question.candidates),
                grades={f"{split} {id_}": grade for id_, grade in question.grades.items()},
            )
            for question in one.questions
        ]
    return documents, renamed


def _answered(
    questions: Sequence[Question], known: set[str], settings: TuneSettings
) -> list[Question]:
    """The questions with a relevant document, at most as many as settings say."""
    kept = [
        one
        for one in questions
        if any(grade >= 1 and id_ in known for id_, grade in one.grades.items())
    ]
    if len(kept) < FEWEST:
        raise BadInputError(
            f"expected at least {FEWEST} questions with a relevant document in the corpus, found "
            f"{len(kept)}; add judgments, check that they have the ids of the corpus, or leave "
            "them out to make questions"
        )
    if len(kept) > settings.questions:
        random = np.random.default_rng(settings.resampling.seed)
        rows = np.sort(random.permutation(len(kept))[: settings.questions])
        kept = [kept[row] for row in rows]
    return kept


def _tested(search: Search, read: _Data, measure: str) -> TuneResult:
    """What the choices are worth on questions that they have not seen."""
    full = search.full
    settings = search.settings
    defaults = search.defaults
    simple = []
    remarks = list(read.remarks)
    for chooser, best in zip(search.choosers, search.found, strict=True):
        try:
            simple.append(simplest(search, best, chooser.training))
        except OutOfTimeError:
            simple.append(best)
            search.ended = True
    turned = [knob for best in search.found for knob in turned_knobs(best, defaults)]
    values = {
        "defaults": _unseen(full, search.choosers, [defaults] * len(simple)),
        "tuned": _unseen(full, search.choosers, search.found),
        "simplest": _unseen(full, search.choosers, simple),
    }
    without: dict[str, Floats] = {}
    for knob in KNOBS:
        if knob in turned:
            options = [_without(knob, best, defaults) for best in search.found]
            try:
                without[knob.name] = _unseen(full, search.choosers, options)
            except OutOfTimeError:
                search.ended = True
    if search.ended:
        remarks.append(
            f"the budget of {settings.minutes:g} minutes ended before the search: more may be "
            "found; the same command again continues from its cache"
        )
    # What is left describes the choice, and takes no search.
    full.deadline = math.inf
    search.check_limits()
    if not search.fits(defaults):
        remarks.append("the defaults are above the limits; the best settings within may be worse")
    best = search.found[-1]
    least = simple[-1]
    training = search.choosers[-1].training
    shown = sorted(search.tried.values(), key=lambda one: one.quality, reverse=True)
    named = dict.fromkeys([defaults, best, least])
    tried = [
        search.tried_one(one, float(full.values(one, training)[training].mean())) for one in named
    ]
    tried += [one for one in shown[:_SHOWN] if one.pipeline not in named]
    query_map = None
    if best.query_map:
        from retriever.rerankers import HeadReranker

        # It was chosen for being better.
        said = {"system": "bilinear:linear", "query_map": {"better": True}}
        trained = full.trained_map(best, np.flatnonzero(training))
        query_map = HeadReranker.of(
            full.spec(best), trained, {"data": full.collection.name, **said}
        )
    return TuneResult(
        name=read.collection.name,
        measure=measure,
        defaults=defaults,
        best=best,
        simple=least,
        values=values,
        without=without,
        tried=tuple(tried),
        query_map=query_map,
        evaluated=full.evaluated,
        remarks=tuple(remarks),
        folded=len(search.choosers) > 1,
        defaults_fit=search.fits(defaults),
    )


def _without(knob: Knob, pipeline: Pipeline, defaults: Pipeline) -> Pipeline:
    try:
        return set_back(knob, pipeline, defaults)
    except ConfigError:
        return pipeline


def _unseen(
    evaluator: Evaluator, choosers: Sequence[Chooser], pipelines: Sequence[Pipeline]
) -> Floats:
    """(questions,) values of the questions that each chooser is tested on, under its pipeline."""
    parts = [
        evaluator.values(pipeline, chooser.training)[chooser.test]
        for chooser, pipeline in zip(choosers, pipelines, strict=True)
        if chooser.test.any()
    ]
    return np.concatenate(parts)
