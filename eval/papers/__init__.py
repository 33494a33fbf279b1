"""Tables and figures of the papers: published figures, and the commands that reproduce them.

A file PAPER.toml has a table for each table or figure of a paper: its `title`, the names of others
that the same reports hold (`also`), the `published` figures, and its `steps`. A step is the name of
a report and a `command`, or the folders of reports to `gather` by category. A step with `sets` is
repeated for each set, with `{set}` replaced.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from eval.progress import Notify
from eval.reports import ReportedResult, read_report
from retriever.errors import ConfigError

PAPERS = ("sbert-wk", "bert-lc", "ma", "unsup")
_WITHOUT_MODEL = (["make", "probing"], ["train", "static"], ["train", "meta"])
# Files in the folder of a finished step.
_FINISHED = ("report.json", "sentence_length.txt", "training.json", "static.json", "meta.json")


class ReproductionStep(NamedTuple):
    """A command line without `retriever`, and the folder that it writes."""

    folder: Path
    arguments: list[str]
    # Reports to gather in place of the command, which would run the whole experiment.
    gathered: list[str]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of one of `PAPERS`, such as "table-3"."""

    paper: str
    name: str
    title: str
    # Name of each report, whether it gathers other reports, and their folders or its command.
    templates: tuple[tuple[str, bool, str], ...]
    # Tables and figures that the same reports hold.
    also: tuple[str, ...] = ()
    # Lines of a table of the paper's figures.
    published: tuple[str, ...] = ()

    def steps(self, data: Path, model: str, output: Path) -> Iterator[ReproductionStep]:
        """Yield the steps, with reports below `output`."""
        # {data}: the folder of data sets; {output}: the folder of this experiment.
        for name, gathers, template in self.templates:
            folder = output / self.paper / self.name / name
            values = {"data": data, "model": model, "output": folder.parent}
            words = [word.format(**values) for word in template.split()]
            arguments = words
            if gathers:
                arguments = ["reproduce", self.paper, self.name, "--data", str(data)]
            if words[:2] not in _WITHOUT_MODEL:
                arguments = [*arguments, "--model", model]
            place = output if gathers else folder
            yield ReproductionStep(
                folder, [*arguments, "--output", str(place)], words if gathers else []
            )


def experiments(paper: str | None = None, name: str | None = None) -> tuple[Experiment, ...]:
    """Return the experiments of a paper, or one of them; all if no paper is named.

    Raises:
        ConfigError: there is no such experiment.
    """
    all_experiments = [
        experiment for paper_name in PAPERS for experiment in _experiments(paper_name)
    ]
    selected = tuple(
        experiment
        for experiment in all_experiments
        if paper in (None, experiment.paper) and name in (None, experiment.name, *experiment.also)
    )
    if not selected:
        names: dict[str, list[str]] = {}
        for experiment in all_experiments:
            names.setdefault(experiment.paper, []).extend((experiment.name, *experiment.also))
        listed = "; ".join(
            f"{paper_name}: {', '.join(names_of_paper)}"
            for paper_name, names_of_paper in names.items()
        )
        raise ConfigError(
            f"experiment: expected one of {listed} (tables of times are benchmarks of the "
            f"repository, see docs/reference/reproduce.md); found {paper} {name or ''}".strip()
        )
    return selected


def _experiments(paper: str) -> Iterator[Experiment]:
    with resources.files(__name__).joinpath(f"{paper}.toml").open("rb") as file:
        tables: dict[str, Any] = tomllib.load(file)
    texts = tables.pop("texts")
    for name, table in tables.items():
        yield Experiment(
            paper,
            name,
            table["title"],
            tuple(_templates(table["steps"], texts)),
            tuple(table.get("also", ())),
            tuple(table.get("published", "").strip().splitlines()),
        )


def _templates(
    steps: list[dict[str, str]], texts: dict[str, str]
) -> Iterator[tuple[str, bool, str]]:
    for step in steps:
        step_texts = dict(step)
        # A text may refer to texts before it.
        for name, value in reversed(texts.items()):
            step_texts = {
                key: template.replace(f"{{{name}}}", value) for key, template in step_texts.items()
            }
        text = step_texts.get("gather") or step_texts["command"]
        for set_name in step_texts.get("sets", "-").split():
            yield (
                step_texts["name"].replace("{set}", set_name),
                "gather" in step,
                text.replace("{set}", set_name),
            )


def reproduce(
    experiment: Experiment,
    data: Path,
    model: str,
    output: Path,
    *,
    run: Callable[[list[str]], int],
    show: Callable[[ReportedResult, Path], object],
    notify: Notify,
) -> int:
    """Run the steps of an experiment that have no report yet.

    Stops at the first step that fails, and returns its exit code.

    Raises:
        ConfigError: a report was made by another command, such as one with another model.
    """
    for step in experiment.steps(data, model, output):
        line = shlex.join(["retriever", *step.arguments])
        if any((step.folder / name).exists() for name in _FINISHED):
            _check_same(step.folder, line)
            notify(f"{step.folder}: exists, skipped")
            continue
        step.folder.parent.mkdir(parents=True, exist_ok=True)
        notify(line)
        if step.gathered:
            from eval.papers.categories import gather_categories

            show(gather_categories(step.gathered, line), step.folder)
        elif code := run(step.arguments):
            return code
    return 0


def _check_same(folder: Path, line: str) -> None:
    """Refuse a report that another command made; the path of its folder may differ."""
    report = folder / "report.json"
    command = str(read_report(folder).get("command")) if report.exists() else line
    if command.rpartition(" --output ")[0] != line.rpartition(" --output ")[0]:
        raise ConfigError(
            f"{report}: expected the report of `{line}`, found the report of `{command}`; name "
            "another --output, or remove the folder"
        )
