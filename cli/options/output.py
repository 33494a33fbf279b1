"""How a command reports: as JSON, without progress, or into a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from cli.options.declaring import F, option

json_option = option("--json", "as_json", is_flag=True, help="Print JSON.", section="Output")
quiet_option = option(
    "-q", "--quiet", is_flag=True, help="Print neither progress nor a summary.", section="Output"
)


def output_folder(content: str) -> Callable[[F], F]:
    """--output, which the command needs; `content` is what the help says is in the folder."""
    return option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FOLDER",
        help=content,
        section="Output",
    )
