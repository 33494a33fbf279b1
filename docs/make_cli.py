"""Writes build/docs/reference/commands.md and a page for each command in the folder `commands`.

A heading `## retriever NAME` of docs/reference/commands.md names the command to which its text
belongs. The rest of that page stays; a command's page adds its usage and its options.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from cli.main import cli
from cli.options import Command, other_settings

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "reference/commands.md"
PAGES = FOLDER.parent / "build/docs/reference"
_WIDTH = 100
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def pages() -> dict[str, str]:
    """Return the text of each page by its path below `reference`."""
    rest, notes = _source()
    texts = {"commands.md": _LINK.sub(_overview_link, rest)}
    for name, command, context in commands():
        parts = [f"# `{name}`", *_description(name, command, context)]
        if name in notes:
            parts.append(_LINK.sub(_command_link, notes.pop(name)))
        parts.append("\n".join(_option_table(command, context)))
        parts.append("\n".join(_setting_table(command)))
        texts[command_page(name)] = "\n\n".join(filter(None, parts)) + "\n"
    if notes:
        raise SystemExit(f"{SOURCE}: there is no command {', '.join(notes)}")
    return texts


def command_page(name: str) -> str:
    """Return the path of the page of `retriever eval qa`, or of its anchor, below `reference`."""
    return "commands/" + re.sub("^retriever[ -]", "", name).replace(" ", "-") + ".md"


def _overview_link(link: re.Match[str]) -> str:
    """Return a link of the overview, to a command's page in place of its heading."""
    if link[1] or not str(link[2]).startswith("#retriever-"):
        return link[0]
    return f"]({command_page(link[2][1:])})"


def _command_link(link: re.Match[str]) -> str:
    """Return a link of a command's page, which stands a folder below its text."""
    if link[1]:
        return f"](../{link[1]}{link[2] or ''})"
    if link[2].startswith("#retriever-"):
        return f"](../{command_page(link[2][1:])})"
    return f"](../commands.md{link[2]})"


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


def _source() -> tuple[str, dict[str, str]]:
    """Return the text outside the sections of commands, and the text of each command."""
    rest, *sections = re.split(r"^(?=## )", SOURCE.read_text("utf-8"), flags=re.MULTILINE)
    notes: dict[str, str] = {}
    for section in sections:
        heading, _, text = section.partition("\n")
        name = heading.removeprefix("## ").strip()
        if name.startswith("retriever "):
            notes[name] = text.strip()
        else:
            rest += section
    return rest.strip() + "\n", notes


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
        documented = [option for option in options if "--help" not in option.opts]
        if documented and section:
            yield f"| **{section}** | |"
        for option in documented:
            flags, text = option.get_help_record(context) or ("", "")
            yield f"| `{_cell(flags)}` | {_cell(text)} |"


def _setting_table(command: click.Command) -> Iterator[str]:
    """Yield a table of the settings that help leaves out."""
    settings = other_settings(command)
    if settings:
        yield "## Other settings"
        yield ""
        yield "| key | values | default | |"
        yield "|---|---|---|---|"
    for setting in settings.values():
        source = f" ({setting.source})" if setting.source else ""
        cells = (f"`{setting.key}`", setting.expected, setting.default_text)
        meaning = setting.description + source
        yield "| " + " | ".join(map(_cell, (*cells, meaning))) + " |"


def _sections(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    if isinstance(command, Command):
        return {section: list(options) for section, options in command.sections(context).items()}
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    return {"": options}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _write() -> None:
    (PAGES / "commands").mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        (PAGES / path).write_text(text, "utf-8")


if __name__ == "__main__":
    _write()
