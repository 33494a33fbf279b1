"""The result of `tune`: settings, their gains on unseen questions, and the report."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eval.figures import new_figure
from eval.metrics.comparison import Score, compare_values, comparison_table, few_remark
from eval.qa.pools import Floats
from eval.reports import Report, ReportedResult, Section, Table, csv_lines, environment
from eval.settings import TuneSettings
from eval.tuning.knobs import KNOBS, describe_value, turned_knobs
from eval.tuning.pipeline import QUERY_MAP, Pipeline
from retriever.rerankers import is_reranker

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from retriever.rerankers import HeadReranker

FEW_QUESTIONS = 300
"""With fewer questions the defaults are normally kept (docs/how-to/tune.md)."""
# Sum of the 97.5% and the 80% points of the normal distribution: level 5%, two-sided, power 80%.
_POWER = 1.959964 + 0.841621


class MeasuredPipeline(NamedTuple):
    """A pipeline with its mean on training questions, its latency in ms and its size in MB."""

    pipeline: Pipeline
    quality: float
    milliseconds: float
    megabytes: float


@dataclass(frozen=True, slots=True, eq=False)
class TuneResult(ReportedResult):
    """The result of `tune`.

    Attributes:
        name: name of the data.
        measure: the measure that settings were chosen by.
        defaults: the settings from which the search began.
        best: the settings with the best mean.
        simple: the settings with the fewest knobs turned that are no worse than `best`.
        values: ``defaults``, ``tuned`` and ``simplest`` to (questions,) values in [0, 1] on
            questions that no choice has seen, in one order.
        without: knob to the values of the tuned pipeline with this knob reset.
        tried: the best pipelines; defaults, best and simple come first.
        query_map: the query map of the best settings, if any; `query --query-map` takes it.
        evaluated: number of candidate lists that were computed, each with all fusions.
        remarks: sentences; the first says which questions chose the settings.
        folded: whether `values` belong to settings that were chosen anew for each fold, not to
            `best` and `simple` themselves.
        defaults_fit: whether the defaults are within the limits of size and latency.
    """

    name: str
    measure: str
    defaults: Pipeline
    best: Pipeline
    simple: Pipeline
    values: Mapping[str, Floats]
    without: Mapping[str, Floats]
    tried: tuple[MeasuredPipeline, ...]
    query_map: HeadReranker | None
    evaluated: int
    remarks: tuple[str, ...]
    folded: bool = True
    defaults_fit: bool = True
    seconds: float = 0.0
    settings: TuneSettings = field(default_factory=TuneSettings)
    command: str = ""

    def recommended(self) -> dict[str, Pipeline]:
        """Return what to use instead of the defaults, by the names ``tuned`` and ``simplest``.

        Settings are recommended if they differ from the defaults, and either their gain on
        questions that no choice has seen is significant or the defaults exceed a limit. An empty
        result means: keep the defaults.
        """
        scores = self.scores()
        return {
            name: pipeline
            for name, pipeline in (("tuned", self.best), ("simplest", self.simple))
            if pipeline != self.defaults and (not self.defaults_fit or _is_gain(scores[name]))
        }

    def scores(self) -> dict[str, Score]:
        """Return the scores of defaults, tuned and simplest, compared with the defaults."""
        return compare_values(self.values, "defaults", self.settings.resampling)

    def ablation(self) -> dict[str, Score]:
        """Return the scores of the tuned pipeline, and without each knob compared with it."""
        values = {"tuned": self.values["tuned"], **self._without()}
        return compare_values(values, "tuned", self.settings.resampling)

    def _without(self) -> dict[str, Floats]:
        return {f"without {name}": values for name, values in self.without.items()}

    def front(self) -> list[MeasuredPipeline]:
        """Return the pipelines that are better than all faster ones, by ascending latency."""
        front: list[MeasuredPipeline] = []
        for tried in sorted(self.tried, key=lambda tried: (tried.milliseconds, -tried.quality)):
            if not front or tried.quality > front[-1].quality:
                front.append(tried)
        return front

    def report(self) -> Report:
        """Return the report: scores, settings, ablation, and quality by latency."""
        scores = self.scores()
        ablation = self.ablation()
        title = f"{self.measure} on {len(self.values['tuned']):,} questions that no choice has seen"
        tables = [comparison_table(title, "settings", scores), self._settings_table()]
        if len(ablation) > 1:
            title = "What each knob is worth: the tuned settings with one set back"
            tables.append(comparison_table(title, "settings", ablation))
        return Report(
            name="tune",
            title=self.remarks[0],
            sections=(
                Section(
                    facts={
                        "time": f"{self.seconds / 60:.1f} of {self.settings.minutes:g} minutes",
                        "computed": f"{self.evaluated:,} lists of candidates, each with every "
                        "fusion and weight",
                    },
                    tables=tuple(tables),
                    remarks=(*self._conclusions(scores, ablation), *self.remarks[1:]),
                    brief=True,
                ),
                Section("Quality and latency", tables=(self._front_table(),)),
            ),
            data=self._data(scores, ablation),
            command=self.command,
            environment=environment(self.settings.loading.device),
            files={
                **{
                    f"{name}.toml": partial(self._toml, name, pipeline)
                    for name, pipeline in self.recommended().items()
                },
                "values.csv": lambda: csv_lines(
                    list(self.values),
                    zip(*(values.tolist() for values in self.values.values()), strict=True),
                ),
            },
            figures={"front": self.front_figure},
        )

    def _toml(self, name: str, pipeline: Pipeline) -> list[str]:
        """Return a file of settings; its comment says what was measured."""
        score = self.scores()[name]
        description = {"tuned": "the best settings", "simplest": "the simplest settings no worse"}
        subject = "this way of choosing, not these settings" if self.folded else "these settings"
        value = f"{self.measure} {score.value:.4f} on unseen questions"
        gain = f"against the defaults {_described(score, 1, 4)}"
        comment = f"{description[name]}\n{subject}: {value}, {gain}\n{self.command}"
        return [pipeline.toml(comment.strip())]

    def _settings_table(self) -> Table:
        pipelines = self.defaults, self.best, self.simple
        turned = [knob for pipeline in pipelines for knob in turned_knobs(pipeline, self.defaults)]
        measurements = {measured.pipeline: measured for measured in self.tried}
        tried = [measurements[pipeline] for pipeline in pipelines]
        rows = (
            *(
                (knob.name, *(describe_value(knob, pipeline) for pipeline in pipelines))
                for knob in KNOBS
                if knob in turned
            ),
            ("ms a question", *(f"{measured.milliseconds:.1f}" for measured in tried)),
            ("MB of index", *(f"{measured.megabytes:.1f}" for measured in tried)),
        )
        return Table(("knob", *self.values), rows, "Settings", (0, 1, 2, 3))

    def _front_table(self) -> Table:
        rows = []
        for measured in self.front():
            turned = turned_knobs(measured.pipeline, self.defaults)
            settings = "; ".join(
                f"{knob.name}: {describe_value(knob, measured.pipeline)}" for knob in turned
            )
            rows.append(
                (
                    f"{measured.milliseconds:.1f}",
                    f"{measured.megabytes:.1f}",
                    f"{100 * measured.quality:.2f}",
                    settings or "defaults",
                )
            )
        columns = ("ms", "MB", f"{self.measure} on training questions", "settings")
        return Table(columns, tuple(rows), "The best settings by time", (3,))

    def _conclusions(
        self, scores: Mapping[str, Score], ablation: Mapping[str, Score]
    ) -> Iterator[str]:
        questions = len(self.values["tuned"])
        yield from few_remark(questions, "questions")
        recommended = self.recommended()
        pipelines = {"tuned": self.best, "simplest": self.simple}
        reasons = {
            name: self._reason(pipeline, scores[name])
            for name, pipeline in pipelines.items()
            if name not in recommended
        }
        if not recommended:
            yield f"keep the defaults: {reasons['tuned']}; no settings are written"
        else:
            for name, reason in reasons.items():
                yield f"{name}.toml is not written: {reason}"
        if not recommended and questions < FEW_QUESTIONS:
            yield few_questions(questions)
        if self.best == self.defaults:
            return
        values = {**self.values, **self._without()}
        compared = [(name, "defaults", score.difference) for name, score in scores.items()]
        compared += [(name, "tuned", score.difference) for name, score in ablation.items()]
        for name, baseline, difference in compared:
            changes = values[name] - values[baseline]
            needed = needed_questions(changes)
            if difference is None or difference.significant or needed is None:
                continue
            yield (
                f"{name} and {baseline} cannot be told apart with {len(changes):,} questions; a "
                f"difference of {100 * difference.value:+.2f} needs about {needed:,}"
            )

    def _reason(self, pipeline: Pipeline, score: Score) -> str:
        """Say why settings are not recommended."""
        if pipeline == self.defaults:
            return "no setting was found that is better"
        gain = _described(score, 100, 2)
        return f"no significant gain on questions that no choice has seen: {gain}"

    def _data(self, scores: Mapping[str, Score], ablation: Mapping[str, Score]) -> dict[str, Any]:
        def pipeline_data(tuned: Pipeline) -> dict[str, Any]:
            turned = turned_knobs(tuned, self.defaults)
            return tuned.to_json() | {"turned": [knob.name for knob in turned]}

        return {
            "measure": self.measure,
            "keep_defaults": not self.recommended(),
            "chosen_by": self.remarks[0],
            "questions": len(self.values["tuned"]),
            "defaults": pipeline_data(self.defaults),
            "tuned": pipeline_data(self.best),
            "simplest": pipeline_data(self.simple),
            "scores": {name: asdict(score) for name, score in scores.items()},
            "ablation": {name: asdict(score) for name, score in ablation.items()},
            "front": [
                measured._asdict() | {"pipeline": pipeline_data(measured.pipeline)}
                for measured in self.front()
            ],
            "seconds": self.seconds,
            "evaluated": self.evaluated,
            "remarks": list(self.remarks),
        }

    def front_figure(self) -> Figure:
        """Plot quality on training questions by latency, with the front of the best."""
        figure = new_figure(7.5, 4.5)
        axes = figure.subplots()
        points = {
            measured.pipeline: (measured.milliseconds, 100 * measured.quality)
            for measured in self.tried
        }
        times, qualities = zip(*points.values(), strict=True)
        axes.scatter(times, qualities, s=14, color="grey", label="tried")
        front = [points[measured.pipeline] for measured in self.front()]
        axes.step(*zip(*front, strict=True), where="post", label="best by time")
        named = zip("o^s", self.values, (self.defaults, self.best, self.simple), strict=True)
        for mark, name, pipeline in named:
            axes.plot(*points[pipeline], mark, label=name)
        axes.set(xlabel="ms a question", ylabel=f"{self.measure} × 100 on training questions")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> list[Path]:
        """Write the report, the recommended settings, and their query map if they have one.

        Settings and a query map of an earlier result in the folder are removed. They could be
        mistaken for this result.
        """
        recommended = self.recommended()
        query_map = folder / QUERY_MAP
        for name in {"tuned", "simplest"} - recommended.keys():
            (folder / f"{name}.toml").unlink(missing_ok=True)
        has_map = any(pipeline.query_map for pipeline in recommended.values())
        if not has_map and is_reranker(query_map):
            shutil.rmtree(query_map)
        paths = ReportedResult.write(self, folder)
        if has_map and self.query_map is not None:
            self.query_map.save(query_map)
            paths += sorted(query_map.iterdir())
        return paths


def few_questions(count: int) -> str:
    """Return a remark on tuning by fewer questions than `FEW_QUESTIONS`."""
    return (
        f"{count:,} questions are few to tune by: with fewer than {FEW_QUESTIONS} the defaults are "
        "normally kept"
    )


def _is_gain(score: Score) -> bool:
    difference = score.difference
    return difference is not None and difference.value > 0 and difference.significant


def _described(score: Score, unit: int, digits: int) -> str:
    """Describe a difference from the defaults with its interval and p."""
    difference = score.difference
    assert difference is not None
    value, low, high = (
        f"{unit * number:+.{digits}f}"
        for number in (difference.value, difference.low, difference.high)
    )
    return f"{value} ({low} to {high}, p = {difference.adjusted:.4f})"


def needed_questions(differences: Floats) -> int | None:
    """Return the number of questions that show such a mean difference; None if it is zero.

    With so many questions a paired test at 5% finds the difference in 80% of cases.
    """
    mean = float(differences.mean())
    deviation = float(np.std(differences, ddof=1))
    if mean == 0 or deviation == 0:
        return None
    return math.ceil((_POWER * deviation / mean) ** 2)
