"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

index_option = click.option(
    "-i",
    "--index",
    "folder",
    type=click.Path(path_type=Path),
    default=".retriever",
    envvar="RETRIEVER_INDEX",
    show_default=True,
    show_envvar=True,
    help="The index folder.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
on_error_option = click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="A bad record stops the command, or is counted and skipped.",
)


def model_options(command: Command) -> Command:
    """--model, --max-length, --device, --download."""
    for option in reversed(
        [
            click.option(
                "--model",
                help="A model folder, a bundled model's name, or a hub id in the local cache. "
                "[default: the index's own; all-MiniLM-L6-v2 for a new one]",
            ),
            click.option(
                "--max-length",
                type=click.IntRange(min=8),
                help="The window in word pieces. [default: the model's]",
            ),
            click.option("--device", help="cpu, cuda, ... [default: a GPU if there is one]"),
            click.option(
                "--download", is_flag=True, help="Fetch a model that is not in the local hub cache."
            ),
        ]
    ):
        command = option(command)
    return command


def field_options(command: Command) -> Command:
    """--id-field, --text-field, --title-field."""
    for name, default in (
        ("title", "title"),
        ("text", "text, contents, passage or sentence"),
        ("id", "id or _id; made if there is none"),
    ):
        command = click.option(
            f"--{name}-field", help=f"The field that holds the {name}. [default: {default}]"
        )(command)
    return command
