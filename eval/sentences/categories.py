"""Tasks of many reports side by side, by category: Fig. 1 and Tables 1 and 2 of Ma et al. (2019).

The value of a task is divided by the highest value that any encoder, layer or pooling has on it in
the given reports, so 1 is the best known. A category's score is the mean of these over its tasks,
and the average score is the mean over categories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eval.figures import heat_map, new_figure, plain_text, short_label
from eval.metrics.comparison import percent
from eval.reports import Report, Section, environment, read_report, text_lines, write_report
from eval.tables import Table
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
_USUAL = {
    "sts": "semantic similarity",
    "transfer": "text classification",
    "qa": "question answering",
}
_KINDS = ("sts", "transfer", "probe", "qa")


@dataclass(frozen=True, slots=True, eq=False)
class TaskScores:
    """One task in all reports.

    Attributes:
        name: of the task; that of a similarity test ends in "-r" if a classification task has the
            same name.
        category: one of `CATEGORIES`, or "other probing".
        encoders: text form to the value of its first measure.
        layers: (model, pooling) to (hidden states,) values.
    """

    name: str
    category: str
    encoders: Mapping[str, float]
    layers: Mapping[tuple[str, str], NDArray[np.float64]]

    @property
    def best(self) -> float:
        """The highest value; the scale of the others."""
        return max([*self.encoders.values(), *(float(one.max()) for one in self.layers.values())])


@dataclass(frozen=True, slots=True, eq=False)
class CategoryResult:
    """Tasks by category.

    Attributes:
        tasks: by category, then in the order of the reports.
        command: reproduces the result; may be empty.
    """

    tasks: tuple[TaskScores, ...]
    command: str = ""

    def encoders(self) -> dict[str, dict[str, float]]:
        """Encoder to category to mean normalized value, for encoders that have all tasks."""
        scored = [one for one in self.tasks if one.encoders]
        names = dict.fromkeys(name for one in scored for name in one.encoders)
        return {
            name: _means({one.name: one.encoders[name] / one.best for one in scored}, scored)
            for name in names
            if all(name in one.encoders for one in scored)
        }

    def poolings(self) -> dict[str, dict[str, float]]:
        """Model and pooling to category to the normalized value, averaged over hidden states."""
        scored = [one for one in self.tasks if one.layers]
        keys = dict.fromkeys(key for one in scored for key in one.layers)
        return {
            f"{model}, {pooling}": _means(
                {one.name: float(one.layers[model, pooling].mean()) / one.best for one in scored},
                scored,
            )
            for model, pooling in keys
            if all((model, pooling) in one.layers for one in scored)
        }

    def report(self) -> Report:
        """The result for a reader."""
        tables = []
        for title, found in (
            ("Encoders by category, normalized × 100", self.encoders()),
            ("Poolings by category, mean over hidden states, normalized × 100", self.poolings()),
        ):
            if found:
                categories = list(next(iter(found.values())))
                rows = tuple((name, *map(percent, one.values())) for name, one in found.items())
                tables.append(Table(("", *categories), rows, title))
        listed = {
            category: ", ".join(one.name for one in self.tasks if one.category == category)
            for category in dict.fromkeys(one.category for one in self.tasks)
        }
        return Report(
            name="categories",
            title="Tasks by category",
            sections=(
                Section(
                    facts=listed,
                    tables=tuple(tables),
                    remarks=tuple(self._remarks()),
                    brief=True,
                ),
            ),
            data={
                "tasks": [
                    {
                        "task": one.name,
                        "category": one.category,
                        "best": one.best,
                        "encoders": dict(one.encoders),
                        "layers": [
                            {"model": model, "pooling": pooling, "values": values.tolist()}
                            for (model, pooling), values in one.layers.items()
                        ],
                    }
                    for one in self.tasks
                ],
                "encoders": self.encoders(),
                "poolings": self.poolings(),
            },
            command=self.command,
            environment=environment(None),
            figures=self._figures(),
        )

    def text(self) -> str:
        """The brief part of the report for a terminal."""
        return "\n".join(text_lines(self.report()))

    def to_json(self) -> dict[str, object]:
        """The content of report.json."""
        return self.report().to_json()

    def write(self, folder: Path) -> list[Path]:
        """Write the report to a folder; see `write_report`."""
        return write_report(folder, self.report())

    def _remarks(self) -> Iterator[str]:
        yield (
            "1 × 100 is the best value of a task in these reports, so figures from different sets "
            "of reports do not compare"
        )
        for kind, has in (
            ("encoders", {name for one in self.tasks for name in one.encoders}),
            ("poolings", {f"{m}, {p}" for one in self.tasks for m, p in one.layers}),
        ):
            shown = self.encoders() if kind == "encoders" else self.poolings()
            missing = sorted(has - set(shown))
            if missing:
                yield f"left out, since they are not scored on every task: {', '.join(missing)}"

    def _figures(self) -> dict[str, Callable[[], Figure]]:
        keys = list(dict.fromkeys(key for one in self.tasks for key in one.layers))
        models = list(dict.fromkeys(model for model, _ in keys))
        return {
            f"layers-{pooling}"
            + (f"-{models.index(model) + 1}" if len(models) > 1 else ""): partial(
                layers_by_task, self.tasks, model, pooling
            )
            for model, pooling in keys
        }


def gather_categories(folders: Sequence[str | Path], command: str = "") -> CategoryResult:
    """Read reports of `score_sts`, `score_transfer`, `score_probing` and `rank_layers`.

    Args:
        folders: that the reports were written to; at least one.
        command: reproduces the result, for its report.

    Raises:
        SourceError: a folder holds no such report.
        BadInputError: two reports have different values for the same encoder and task, or no value
            of a task is above 0.
        TypeError: one string instead of several.
    """
    require_several("folders", folders)
    encoders: dict[tuple[str, str], dict[str, float]] = {}
    layers: dict[tuple[str, str], dict[tuple[str, str], NDArray[np.float64]]] = {}
    for folder in folders:
        found = _read(Path(folder))
        kind, measure = found["kind"], found["measures"][0]
        for one in found["sets"]:
            of = encoders.setdefault((kind, one["set"]), {})
            for score in one["scores"]:
                value = float(score["values"][measure]["value"])
                if of.setdefault(score["encoder"], value) != value:
                    raise BadInputError(
                        f"{folder}: {one['set']}: expected {of[score['encoder']]} for "
                        f"{score['encoder']} as in another report, found {value}; leave one out"
                    )
        for one in found["by_layer"]:
            if one["measure"] == measure:
                values = np.array(one["values"])
                for column, pooling in enumerate(one["poolings"]):
                    key = one["encoder"], pooling
                    known = layers.setdefault((kind, one["set"]), {})
                    if not np.array_equal(
                        known.setdefault(key, values[:, column]), values[:, column]
                    ):
                        raise BadInputError(
                            f"{folder}: {one['set']}: expected the values of {one['encoder']} with "
                            f"{pooling} pooling as in another report, found others; leave one out"
                        )
    keys = dict.fromkeys([*encoders, *layers])
    classified = {name for kind, name in keys if kind != "sts"}
    tasks = [
        TaskScores(
            f"{name}-r" if kind == "sts" and name in classified else name,
            _category(kind, name),
            encoders.get((kind, name), {}),
            layers.get((kind, name), {}),
        )
        for kind, name in keys
    ]
    for task in tasks:
        if not task.best > 0:
            raise BadInputError(
                f"{task.name}: expected a value above 0 to divide by, found at most {task.best}; "
                "leave the report out"
            )
    order = {name: number for number, name in enumerate(CATEGORIES)}
    tasks.sort(key=lambda task: order.get(task.category, len(order)))
    return CategoryResult(tuple(tasks), command)


def layers_by_task(tasks: Sequence[TaskScores], model: str, pooling: str) -> Figure:
    """Tasks by hidden states as a heat map, 1 being the best known value; Fig. 1.

    Args:
        tasks: by category, first ones on top; those without the model and pooling are left out.
        model: text form.
        pooling: one of its poolings.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    shown = [one for one in reversed(tasks) if (model, pooling) in one.layers]
    values = np.array([one.layers[model, pooling] / one.best for one in shown])
    figure = new_figure(2.6 + 0.42 * values.shape[1], 1.0 + 0.27 * len(shown))
    axes = figure.subplots()
    figure.colorbar(heat_map(axes, values, 2, numbers=True), ax=axes)
    axes.set_xticks(range(values.shape[1]))
    plain_text(
        *(tick.label1 for tick in axes.set_yticks(range(len(shown)), [t.name for t in shown]))
    )
    axes.set_xlabel("hidden state (0: embeddings)")
    plain_text(axes.set_title(f"{short_label(model)}, {pooling}", fontsize="medium"))
    return figure


def _read(folder: Path) -> dict[str, Any]:
    found = read_report(folder)
    if found.get("kind") not in _KINDS:
        raise SourceError(
            f"{folder / 'report.json'}: expected a report of eval sts, eval transfer, eval probe "
            "or eval qa --by-layer, found another; leave it out"
        )
    return found


def _category(kind: str, name: str) -> str:
    for category, names in {**_PROBING, **_TRANSFER}.items():
        if name in names and (kind == "probe") == (category in _PROBING):
            return category
    return _USUAL.get(kind, "other probing")


def _means(values: Mapping[str, float], tasks: Sequence[TaskScores]) -> dict[str, float]:
    """The mean of each category, and of these."""
    of: dict[str, list[float]] = {}
    for task in tasks:
        of.setdefault(task.category, []).append(values[task.name])
    means = {category: float(np.mean(found)) for category, found in of.items()}
    return {**means, "average": float(np.mean(list(means.values())))}
