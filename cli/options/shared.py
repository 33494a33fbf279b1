"""Options of the commands that evaluate and train, and those that they take as keywords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.options.encoder import (
    MINILM,
    device_option,
    download_option,
    encoder_option_list,
)
from cli.options.index import index_option
from cli.options.output import json_option, quiet_option
from cli.options.source import (
    id_field_option,
    on_error_option,
    text_field_option,
    title_field_option,
)

Command = TypeVar("Command", bound=Callable[..., Any])

__all__ = [
    "Command",
    "device_option",
    "download_option",
    "field_options",
    "index_option",
    "json_option",
    "measure_option",
    "model_options",
    "on_error_option",
    "quiet_option",
    "resampling_options",
]


def measure_option(default: tuple[str, ...]) -> Callable[[Command], Command]:
    """--measure, with the measures that a command shows if none are named."""
    return click.option(
        "-m",
        "--measure",
        "measures",
        multiple=True,
        default=default,
        show_default=True,
        help="nDCG@k, R@k, P@k, Success@k, AP, RR; may be repeated.",
    )


def resampling_options(command: Command) -> Command:
    """--resamples and --seed, of the randomization test and the bootstrap."""
    for option in (
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Random seed of the test and the bootstrap.",
        ),
        click.option(
            "--resamples",
            type=click.IntRange(min=100),
            default=10_000,
            show_default=True,
            help="Number of resamples of the randomization test and the bootstrap.",
        ),
    ):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Which encoder: the command takes them as keywords, for `cli.options.encoder.model_choice`."""
    decorated: Any = command
    for option in reversed(encoder_option_list(MINILM)):
        decorated = option(decorated)
    made: Command = decorated
    return made


def field_options(command: Command) -> Command:
    """--id-field, --text-field and --title-field, as keywords."""
    return id_field_option(text_field_option(title_field_option(command)))
