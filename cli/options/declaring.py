"""Declaring options: in sections of a help page, and as typed settings.

A command of the class `Command` lists its options section by section, the rare ones last:

>>> @click.command("query", cls=Command)
... @option("-k", type=int, default=10, help="Number of hits.", section="Ranking")
... @settings("output", OutputOptions, [json_option, quiet_option])
... def command(k: int, output: OutputOptions) -> None: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Section = Literal[
    "Input", "Search", "Ranking", "Training", "Encoder", "BM25", "Output", "Rarely needed"
]
_ORDER: tuple[str, ...] = get_args(Section)
T = TypeVar("T")


class Command(click.Command):
    """A command whose help page lists its options in sections, in the order of `Section`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; `--help` itself comes under `Output`."""
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in _ORDER}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                rows[getattr(parameter, "section", "Output")].append(record)
        for section, records in rows.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


class _Option(click.Option):
    """An option that belongs to a section of the help page."""

    def __init__(self, *args: Any, section: Section, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def option(*names: str, section: Section, **attributes: Any) -> Decorator:
    """As `click.option`, in a section of the help page of a `Command`."""
    return click.option(*names, cls=_Option, section=section, **attributes)


def settings(name: str, kind: Callable[..., T], options: Sequence[Decorator]) -> Decorator:
    """Options that a command takes as one value.

    Args:
        name: of the command's parameter.
        kind: a dataclass; its fields are named like the options' parameters.
        options: as `option` makes them, in the order of the help page.
    """
    parts = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**arguments: Any) -> Any:
            arguments[name] = kind(**{part: arguments.pop(part) for part in parts})
            return command(**arguments)

        made: Callable[..., Any] = call
        for one in reversed(options):
            made = one(made)
        return made

    return decorate
