"""The search over pipelines: knob after knob, by several choosers that see different questions.

A chooser sees the values of its training questions alone. It turns one knob after the other, in the
order of `KNOBS`, and keeps a value if the mean over its questions rises by more than two standard
errors of the rise. Values that need new vectors are tried on a part of the documents first, and the
best third of them on all (successive halving, Jamieson and Talwalkar 2016). A reranker is tried
behind the best pipeline so far: the other knobs see rankings without it. All choosers advance
together, so that when the budget ends, each has come equally far.
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
from eval.tuning.evaluation import Evaluator, OutOfTimeError, Part
from eval.tuning.pipeline import KNOBS, RANKING, RANKINGS, Knob, Pipeline, turned_knobs
from eval.tuning.result import Tried
from retriever.encoders import parse_encoder
from retriever.errors import BadInputError, ConfigError

# Documents and questions of the part on which dear values are tried first.
SMALL_DOCUMENTS = 1_000
SMALL_QUESTIONS = 300
_ROUNDS = 3
_LAYER_SETS = 6
# By one standard error, k1, b and weight chosen on half of SciFact's questions were worse than the
# defaults on the other half in 24% of 300 divisions, by two in 1%; TrecQA gains 0.9 instead of 1.1.
_ERRORS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Chooser:
    """(questions,) those that a choice may see, and those that it is tested on."""

    training: Part
    test: Part


def divided(questions: int, folds: int, seed: int) -> list[Chooser]:
    """A chooser for each fold, which is tested on it, and one for all questions at the end."""
    fold = np.random.default_rng(seed).permutation(questions) % folds
    parts = [Chooser(fold != number, fold == number) for number in range(folds)]
    return [*parts, Chooser(np.ones(questions, np.bool_), np.zeros(questions, np.bool_))]


@dataclass(eq=False)
class Search:
    """The state of a search: what each chooser has come to; `defaults` is where it began."""

    # Of all documents, and of a part of them if there are many.
    full: Evaluator
    small: Evaluator | None
    choosers: Sequence[Chooser]
    defaults: Pipeline
    settings: TuneSettings
    # Whether the budget ended before the search did.
    ended: bool = False

    def __post_init__(self) -> None:
        self.found = [self.defaults for _ in self.choosers]
        # What the last chooser tried on all documents, each with its best ranking.
        self.tried: dict[Pipeline, Tried] = {}
        # What the user names.
        self._named: dict[str, tuple[tuple[Any, ...], ...]] = {
            "encoder": tuple((parse_encoder(one),) for one in self.settings.encoders),
            "reranker": ((None,), (self.settings.rerank,)),
        }
        # Knobs turned in all rounds, and what was found before the round.
        self._turned = 0
        self._before: list[Pipeline] = []
        # By limit, of all pipelines that were measured.
        self._least: dict[str, float] = {}

    def run(self) -> None:
        """Search until no knob helps any chooser, or the budget ends; again to go on after it."""
        self.ended = False
        try:
            while self._turned < _ROUNDS * len(KNOBS):
                turn, place = divmod(self._turned, len(KNOBS))
                if place == 0:
                    if self.found == self._before:
                        return
                    self._before = list(self.found)
                knob = KNOBS[place]
                if not (knob.of_corpus and self.full.collection.pooled):
                    self._turn_knob(knob, first=turn == 0)
                self._turned += 1
        except OutOfTimeError:
            self.ended = True

    def _turn_knob(self, knob: Knob, *, first: bool) -> None:
        if knob is RANKING:
            for number, current in enumerate(self.found):
                self._consider(number, [current])
            return
        if knob.cost == "vectors" and not first:
            return
        if knob.cost == "reranker":
            for number in range(len(self.found)):
                self._consider_reranker(number)
            return
        for number, (current, chooser) in enumerate(zip(self.found, self.choosers, strict=True)):
            values = knob.values or self._named.get(knob.name)
            if values is None:
                values = self.full.layer_choices(current, chooser.training, _LAYER_SETS)
            options = list(knob.choices(current, values))
            if knob.cost == "vectors" and self.small is not None:
                options = self._promising(number, options, self.small)
            self._consider(number, options, strict=knob.cost == "map")

    def _promising(self, number: int, options: list[Pipeline], small: Evaluator) -> list[Pipeline]:
        """The best third of pipelines on a part of the documents, of those that help there."""
        part = self.choosers[number].training[small.collection.rows]
        least = small.table(self.found[number], part)[:, part].mean(axis=1).max()
        fitting = self.fits(self.found[number])
        gains: list[tuple[float, int, Pipeline]] = []
        for one in filter(self._fits_ranked, options):
            gain = float(small.table(one, part)[:, part].mean(axis=1).max() - least)
            if gain > 0 or not fitting:
                gains.append((-gain, len(gains), one))
        return [one for _, _, one in sorted(gains)[: max(1, len(options) // 3)]]

    def _consider(self, number: int, options: Sequence[Pipeline], *, strict: bool = False) -> None:
        """Let a chooser take the best of some pipelines, with the best ranking of each; a strict
        choice needs a significant rise.
        """
        training = self.choosers[number].training
        rerank = self.found[number].rerank
        current = self.found[number].put(rerank=None)
        best = current
        least = self.full.values(current, training)[training]
        # Where what it has is above a limit, it takes the best that is not.
        fitting = self.fits(self.found[number])
        highest = float(least.mean()) if fitting else -math.inf
        for option in filter(self._fits_ranked, options):
            table = self.full.table(option, training)[:, training]
            for place in np.argsort(-table.mean(axis=1), kind="stable").tolist():
                ranked = RANKING.turned(option, RANKINGS[place]).put(rerank=None)
                if self.fits(ranked.put(rerank=rerank)):
                    break
            else:
                continue
            mean = float(table[place].mean())
            if number == len(self.choosers) - 1:
                self.tried[ranked] = self.tried_one(ranked, mean)
            if mean > highest and (not fitting or self._rises(table[place] - least, strict=strict)):
                best = ranked
                highest = mean
        self.found[number] = best.put(rerank=rerank)

    def _consider_reranker(self, number: int) -> None:
        """Let a chooser take the reranker for its ranking, or leave it."""
        training = self.choosers[number].training
        found = self.found[number].put(rerank=None)
        option = found.put(rerank=self.settings.rerank)
        if option != found and self.fits(option):
            before, after = (self.full.values(one, training)[training] for one in (found, option))
            if number == len(self.choosers) - 1:
                self.tried[option] = self.tried_one(option, float(after.mean()))
            if self._rises(after - before, strict=False):
                found = option
        self.found[number] = found

    def _rises(self, differences: Floats, *, strict: bool) -> bool:
        """Whether the mean is more than two standard errors above 0, or significantly."""
        mean = float(differences.mean())
        resampling = self.settings.resampling
        if strict:
            p = randomization_test(differences, resampling.resamples, resampling.seed)
            return mean > 0 and p < SIGNIFICANT
        return mean > _ERRORS * float(differences.std(ddof=1)) / math.sqrt(len(differences))

    def tried_one(self, pipeline: Pipeline, quality: float) -> Tried:
        """A pipeline with what it takes."""
        latency = self.full.milliseconds(pipeline)
        size = self.full.megabytes(pipeline)
        return Tried(pipeline, quality, latency, size)

    def fits(self, pipeline: Pipeline) -> bool:
        """Whether a pipeline can be made, within the limits of size and latency."""
        try:
            self.full.spec(pipeline)
        except ConfigError:
            # Such as a longer window than the model reads.
            return False
        for name, limit, measure in (
            ("max-size", self.settings.max_size, self.full.megabytes),
            ("max-latency", self.settings.max_latency, self.full.milliseconds),
        ):
            if limit is not None:
                found = measure(pipeline)
                of = f"{name} {limit:g}"
                self._least[of] = min(found, self._least.get(of, found))
                if found > limit:
                    return False
        return True

    def _fits_ranked(self, pipeline: Pipeline) -> bool:
        """Whether it fits in one of the modes."""
        modes = ("hybrid", "bm25", "dense")
        return any(self.fits(pipeline.put(**{"search.mode": mode})) for mode in modes)

    def check_limits(self) -> None:
        """Raise BadInputError if a chooser has come to nothing that fits."""
        if not all(map(self.fits, self.found)):
            found = " and ".join(f"{one} (least: {of:.3g})" for one, of in self._least.items())
            raise BadInputError(f"expected settings within {found}, found none; raise the limit")


def is_no_worse(differences: Floats, margin: float, resampling: Resampling) -> bool:
    """Whether a mean difference is above -`margin`, by a one-sided test at 5%."""
    moved = differences + margin
    p = randomization_test(moved, resampling.resamples, resampling.seed)
    return bool(moved.mean() > 0 and p / 2 < 0.05)


def simplest(search: Search, best: Pipeline, part: Part) -> Pipeline:
    """The pipeline with the fewest knobs turned that is no worse than the best on a part: those
    that cost least are set back, as long as the result is within the margin and the limits.
    """
    evaluator = search.full
    defaults = search.defaults
    settings = search.settings
    values = evaluator.values(best, part)[part]
    found = best
    margin = settings.margin / 100
    while turned := turned_knobs(found, defaults):
        options: list[tuple[float, int, Pipeline]] = []
        for knob in turned:
            option = set_back(knob, found, defaults)
            if search.fits(option):
                mean = float(evaluator.values(option, part)[part].mean())
                options.append((mean, -len(options), option))
        if not options:
            return found
        _, _, option = max(options)
        differences = evaluator.values(option, part)[part] - values
        if not is_no_worse(differences, margin, settings.resampling):
            return found
        found = option
    return found


def set_back(knob: Knob, pipeline: Pipeline, defaults: Pipeline) -> Pipeline:
    """The pipeline with a knob as in the defaults."""
    return knob.turned(pipeline, knob.value(defaults))
