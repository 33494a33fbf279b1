"""Choosing the settings of a whole pipeline by questions, and testing the choice on others."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eval.metrics.measures import canonical_measures
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.pools import Floats
from eval.settings import TuneSettings
from eval.tuning.budget import Budget, OutOfTimeError
from eval.tuning.data import TuneData, read_data
from eval.tuning.evaluation import Evaluator
from eval.tuning.knobs import KNOBS, Knob, turned_knobs
from eval.tuning.pipeline import Pipeline
from eval.tuning.result import FEW_QUESTIONS, MeasuredPipeline, TuneResult, few_questions
from eval.tuning.search import (
    SMALL_DOCUMENTS,
    SMALL_QUESTIONS,
    PipelineSearch,
    reset_knob,
    simplify,
)
from retriever.encoders import DEFAULT_MODEL, parse_encoder
from retriever.errors import BadInputError, ConfigError, require_torch

if TYPE_CHECKING:
    from retriever.rerankers import HeadReranker

# Pipelines in the report, the best ones.
_SHOWN = 40
# Shares of the budget: until the first test of what was found, and until computations end.
_SEARCH_SHARE = 0.75
_WHOLE_SHARE = 0.97


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
    index with documents. For the last two `settings` names questions and judgments, or questions
    are made from the documents. With a training and a test split, settings are chosen on the first
    and tested once on the second. Otherwise questions are divided into folds, and the settings that
    are tested on a fold are chosen on the others.

    Raises:
        ConfigError: the measure is unknown, or settings contradict each other.
        SourceError: a file cannot be read.
        BadInputError: there are fewer than 20 questions with a relevant document in the corpus, or
            the defaults alone exceed the budget, or nothing is within the limits.
        MissingExtraError: torch is not installed.
        What `Encoder.load` and `load_reranker` raise.
    """
    start = time.monotonic()
    settings = settings or TuneSettings()
    settings = replace(settings, encoders=settings.encoders or (DEFAULT_MODEL,))
    measure = settings.measure
    if measure is not None:
        (measure,) = canonical_measures([measure])
    require_torch("tune, which trains maps of queries,")
    tune_data = read_data(Path(data), settings, progress, notify)
    measure = measure or ("AP" if tune_data.collection.pooled else "nDCG@10")
    _notify_questions(tune_data, notify)
    budget = Budget()
    budget.deadline = start + 60 * settings.minutes * _WHOLE_SHARE
    search = _start_search(tune_data, measure, settings, progress, budget)
    share = _SEARCH_SHARE
    while True:
        budget.deadline = start + 60 * settings.minutes * share
        progress("turning knobs", None)
        search.run()
        budget.deadline = start + 60 * settings.minutes * _WHOLE_SHARE
        test_start = time.monotonic()
        result = _test(search, tune_data, measure)
        seconds = time.monotonic() - start
        # The time of this test tells how much longer the search may go on before the next test.
        test_share = (time.monotonic() - test_start) / (60 * settings.minutes)
        share = _WHOLE_SHARE - 2 * test_share
        if not search.ended or share <= seconds / (60 * settings.minutes):
            return replace(result, seconds=seconds, settings=settings, command=command)


def _notify_questions(data: TuneData, notify: Notify) -> None:
    notify(data.remarks[0])
    tested = sum(int(division.test.sum()) for division in data.divisions)
    if tested < FEW_QUESTIONS:
        notify(few_questions(tested))


def _start_search(
    data: TuneData, measure: str, settings: TuneSettings, progress: Progress, budget: Budget
) -> PipelineSearch:
    """Evaluate the defaults, from which the search starts."""
    collection = data.collection
    full = Evaluator(collection, measure, settings.loading, progress, budget)
    small = None
    if len(collection.documents) > 2 * SMALL_DOCUMENTS:
        sample = collection.sample(SMALL_DOCUMENTS, SMALL_QUESTIONS)
        small = Evaluator(sample, measure, settings.loading, progress, budget)
    if settings.rerank is not None:
        full.reranking.load(settings.rerank)
    try:
        defaults = Pipeline(parse_encoder(settings.encoders[0]))
        defaults = defaults.put(**{"search.fusion.alpha": full.default_weight(defaults)})
        full.table(defaults, data.divisions[-1].training)
    except OutOfTimeError:
        raise BadInputError(
            f"minutes: the default settings alone take more than {settings.minutes:g}; allow "
            "more, or run the same command again, which continues from its cache"
        ) from None
    return PipelineSearch(full, small, data.divisions, defaults, settings)


def _test(search: PipelineSearch, data: TuneData, measure: str) -> TuneResult:
    """Measure what was found, on questions that the choices have not seen."""
    evaluator = search.full
    defaults = search.defaults
    simple = _simplify_all(search)
    values = {
        "defaults": _test_values(search, [defaults] * len(simple)),
        "tuned": _test_values(search, search.best),
        "simplest": _test_values(search, simple),
    }
    without = _values_without_knobs(search)
    remarks = list(data.remarks)
    if search.ended:
        remarks.append(
            f"the budget of {search.settings.minutes:g} minutes ended before the search: more may "
            "be found; the same command again continues from its cache"
        )
    # The rest describes the choice, and takes no search.
    evaluator.budget.deadline = math.inf
    search.check_limits()
    defaults_fit = search.fits(defaults)
    if not defaults_fit:
        remarks.append("the defaults are above the limits; the best settings within may be worse")
    best = search.best[-1]
    return TuneResult(
        name=data.collection.name,
        measure=measure,
        defaults=defaults,
        best=best,
        simple=simple[-1],
        values=values,
        without=without,
        tried=_measure_costs(search, [defaults, best, simple[-1]]),
        query_map=_train_query_map(search, best) if best.query_map else None,
        evaluated=evaluator.evaluated,
        remarks=tuple(remarks),
        folded=len(search.divisions) > 1,
        defaults_fit=defaults_fit,
    )


def _simplify_all(search: PipelineSearch) -> list[Pipeline]:
    """Return the simplest pipelines that are no worse; the best ones where the budget ends."""
    simple = []
    for division, best in zip(search.divisions, search.best, strict=True):
        try:
            simple.append(simplify(search, best, division.training))
        except OutOfTimeError:
            simple.append(best)
            search.ended = True
    return simple


def _values_without_knobs(search: PipelineSearch) -> dict[str, Floats]:
    """Return the test values of the best pipelines with one knob reset, by knob."""
    turned = [knob for best in search.best for knob in turned_knobs(best, search.defaults)]
    values = {}
    for knob in KNOBS:
        if knob in turned:
            pipelines = [_without_knob(knob, best, search.defaults) for best in search.best]
            try:
                values[knob.name] = _test_values(search, pipelines)
            except OutOfTimeError:
                search.ended = True
    return values


def _without_knob(knob: Knob, pipeline: Pipeline, defaults: Pipeline) -> Pipeline:
    try:
        return reset_knob(knob, pipeline, defaults)
    except ConfigError:
        return pipeline


def _test_values(search: PipelineSearch, pipelines: Sequence[Pipeline]) -> Floats:
    """Return values of the test questions of each division, under the pipeline of the division."""
    parts = [
        search.full.values(pipeline, division.training)[division.test]
        for division, pipeline in zip(search.divisions, pipelines, strict=True)
        if division.test.any()
    ]
    return np.concatenate(parts)


def _measure_costs(
    search: PipelineSearch, first: Sequence[Pipeline]
) -> tuple[MeasuredPipeline, ...]:
    """Return `first`, then the best of the other pipelines that were tried."""
    training = search.divisions[-1].training
    pipelines = dict.fromkeys(first)
    measured = []
    for pipeline in pipelines:
        quality = float(search.full.values(pipeline, training)[training].mean())
        measured.append(search.measure_costs(pipeline, quality))
    by_quality = sorted(search.tried.values(), key=lambda tried: tried.quality, reverse=True)
    measured += [tried for tried in by_quality[:_SHOWN] if tried.pipeline not in pipelines]
    return tuple(measured)


def _train_query_map(search: PipelineSearch, best: Pipeline) -> HeadReranker:
    """Train the query map of the best pipeline on all of its training questions."""
    from retriever.rerankers import HeadReranker

    evaluator = search.full
    training = np.flatnonzero(search.divisions[-1].training)
    trained = evaluator.query_maps.train(best, training)
    provenance = {
        "data": evaluator.collection.name,
        "system": "bilinear:linear",
        # The search chose it because it is better.
        "query_map": {"better": True},
    }
    return HeadReranker.of(evaluator.encoders.spec(best.encoder), trained, provenance)
