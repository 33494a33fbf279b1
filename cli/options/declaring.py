"""Declaring options: in sections of a help page, as typed settings, and what a shell completes.

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
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Section = Literal[
    "Index",
    "Service",
    "Input",
    "Search",
    "Ranking",
    "Scoring",
    "Training",
    "Encoder",
    "BM25",
    "Output",
    "Rarely needed",
]
RARE: Final = "Rarely needed"
SECTIONS: tuple[Section, ...] = get_args(Section)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

# As in `retriever.encoders.model_folders`, whose import takes longer than a key press should.
BUNDLED = ("all-MiniLM-L6-v2",)


def is_given(name: str) -> bool:
    """Whether the user gave a parameter of the running command, which may have a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


class Command(click.Command):
    """A command whose help page lists its options in sections, in the order of `Section`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its options, in the order in which they are declared."""
        for section, options in self.sections(ctx).items():
            with formatter.section(section):
                formatter.write_dl([one.get_help_record(ctx) or ("", "") for one in options])

    def sections(self, ctx: click.Context) -> dict[Section, list[click.Option]]:
        """The options of each section that has any; `--help` belongs to `Output`."""
        found: dict[Section, list[click.Option]] = {section: [] for section in SECTIONS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                found[getattr(parameter, "section", "Output")].append(parameter)
        return {section: options for section, options in found.items() if options}


class _Option(click.Option):
    """An option that belongs to a section of the help page."""

    def __init__(
        self, *args: Any, section: Section, shown_default: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **{"show_default": True, **kwargs})
        self.section = section
        self.shown_default = shown_default

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets after the help text."""
        extra = super().get_help_extra(ctx)
        if self.shown_default is not None:
            extra["default"] = self.shown_default
        return extra


def option(
    *names: str, section: Section, shown_default: str | None = None, **attributes: Any
) -> Callable[[F], F]:
    """As `click.option`, in a section of the help page of a `Command`.

    Args:
        names: of the option, as `click.option` takes them.
        section: of the help page.
        shown_default: what the help page says happens without the option, such as ``the index's
            own``; otherwise it shows the value of `default`, if there is one.
        attributes: other arguments of `click.option`.
    """
    return click.option(
        *names, cls=_Option, section=section, shown_default=shown_default, **attributes
    )


def settings(
    name: str, kind: Callable[..., T], options: Sequence[Decorator]
) -> Callable[[F], Callable[..., Any]]:
    """Options that a command takes as one value.

    Args:
        name: of the command's parameter.
        kind: a dataclass; its fields are named like the options' parameters. A field without an
            option keeps its default.
        options: as `option` makes them, in the order of the help page.
    """
    parts = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def decorate(command: F) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**arguments: Any) -> Any:
            arguments[name] = kind(
                **{part: arguments.pop(part) for part in parts if part in arguments}
            )
            return command(**arguments)

        made: Callable[..., Any] = call
        for one in reversed(options):
            made = one(made)
        return made

    return decorate


def complete_path(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A file or a folder, by the shell's own means."""
    return [CompletionItem(incomplete, type="file")]


def complete_model(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The name of a bundled model, else a path."""
    found = [CompletionItem(name) for name in BUNDLED if name.startswith(incomplete)]
    return found or complete_path(context, parameter, incomplete)


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
