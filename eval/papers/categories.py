"""Tasks of many reports side by side, by category: Tables 1 and 2 of Ma et al. (2019).

The value of a task is divided by the highest value in the reports. A category's score is the mean
over its tasks; the average score is the mean over categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eval.metrics.comparison import percent
from eval.reports import Report, ReportedResult, Section, Table, environment, read_report
from retriever.errors import BadInputError, SourceError, require_several

# The paper does not list the tasks of its categories. Here paraphrases (MRPC) count as similarity.
_PROBING = {
    "surface information": ("sentlen", "wc"),
    "syntactic information": ("treedepth", "topconst", "bshift"),
    "semantic information": ("tense", "subjnum", "objnum", "somo", "coordinv"),
}
_TRANSFER = {"semantic similarity": ("mrpc",), "entailment": ("sick-e", "snli")}
CATEGORIES = ("semantic similarity", "text classification", "entailment", *_PROBING)
# Kind of a report to the category of tasks that are not listed above.
_KINDS = {
    "sts": "semantic similarity",
    "transfer": "text classification",
    "probe": "other probing",
}


@dataclass(slots=True, eq=False)
class TaskScores:
    """One task in all reports, by its first measure."""

    name: str
    category: str
    encoders: dict[str, float] = field(default_factory=dict)
    # Model and pooling to the values of the hidden states.
    layers: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The highest value, the divisor of all values."""
        return max([*self.encoders.values(), *map(max, self.layers.values())])

    def to_json(self) -> dict[str, object]:
        """Return all values as JSON values."""
        return {
            "task": self.name,
            "category": self.category,
            "best": self.best,
            "encoders": self.encoders,
            "layers": [
                {"model": model, "pooling": pooling, "values": values}
                for (model, pooling), values in self.layers.items()
            ],
        }


@dataclass(frozen=True, slots=True, eq=False)
class CategoryResult(ReportedResult):
    """Tasks by category, then in the order of the reports."""

    tasks: tuple[TaskScores, ...]
    command: str = ""

    def _by_category(self, values: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """Return name to category to mean normalized value, for names scored on every task."""
        scored = [
            (task, task_values)
            for task, task_values in zip(self.tasks, values, strict=True)
            if task_values
        ]
        means: dict[str, dict[str, float]] = {}
        for name in dict.fromkeys(name for task_values in values for name in task_values):
            if all(name in task_values for _, task_values in scored):
                shares: dict[str, list[float]] = {}
                for task, task_values in scored:
                    shares.setdefault(task.category, []).append(task_values[name] / task.best)
                mean = {
                    category: float(np.mean(normalized)) for category, normalized in shares.items()
                }
                means[name] = {**mean, "average": float(np.mean(list(mean.values())))}
        return means

    def report(self) -> Report:
        """Return a table of encoders, and a table of poolings."""
        encoders = [task.encoders for task in self.tasks]
        poolings = [
            {", ".join(key): float(np.mean(values)) for key, values in task.layers.items()}
            for task in self.tasks
        ]
        remarks = [
            "1 × 100 is the best value of a task in these reports, so figures from different sets "
            "of reports do not compare"
        ]
        means_of_tables = []
        tables = []
        for title, values in (
            ("Encoders by category, normalized × 100", encoders),
            ("Poolings by category, mean over hidden states, normalized × 100", poolings),
        ):
            means = self._by_category(values)
            means_of_tables.append(means)
            if means:
                columns = ("", *next(iter(means.values())))
                rows = tuple(
                    (name, *map(percent, by_category.values()))
                    for name, by_category in means.items()
                )
                tables.append(Table(columns, rows, title))
            if missing := sorted(
                {name for task_values in values for name in task_values} - set(means)
            ):
                names = ", ".join(missing)
                remarks.append(f"left out, since they are not scored on every task: {names}")
        facts = {
            category: ", ".join(task.name for task in self.tasks if task.category == category)
            for category in dict.fromkeys(task.category for task in self.tasks)
        }
        return Report(
            name="categories",
            title="Tasks by category",
            sections=(Section("", facts, tuple(tables), tuple(remarks), brief=True),),
            data={
                "tasks": [task.to_json() for task in self.tasks],
                "encoders": means_of_tables[0],
                "poolings": means_of_tables[1],
            },
            command=self.command,
            environment=environment(None),
        )


def gather_categories(folders: Sequence[str | Path], command: str = "") -> CategoryResult:
    """Read reports of `score_sts`, `score_transfer` and `score_probing`."""
    require_several("folders", folders)
    tasks_by_key: dict[tuple[str, str], TaskScores] = {}
    for folder in map(Path, folders):
        report = read_report(folder)
        kind = report.get("kind")
        if kind not in _KINDS:
            raise SourceError(
                f"{folder / 'report.json'}: expected a report of eval sts, eval transfer or eval "
                "probe, found another; leave it out"
            )
        measure = report["measures"][0]
        reported_values: list[tuple[str, tuple[str, ...], Any]] = [
            (entry["set"], (score["encoder"],), score["values"][measure]["value"])
            for entry in report["sets"]
            for score in entry["scores"]
        ]
        reported_values += [
            (entry["set"], (entry["encoder"], pooling), list(values))
            for entry in report["by_layer"]
            if entry["measure"] == measure
            for pooling, values in zip(
                entry["poolings"], zip(*entry["values"], strict=True), strict=True
            )
        ]
        for name, key, value in reported_values:
            task = tasks_by_key.setdefault((kind, name), _task(kind, name))
            values: dict[Any, Any] = task.layers if len(key) == 2 else task.encoders
            earlier = values.setdefault(key if len(key) == 2 else key[0], value)
            if earlier != value:
                raise BadInputError(
                    f"{folder}: {task.name}: expected {earlier} for {', '.join(key)} as in another "
                    f"report, found {value}; leave one out"
                )
    classified = {name for kind, name in tasks_by_key if kind != "sts"}
    for (kind, name), task in tasks_by_key.items():
        if kind == "sts" and name in classified:
            # SICK is both a similarity test and a classification task.
            task.name = f"{name}-r"
    order = [*CATEGORIES, "other probing"]
    tasks = sorted(tasks_by_key.values(), key=lambda task: order.index(task.category))
    return CategoryResult(tuple(tasks), command)


def _task(kind: str, name: str) -> TaskScores:
    for category, names in {**_PROBING, **_TRANSFER}.items():
        if name in names and (kind == "probe") == (category in _PROBING):
            return TaskScores(name, category)
    return TaskScores(name, _KINDS[kind])
