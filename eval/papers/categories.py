"""Tasks of many reports side by side, by category: Fig. 1 and Tables 1 and 2 of Ma et al. (2019).

The value of a task is divided by the highest one in the given reports; a category's score is the
mean over its tasks, and the average score the mean over categories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eval.figures import heat_map, new_figure, plain_text, short_label
from eval.metrics.comparison import percent
from eval.reports import Report, ReportedResult, Section, Table, environment, read_report
from retriever.errors import BadInputError, SourceError, require_several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper does not list the tasks of its categories; paraphrases (MRPC) count as similarity here.
_PROBING = {
    "surface information": ("sentlen", "wc"),
    "syntactic information": ("treedepth", "topconst", "bshift"),
    "semantic information": ("tense", "subjnum", "objnum", "somo", "coordinv"),
}
_TRANSFER = {"semantic similarity": ("mrpc",), "entailment": ("sick-e", "snli")}
CATEGORIES = (
    "semantic similarity",
    "text classification",
    "entailment",
    "question answering",
    *_PROBING,
)
# Kind of a report to the category of its other tasks.
_KINDS = {
    "sts": "semantic similarity",
    "transfer": "text classification",
    "qa": "question answering",
    "probe": "other probing",
}


@dataclass(slots=True, eq=False)
class TaskScores:
    """One task in all reports, by its first measure."""

    name: str
    category: str
    # Encoder to its value, or model and pooling to those of the hidden states.
    values: dict[tuple[str, ...], NDArray[np.float64]] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The highest value; the scale of the others."""
        return max(float(one.max()) for one in self.values.values())


@dataclass(frozen=True, slots=True, eq=False)
class CategoryResult(ReportedResult):
    """Tasks by category, then in the order of the reports."""

    tasks: tuple[TaskScores, ...]
    command: str = ""

    def _by_category(self, parts: int) -> dict[str, dict[str, float]]:
        """Encoder, or with two `parts` model and pooling, to category to the mean normalized value,
        also over hidden states, of those that have all tasks.
        """
        tasks = [task for task in self.tasks if any(len(key) == parts for key in task.values)]
        means: dict[str, dict[str, float]] = {}
        for key in self._keys(parts):
            if all(key in task.values for task in tasks):
                shares: dict[str, list[float]] = {}
                for task in tasks:
                    share = float(task.values[key].mean()) / task.best
                    shares.setdefault(task.category, []).append(share)
                mean = {category: float(np.mean(of)) for category, of in shares.items()}
                means[", ".join(key)] = {**mean, "average": float(np.mean(list(mean.values())))}
        return means

    def _keys(self, parts: int) -> list[tuple[str, ...]]:
        keys = (key for task in self.tasks for key in task.values if len(key) == parts)
        return list(dict.fromkeys(keys))

    def report(self) -> Report:
        """A table of encoders, one of poolings, and a heat map of each model and pooling."""
        encoders, poolings = self._by_category(1), self._by_category(2)
        tables = [
            Table(
                ("", *next(iter(means.values()))),
                tuple((name, *map(percent, one.values())) for name, one in means.items()),
                title,
            )
            for title, means in (
                ("Encoders by category, normalized × 100", encoders),
                ("Poolings by category, mean over hidden states, normalized × 100", poolings),
            )
            if means
        ]
        facts = {
            category: ", ".join(task.name for task in self.tasks if task.category == category)
            for category in dict.fromkeys(task.category for task in self.tasks)
        }
        remarks = tuple(self._remarks(encoders, poolings))
        return Report(
            name="categories",
            title="Tasks by category",
            sections=(Section(facts=facts, tables=tuple(tables), remarks=remarks, brief=True),),
            data={
                "tasks": [
                    {
                        "task": task.name,
                        "category": task.category,
                        "best": task.best,
                        "encoders": {
                            key[0]: float(value)
                            for key, value in task.values.items()
                            if len(key) == 1
                        },
                        "layers": [
                            {"model": key[0], "pooling": key[1], "values": values.tolist()}
                            for key, values in task.values.items()
                            if len(key) == 2
                        ],
                    }
                    for task in self.tasks
                ],
                "encoders": encoders,
                "poolings": poolings,
            },
            command=self.command,
            environment=environment(None),
            figures=self._figures(),
        )

    def _remarks(
        self, encoders: Mapping[str, object], poolings: Mapping[str, object]
    ) -> Iterator[str]:
        yield (
            "1 × 100 is the best value of a task in these reports, so figures from different sets "
            "of reports do not compare"
        )
        for parts, means in ((1, encoders), (2, poolings)):
            missing = sorted({", ".join(key) for key in self._keys(parts)} - set(means))
            if missing:
                yield f"left out, since they are not scored on every task: {', '.join(missing)}"

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        keys = self._keys(2)
        models = list(dict.fromkeys(model for model, _ in keys))
        return {
            f"layers-{pooling}"
            + (f"-{models.index(model) + 1}" if len(models) > 1 else ""): partial(
                layers_by_task, self.tasks, model, pooling
            )
            for model, pooling in keys
        }


def gather_categories(folders: Sequence[str | Path], command: str = "") -> CategoryResult:
    """Read reports of `score_sts`, `score_transfer`, `score_probing` and `rank_layers`."""
    require_several("folders", folders)
    found: dict[tuple[str, str], TaskScores] = {}
    for folder in map(Path, folders):
        report = read_report(folder)
        kind = report.get("kind")
        if kind not in _KINDS:
            raise SourceError(
                f"{folder / 'report.json'}: expected a report of eval sts, eval transfer, eval "
                "probe or eval qa --by-layer, found another; leave it out"
            )
        measure = report["measures"][0]
        reported: list[tuple[str, tuple[str, ...], Any]] = [
            (one["set"], (score["encoder"],), score["values"][measure]["value"])
            for one in report["sets"]
            for score in one["scores"]
        ]
        reported += [
            (one["set"], (one["encoder"], pooling), values)
            for one in report["by_layer"]
            if one["measure"] == measure
            for pooling, values in zip(one["poolings"], np.transpose(one["values"]), strict=True)
        ]
        for name, key, value in reported:
            task = found.setdefault((kind, name), _task(kind, name))
            known = task.values.setdefault(key, np.array(value, np.float64))
            if not np.array_equal(known, value):
                raise BadInputError(
                    f"{folder}: {task.name}: expected {known.tolist()} for {', '.join(key)} as in "
                    f"another report, found {np.array(value).tolist()}; leave one out"
                )
    classified = {name for kind, name in found if kind != "sts"}
    for (kind, name), task in found.items():
        if kind == "sts" and name in classified:
            # SICK is both a similarity test and a classification task.
            task.name = f"{name}-r"
    order = [*CATEGORIES, "other probing"]
    tasks = sorted(found.values(), key=lambda task: order.index(task.category))
    return CategoryResult(tuple(tasks), command)


def _task(kind: str, name: str) -> TaskScores:
    for category, names in {**_PROBING, **_TRANSFER}.items():
        if name in names and (kind == "probe") == (category in _PROBING):
            return TaskScores(name, category)
    return TaskScores(name, _KINDS[kind])


def layers_by_task(tasks: Sequence[TaskScores], model: str, pooling: str) -> Figure:
    """Tasks by hidden states as a heat map, 1 being the best known value, first tasks on top."""
    shown = [task for task in reversed(tasks) if (model, pooling) in task.values]
    values = np.array([task.values[model, pooling] / task.best for task in shown])
    figure = new_figure(2.6 + 0.42 * values.shape[1], 1.0 + 0.27 * len(shown))
    axes = figure.subplots()
    figure.colorbar(heat_map(axes, values, 2, numbers=True), ax=axes)
    axes.set_xticks(range(values.shape[1]))
    ticks = axes.set_yticks(range(len(shown)), [task.name for task in shown])
    plain_text(*(tick.label1 for tick in ticks))
    axes.set_xlabel("hidden state (0: embeddings)")
    plain_text(axes.set_title(f"{short_label(model)}, {pooling}", fontsize="medium"))
    return figure
