"""The search over pipelines: knob after knob, for several divisions of the questions.

A division sees the values of its training questions alone. The search turns one knob after the
other, in the order of `KNOBS`. It keeps a value if the mean over the training questions rises by
more than two standard errors of the rise. Values that need new vectors are tried on a sample of
the documents first, and the best third of them on all (successive halving, Jamieson and Talwalkar
2016). A reranker is tried behind the best pipeline so far: the other knobs see rankings without
it. All divisions advance together, so that they are equally far when the budget ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.metrics.comparison import SIGNIFICANT
from eval.metrics.significance import randomization_test
from eval.qa.pools import Floats
from eval.settings import Resampling, TuneSettings
from eval.tuning.budget import OutOfTimeError
from eval.tuning.collection import QuestionMask
from eval.tuning.evaluation import Evaluator
from eval.tuning.knobs import KNOBS, RANKING, RANKINGS, Knob, turned_knobs
from eval.tuning.pipeline import Pipeline
from eval.tuning.result import MeasuredPipeline
from retriever.encoders import parse_encoder
from retriever.errors import BadInputError, ConfigError

# Documents and questions of the sample on which expensive values are tried first.
SMALL_DOCUMENTS = 1_000
SMALL_QUESTIONS = 300
_ROUNDS = 3
_LAYER_SETS = 6
# By one standard error, k1, b and weight chosen on half of SciFact's questions were worse than the
# defaults on the other half in 24% of 300 divisions, by two in 1%; TrecQA gains 0.9 instead of 1.1.
_ERRORS = 2
# One-sided level of the test that a simpler pipeline is no worse.
_LEVEL = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """(questions,) masks of the questions that choose settings, and of those that test them."""

    training: QuestionMask
    test: QuestionMask


def divide_into_folds(questions: int, folds: int, seed: int) -> list[Division]:
    """Return a division for each fold, which tests on it, and one that trains on all questions."""
    fold = np.random.default_rng(seed).permutation(questions) % folds
    divisions = [Division(fold != number, fold == number) for number in range(folds)]
    return [*divisions, Division(np.ones(questions, np.bool_), np.zeros(questions, np.bool_))]


@dataclass(eq=False)
class PipelineSearch:
    """A search over pipelines, which can be continued.

    Attributes:
        full: evaluates on all documents.
        small: evaluates on a sample of the documents if there are many.
        divisions: which questions choose and test settings.
        defaults: the pipeline from which the search starts.
        settings: limits, and encoders and reranker to try.
        ended: whether the budget ended before the search did.
        best: the best pipeline so far for each division.
        tried: pipelines of the last division that were evaluated on all documents, each with its
            best ranking.
    """

    full: Evaluator
    small: Evaluator | None
    divisions: Sequence[Division]
    defaults: Pipeline
    settings: TuneSettings
    ended: bool = False

    def __post_init__(self) -> None:
        self.best = [self.defaults for _ in self.divisions]
        self.tried: dict[Pipeline, MeasuredPipeline] = {}
        self._named_values: dict[str, tuple[tuple[Any, ...], ...]] = {
            "encoder": tuple((parse_encoder(encoder),) for encoder in self.settings.encoders),
            "reranker": ((None,), (self.settings.rerank,)),
        }
        # Number of knobs turned in all rounds.
        self._turned = 0
        self._best_before_round: list[Pipeline] = []
        # The least cost of all pipelines that were measured, by limit.
        self._least_costs: dict[str, float] = {}

    def run(self) -> None:
        """Search until no knob helps any division, or the budget ends; call again to continue."""
        self.ended = False
        try:
            while self._turned < _ROUNDS * len(KNOBS):
                number, position = divmod(self._turned, len(KNOBS))
                if position == 0:
                    if self.best == self._best_before_round:
                        return
                    self._best_before_round = list(self.best)
                knob = KNOBS[position]
                if not (knob.corpus_only and self.full.collection.pooled):
                    self._turn_knob(knob, first_round=number == 0)
                self._turned += 1
        except OutOfTimeError:
            self.ended = True

    def _turn_knob(self, knob: Knob, *, first_round: bool) -> None:
        if knob.cost == "vectors" and not first_round:
            return
        for number, (best, division) in enumerate(zip(self.best, self.divisions, strict=True)):
            if knob is RANKING:
                self._consider(number, [best])
                continue
            if knob.cost == "reranker":
                self._consider_reranker(number)
                continue
            values = knob.values or self._named_values.get(knob.name)
            if values is None:
                values = self.full.layers.choices(best, division.training, _LAYER_SETS)
            options = list(knob.choices(best, values))
            if knob.cost == "vectors" and self.small is not None:
                options = self._promising(number, options, self.small)
            self._consider(number, options, strict=knob.cost == "map")

    def _promising(self, number: int, options: list[Pipeline], small: Evaluator) -> list[Pipeline]:
        """Return the best third of the options on a sample, without those that do not help."""
        training = self.divisions[number].training[small.collection.rows]

        def quality(pipeline: Pipeline) -> float:
            return float(small.table(pipeline, training)[:, training].mean(axis=1).max())

        before = quality(self.best[number])
        best_fits = self.fits(self.best[number])
        gains: list[tuple[float, int, Pipeline]] = []
        for option in filter(self._fits_in_a_mode, options):
            gain = quality(option) - before
            if gain > 0 or not best_fits:
                gains.append((-gain, len(gains), option))
        return [option for _, _, option in sorted(gains)[: max(1, len(options) // 3)]]

    def _consider(self, number: int, options: Sequence[Pipeline], *, strict: bool = False) -> None:
        """Replace the best pipeline of a division by an option that is better.

        Each option takes its best ranking within the limits. A strict choice needs a significant
        rise. If the best pipeline so far is above a limit, the best option within replaces it.
        """
        training = self.divisions[number].training
        rerank = self.best[number].rerank
        best = self.best[number].put(rerank=None)
        before = self.full.values(best, training)[training]
        best_fits = self.fits(self.best[number])
        highest = float(before.mean()) if best_fits else -math.inf
        for option in filter(self._fits_in_a_mode, options):
            table = self.full.table(option, training)[:, training]
            row = self._best_ranking(option, table, rerank)
            if row is None:
                continue
            pipeline = _with_ranking(option, row)
            mean = float(table[row].mean())
            if number == len(self.divisions) - 1:
                self.tried[pipeline] = self.measure_costs(pipeline, mean)
            if mean > highest and (
                not best_fits or self._rises(table[row] - before, strict=strict)
            ):
                best = pipeline
                highest = mean
        self.best[number] = best.put(rerank=rerank)

    def _best_ranking(self, option: Pipeline, table: Floats, rerank: str | None) -> int | None:
        """Return the row of the best ranking within the limits, if any is."""
        for row in np.argsort(-table.mean(axis=1), kind="stable").tolist():
            if self.fits(_with_ranking(option, row).put(rerank=rerank)):
                return int(row)
        return None

    def _consider_reranker(self, number: int) -> None:
        """Put the reranker behind the best pipeline of a division if it helps, else remove it."""
        training = self.divisions[number].training
        best = self.best[number].put(rerank=None)
        option = best.put(rerank=self.settings.rerank)
        if option != best and self.fits(option):
            before = self.full.values(best, training)[training]
            after = self.full.values(option, training)[training]
            if number == len(self.divisions) - 1:
                self.tried[option] = self.measure_costs(option, float(after.mean()))
            if self._rises(after - before, strict=False):
                best = option
        self.best[number] = best

    def _rises(self, differences: Floats, *, strict: bool) -> bool:
        """Return whether the mean is more than two standard errors above 0, or significantly."""
        mean = float(differences.mean())
        resampling = self.settings.resampling
        if strict:
            p = randomization_test(differences, resampling.resamples, resampling.seed)
            return mean > 0 and p < SIGNIFICANT
        return mean > _ERRORS * float(differences.std(ddof=1)) / math.sqrt(len(differences))

    def measure_costs(self, pipeline: Pipeline, quality: float) -> MeasuredPipeline:
        """Return a pipeline with its quality, latency and size."""
        costs = self.full.costs
        latency = costs.milliseconds(pipeline)
        return MeasuredPipeline(pipeline, quality, latency, costs.megabytes(pipeline))

    def fits(self, pipeline: Pipeline) -> bool:
        """Return whether a pipeline is possible, and within the limits of size and latency."""
        try:
            self.full.encoders.spec(pipeline.encoder)
        except ConfigError:
            # Such as a longer window than the model reads.
            return False
        for name, limit, measure in (
            ("max-size", self.settings.max_size, self.full.costs.megabytes),
            ("max-latency", self.settings.max_latency, self.full.costs.milliseconds),
        ):
            if limit is not None:
                cost = measure(pipeline)
                key = f"{name} {limit:g}"
                self._least_costs[key] = min(cost, self._least_costs.get(key, cost))
                if cost > limit:
                    return False
        return True

    def _fits_in_a_mode(self, pipeline: Pipeline) -> bool:
        modes = ("hybrid", "bm25", "dense")
        return any(self.fits(pipeline.put(**{"search.mode": mode})) for mode in modes)

    def check_limits(self) -> None:
        """Raise BadInputError if a division has no pipeline within the limits."""
        if not all(map(self.fits, self.best)):
            limits = " and ".join(
                f"{limit} (least: {cost:.3g})" for limit, cost in self._least_costs.items()
            )
            raise BadInputError(f"expected settings within {limits}, found none; raise the limit")


def _with_ranking(pipeline: Pipeline, row: int) -> Pipeline:
    """Return the pipeline with the ranking of a row of a table, without a reranker."""
    return RANKING.set_value(pipeline, RANKINGS[row]).put(rerank=None)


def is_no_worse(differences: Floats, margin: float, resampling: Resampling) -> bool:
    """Return whether a mean difference is above -`margin`, by a one-sided test at 5%."""
    shifted = differences + margin
    p = randomization_test(shifted, resampling.resamples, resampling.seed)
    return bool(shifted.mean() > 0 and p / 2 < _LEVEL)


def simplify(search: PipelineSearch, best: Pipeline, training: QuestionMask) -> Pipeline:
    """Return the pipeline with the fewest knobs turned that is no worse than the best one.

    The knobs that cost least are reset first, as long as the result is within the margin and the
    limits.
    """
    evaluator = search.full
    settings = search.settings
    best_values = evaluator.values(best, training)[training]
    margin = settings.margin / 100
    simple = best
    while turned := turned_knobs(simple, search.defaults):
        options: list[tuple[float, int, Pipeline]] = []
        for knob in turned:
            option = reset_knob(knob, simple, search.defaults)
            if search.fits(option):
                mean = float(evaluator.values(option, training)[training].mean())
                options.append((mean, -len(options), option))
        if not options:
            return simple
        _, _, option = max(options)
        differences = evaluator.values(option, training)[training] - best_values
        if not is_no_worse(differences, margin, settings.resampling):
            return simple
        simple = option
    return simple


def reset_knob(knob: Knob, pipeline: Pipeline, defaults: Pipeline) -> Pipeline:
    """Return the pipeline with a knob as in the defaults."""
    return knob.set_value(pipeline, knob.value(defaults))
