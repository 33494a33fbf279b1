"""What a search over pipelines found: settings, what they are worth, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eval.figures import new_figure
from eval.metrics.comparison import Score, compare_values, comparison_table, few_remark
from eval.qa.pools import Floats
from eval.reports import Report, ReportedResult, Section, Table, csv_lines, environment
from eval.settings import TuneSettings
from eval.tuning.pipeline import KNOBS, QUERY_MAP, Pipeline, described, turned_knobs

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from retriever.rerankers.head import HeadReranker

BEST_FILE, SIMPLE_FILE = "tuned.toml", "simplest.toml"
# The sum of the 97.5% and the 80% points of the normal distribution.
_POWER = 1.959964 + 0.841621


class Tried(NamedTuple):
    """A pipeline with its mean on the training questions, its time in ms and its size in MB."""

    pipeline: Pipeline
    quality: float
    milliseconds: float
    megabytes: float


@dataclass(frozen=True, slots=True, eq=False)
class TuneResult(ReportedResult):
    """The result of `tune`.

    Attributes:
        name: of the data.
        measure: what settings were chosen by.
        defaults, best, simple: where the search began, the settings with the best mean, and those
            with the fewest knobs turned that are no worse.
        values: ``defaults``, ``tuned`` and ``simplest`` to (questions,) values in [0, 1] on
            questions that no choice has seen, in one order.
        without: knob to the values of the tuned pipeline with this knob set back.
        tried: the best pipelines, those three first.
        query_map: that of the best settings, if they have one; `query --query-map` takes it.
        evaluated: number of lists of candidates that were computed, each with all fusions.
        remarks: sentences; the first says what was chosen on.
    """

    name: str
    measure: str
    defaults: Pipeline
    best: Pipeline
    simple: Pipeline
    values: Mapping[str, Floats]
    without: Mapping[str, Floats]
    tried: tuple[Tried, ...]
    query_map: HeadReranker | None
    evaluated: int
    remarks: tuple[str, ...]
    seconds: float = 0.0
    settings: TuneSettings = field(default_factory=TuneSettings)
    command: str = ""

    def scores(self) -> dict[str, Score]:
        """Defaults, tuned and simplest, compared with the defaults."""
        return compare_values(self.values, "defaults", self.settings.resampling)

    def ablation(self) -> dict[str, Score]:
        """The tuned pipeline, and without each knob, compared with it."""
        values = {"tuned": self.values["tuned"], **self._without()}
        return compare_values(values, "tuned", self.settings.resampling)

    def _without(self) -> dict[str, Floats]:
        return {f"without {name}": found for name, found in self.without.items()}

    def front(self) -> list[Tried]:
        """The pipelines that no faster one equals, by ascending time."""
        found: list[Tried] = []
        for one in sorted(self.tried, key=lambda one: (one.milliseconds, -one.quality)):
            if not found or one.quality > found[-1].quality:
                found.append(one)
        return found

    def report(self) -> Report:
        """The result for a reader."""
        scores, ablation = self.scores(), self.ablation()
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
                BEST_FILE: lambda: [self.best.toml(self._comment("the best settings", "tuned"))],
                SIMPLE_FILE: lambda: [
                    self.simple.toml(self._comment("the simplest settings no worse", "simplest"))
                ],
                "values.csv": lambda: csv_lines(
                    list(self.values),
                    zip(*(one.tolist() for one in self.values.values()), strict=True),
                ),
            },
            figures={"front": self.front_figure},
        )

    def _comment(self, what: str, name: str) -> str:
        score = self.scores()[name]
        difference = score.difference
        assert difference is not None
        return (
            f"{what}: {self.measure} {score.value:.4f} on unseen questions, "
            f"{difference.value:+.4f} from the defaults "
            f"({difference.low:+.4f} to {difference.high:+.4f})\n{self.command}"
        ).strip()

    def _settings_table(self) -> Table:
        pipelines = self.defaults, self.best, self.simple
        turned = [knob for one in pipelines for knob in turned_knobs(one, self.defaults)]
        known = {one.pipeline: one for one in self.tried}
        tried = [known[one] for one in pipelines]
        rows = (
            *(
                (knob.name, *(described(knob, one) for one in pipelines))
                for knob in KNOBS
                if knob in turned
            ),
            ("ms a question", *(f"{one.milliseconds:.1f}" for one in tried)),
            ("MB of index", *(f"{one.megabytes:.1f}" for one in tried)),
        )
        return Table(("knob", *self.values), rows, "Settings", (0, 1, 2, 3))

    def _front_table(self) -> Table:
        rows = []
        for one in self.front():
            turned = turned_knobs(one.pipeline, self.defaults)
            settings = "; ".join(f"{knob.name}: {described(knob, one.pipeline)}" for knob in turned)
            numbers = f"{one.milliseconds:.1f}", f"{one.megabytes:.1f}", f"{100 * one.quality:.2f}"
            rows.append((*numbers, settings or "defaults"))
        columns = ("ms", "MB", f"{self.measure} on training questions", "settings")
        return Table(columns, tuple(rows), "The best settings by time", (3,))

    def _conclusions(
        self, scores: Mapping[str, Score], ablation: Mapping[str, Score]
    ) -> Iterator[str]:
        yield from few_remark(len(self.values["tuned"]), "questions")
        if self.best == self.defaults:
            yield "no setting was found that is better than the defaults: keep them"
            return
        values = {**self.values, **self._without()}
        compared = [(name, "defaults", one.difference) for name, one in scores.items()]
        compared += [(name, "tuned", one.difference) for name, one in ablation.items()]
        for name, baseline, difference in compared:
            changes = values[name] - values[baseline]
            needed = needed_questions(changes)
            if difference is None or difference.significant or needed is None:
                continue
            yield (
                f"{name} and {baseline} cannot be told apart with {len(changes):,} questions; a "
                f"difference of {100 * difference.value:+.2f} needs about {needed:,}"
            )

    def _data(self, scores: Mapping[str, Score], ablation: Mapping[str, Score]) -> dict[str, Any]:
        def pipeline(one: Pipeline) -> dict[str, Any]:
            turned = turned_knobs(one, self.defaults)
            return one.to_json() | {"turned": [knob.name for knob in turned]}

        return {
            "measure": self.measure,
            "chosen_by": self.remarks[0],
            "questions": len(self.values["tuned"]),
            "defaults": pipeline(self.defaults),
            "tuned": pipeline(self.best),
            "simplest": pipeline(self.simple),
            "scores": {name: asdict(one) for name, one in scores.items()},
            "ablation": {name: asdict(one) for name, one in ablation.items()},
            "front": [one._asdict() | {"pipeline": pipeline(one.pipeline)} for one in self.front()],
            "seconds": self.seconds,
            "evaluated": self.evaluated,
            "remarks": list(self.remarks),
        }

    def front_figure(self) -> Figure:
        """Quality on training questions by latency, with the front of the best."""
        figure = new_figure(7.5, 4.5)
        axes = figure.subplots()
        points = {one.pipeline: (one.milliseconds, 100 * one.quality) for one in self.tried}
        times, qualities = zip(*points.values(), strict=True)
        axes.scatter(times, qualities, s=14, color="grey", label="tried")
        front = [points[one.pipeline] for one in self.front()]
        axes.step(*zip(*front, strict=True), where="post", label="best by time")
        named = zip("o^s", self.values, (self.defaults, self.best, self.simple), strict=True)
        for mark, name, pipeline in named:
            axes.plot(*points[pipeline], mark, label=name)
        axes.set(xlabel="ms a question", ylabel=f"{self.measure} × 100 on training questions")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> list[Path]:
        """Write the report, the files of settings, and the query map if there is one."""
        written = ReportedResult.write(self, folder)
        if self.query_map is not None:
            self.query_map.save(folder / QUERY_MAP)
            written += sorted((folder / QUERY_MAP).iterdir())
        return written


def needed_questions(differences: Floats) -> int | None:
    """Questions with which a paired test at 5% finds such a mean difference in 80% of cases; None
    where all differences are zero, or their mean is.
    """
    mean, deviation = float(differences.mean()), float(np.std(differences, ddof=1))
    if mean == 0 or deviation == 0:
        return None
    return math.ceil((_POWER * deviation / mean) ** 2)
