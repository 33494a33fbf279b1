"""Writes build/docs/reference/commands.md: commands and options, with the text of commands.md.

A heading `## retriever NAME` of that page names the command to which its text belongs. The text
before the first of them begins the page; other headings after it end the page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from cli.main import cli
from cli.options import Command

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "reference/commands.md"
PAGE = FOLDER.parent / "build/docs/reference/commands.md"
_WIDTH = 100


def reference() -> str:
    """The content of the page."""
    before, notes, after = _source()
    parts = [before.strip()]
    for name, command, context in commands():
        parts += [f"## `{name}`", *_description(name, command, context)]
        if name in notes:
            parts.append(notes.pop(name))
        parts.append("\n".join(_option_table(command, context)))
    if notes:
        raise SystemExit(f"{SOURCE}: there is no command {', '.join(notes)}")
    return "\n\n".join([*parts, after.strip()]) + "\n"


def commands(
    group: click.Group = cli, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """The full name of each command that is not a group, in the order of the tree."""
    context = parent or click.Context(cli, info_name="retriever", **cli.context_settings)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from commands(command, below)
        else:
            yield below.command_path, command, below


def _source() -> tuple[str, dict[str, str], str]:
    """The text before the commands' notes, the notes by command, the text after them."""
    before, *sections = re.split(r"^(?=## )", SOURCE.read_text("utf-8"), flags=re.MULTILINE)
    notes: dict[str, str] = {}
    after = ""
    for section in sections:
        heading, _, text = section.partition("\n")
        name = heading.removeprefix("## ").strip()
        if name.startswith("retriever "):
            notes[name] = text.strip()
        elif notes:
            after += section
        else:
            before += section
    return before, notes, after


def _description(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(piece for piece in command.collect_usage_pieces(context))
    for number, paragraph in enumerate(textwrap.dedent(command.help or "").strip().split("\n\n")):
        # Words such as `data.db::table` and <name> are text, not markup.
        yield textwrap.fill(" ".join(paragraph.split()).replace("<", "\\<"), _WIDTH)
        if number == 0:
            yield f"```\n{name} {usage}\n```"


def _option_table(command: click.Command, context: click.Context) -> Iterator[str]:
    """A table of the options."""
    yield "| option | |"
    yield "|---|---|"
    for section, options in _sections(command, context).items():
        shown = [one for one in options if "--help" not in one.opts]
        if shown and section:
            yield f"| **{section}** | |"
        for one in shown:
            names_, text = one.get_help_record(context) or ("", "")
            yield f"| `{_cell(names_)}` | {_cell(text)} |"


def _sections(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    if isinstance(command, Command):
        return {section: list(options) for section, options in command.sections(context).items()}
    return {"": [one for one in command.get_params(context) if isinstance(one, click.Option)]}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(reference(), "utf-8")
