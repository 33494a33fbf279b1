"""`retriever eval categories`: tasks of many reports side by side."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options.declaring import Command
from cli.options.evaluation import report_option
from cli.options.output import json_option


@click.command("categories", cls=Command)
@click.argument(
    "reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path)
)
@report_option("the report and heat maps")
@json_option
def command(reports: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Summarize reports of `eval sts`, `transfer`, `probe`, and `qa --by-layer`, by category.

    REPORT is a folder that --output of one of these wrote. Each value is divided by the best one of
    its task in all reports, then averaged over the tasks of a category, as in Ma et al. (2019).
    Reports with --by-layer give a heat map of tasks and hidden states for each pooling.
    """
    from cli.output.results import command_line, report
    from eval import check_report_folder, gather_categories

    if output is not None:
        check_report_folder(output)
    report(gather_categories(reports, command_line()), output, as_json=as_json)
