"""The tables and figures of the papers: their published figures, and the commands that remake them.

A file PAPER.toml has a table for each table or figure of a paper: its `title`, the names of those
that the same reports hold (`also`), the figures that were `published`, and its `steps`: each the
name of a report, and a `command`, or the folders of reports to `gather` by category. A step with
`sets` is one step for each of them, with `{set}` replaced.
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
# What a finished step leaves in its folder.
_FINISHED = ("report.json", "sentence_length.txt", "training.json", "static.json", "meta.json")


class Step(NamedTuple):
    """A command line without `retriever`, and the folder that it writes."""

    folder: Path
    arguments: list[str]
    # Reports to gather instead of running the command, which would run the whole experiment.
    gathered: list[str]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of one of `PAPERS`, such as "table-3"."""

    paper: str
    name: str
    title: str
    # The name of each report, whether it gathers others, and which, or what is run.
    templates: tuple[tuple[str, bool, str], ...]
    # Tables and figures that the same reports hold.
    also: tuple[str, ...] = ()
    # The lines of a table of the paper's figures.
    published: tuple[str, ...] = ()

    def steps(self, data: Path, model: str, output: Path) -> Iterator[Step]:
        """The steps with reports below `output`."""
        # {data}: the folder of data sets; {output}: that of this experiment.
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
            yield Step(folder, [*arguments, "--output", str(place)], words if gathers else [])


def experiments(paper: str | None = None, name: str | None = None) -> tuple[Experiment, ...]:
    """The experiments of a paper, or one of them; all if no paper is named."""
    known = [one for of in PAPERS for one in _experiments(of)]
    found = tuple(
        one for one in known if paper in (None, one.paper) and name in (None, one.name, *one.also)
    )
    if not found:
        names: dict[str, list[str]] = {}
        for one in known:
            names.setdefault(one.paper, []).extend((one.name, *one.also))
        listed = "; ".join(f"{of}: {', '.join(of_paper)}" for of, of_paper in names.items())
        raise ConfigError(
            f"experiment: expected one of {listed} (tables of times are benchmarks of the "
            f"repository, see docs/results.md); found {paper} {name or ''}".strip()
        )
    return found


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
        filled = dict(step)
        # A text may hold the names of those before it.
        for name, value in reversed(texts.items()):
            filled = {key: one.replace(f"{{{name}}}", value) for key, one in filled.items()}
        text = filled.get("gather") or filled["command"]
        for of in filled.get("sets", "-").split():
            yield filled["name"].replace("{set}", of), "gather" in step, text.replace("{set}", of)


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
    """Run the steps of an experiment that have no report yet, up to the first that fails, and
    return its exit code. A report of another command, such as one with another model, is refused.
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
    """Refuse a report that another command made; the folder's path may be written otherwise."""
    report = folder / "report.json"
    made = str(read_report(folder).get("command")) if report.exists() else line
    if made.rpartition(" --output ")[0] != line.rpartition(" --output ")[0]:
        raise ConfigError(
            f"{report}: expected the report of `{line}`, found that of `{made}`; name another "
            "--output, or remove the folder"
        )
