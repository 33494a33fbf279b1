"""The report of an evaluation on sets of sentences, as files: for people, papers and programs.

::

    report.md           tables, and how they came about
    report.tex          the same tables for LaTeX
    report.json         all of it
    examples.SET.csv    each pair's or text's value under each encoder
    figures/            PNG and SVG, where matplotlib is installed
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from eval.reports.files import check_report_folder, finish_report, make_folder, write_text
from eval.reports.latex import latex_escaped, latex_table
from eval.reports.markdown import escaped, printable, table
from eval.reports.sentence_figures import draw_sentence_figures
from eval.reports.sentence_tables import ReportTable, grid_tables, overview, remarks_on, set_tables
from eval.sentences.result import LayerGrid, SentenceResult, SetScores

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_FILE = 80


def write_sentence_report(folder: Path, result: SentenceResult) -> list[Path]:
    """Write a report; files of the same names are replaced, others in the folder stay.

    Without matplotlib there are no figures, and report.md says so.

    Returns:
        The files, report.md last.

    Raises:
        StorageError: the folder or a file of it cannot be written.
    """
    check_report_folder(folder)
    make_folder(folder)
    written = [folder / "report.json", folder / "report.tex"]
    text = json.dumps(sentence_json(result), indent=1, allow_nan=False)
    write_text(written[0], f"{text}\n")
    write_text(written[1], "\n".join(latex(result)) + "\n")
    for number, one in enumerate(result.sets, 1):
        safe = _UNSAFE.sub("-", one.name)[:_LONGEST_FILE].strip("-.") or str(number)
        path = folder / f"examples.{safe}.csv"
        if path in written:
            path = folder / f"examples.{safe}-{number}.csv"
        written.append(path)
        write_text(path, _examples(one))
    return finish_report(
        folder,
        written,
        lambda figures: draw_sentence_figures(figures, result),
        lambda files, remarks: markdown(result, files, remarks),
    )


def sentence_json(result: SentenceResult) -> dict[str, object]:
    """All of a result but the examples, as objects that JSON has; numbers finite."""
    return {
        "kind": result.kind,
        "command": result.command,
        "environment": dict(result.environment),
        "settings": dict(result.settings),
        "measures": list(result.measures),
        "baseline": result.baseline,
        "remarks": list(remarks_on(result)),
        "sets": [_set_json(one) for one in result.sets],
        "by_layer": [_grid_json(one) for one in result.grids],
    }


def latex(result: SentenceResult) -> Iterator[str]:
    r"""The lines of report.tex, for \input; the first one names the packages."""
    yield r"% needs \usepackage{booktabs,longtable}"
    yield f"% {printable(result.command)}"
    for number, one in enumerate(_tables(result), 1):
        yield ""
        yield from latex_table(one.title, one.header, one.rows, f"tab:{result.kind}-{number}")
    yield ""
    yield r"\begin{itemize}"
    yield from (rf"\item {latex_escaped(remark)}" for remark in remarks_on(result))
    yield r"\end{itemize}"


def markdown(result: SentenceResult, files: Sequence[str], remarks: Sequence[str]) -> Iterator[str]:
    """The lines of report.md.

    Args:
        result: what to report.
        files: what was written beside it, as relative paths.
        remarks: on what was not written.
    """
    yield f"# {escaped(result.title)}"
    yield ""
    # Indented, so that nothing in it can end the block.
    yield f"    {printable(result.command)}"
    for one in (*overview(result), *grid_tables(result)):
        yield from _markdown_table(one)
    yield ""
    yield from (f"- {escaped(remark)}" for remark in (*remarks_on(result), *remarks))
    for of in result.sets:
        yield ""
        yield f"## {escaped(of.name)}"
        yield from table(("", ""), list(of.facts.items()), align="---")
        for one in set_tables(result, of):
            yield from _markdown_table(one)
    yield ""
    yield "## Settings"
    yield from table(("", ""), list(result.settings.items()), align="---")
    yield ""
    yield "## Environment"
    yield from table(("", ""), list(result.environment.items()), align="---")
    yield ""
    yield "## Files"
    yield ""
    for file in files:
        shown = file.startswith("figures/") and file.endswith(".png")
        yield f"- {'!' if shown else ''}[{escaped(file)}]({file})"


def _tables(result: SentenceResult) -> Iterator[ReportTable]:
    yield from overview(result)
    yield from grid_tables(result)
    for of in result.sets:
        yield from set_tables(result, of)


def _markdown_table(one: ReportTable) -> Iterator[str]:
    yield ""
    yield f"**{escaped(one.title)}**"
    yield from table(one.header, one.rows)


def _set_json(of: SetScores) -> dict[str, object]:
    return {
        "set": of.name,
        "facts": dict(of.facts),
        "texts": of.texts,
        "scores": [
            {
                "encoder": score.encoder,
                "cut": score.cut,
                "values": {name: asdict(value) for name, value in score.values.items()},
                "extra": dict(score.extra),
                "note": score.note,
                "details": dict(score.details),
            }
            for score in of.scores
        ],
    }


def _grid_json(grid: LayerGrid) -> dict[str, object]:
    layer, pooling = grid.best
    return {
        "set": grid.name,
        "encoder": grid.encoder,
        "measure": grid.measure,
        "poolings": list(grid.poolings),
        "values": grid.values.tolist(),
        "spread": None if grid.spread is None else grid.spread.tolist(),
        "best": {"hidden_state": layer, "pooling": pooling},
        "cut": grid.cut,
        "texts": grid.texts,
    }


def _examples(of: SetScores) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*of.examples, *(score.encoder for score in of.scores)])
    values = [[repr(value) for value in score.examples.tolist()] for score in of.scores]
    writer.writerows(zip(*of.examples.values(), *values, strict=True))
    return text.getvalue()
