"""`retriever inspect settings`: list settings by their keys."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from cli.options import Command, json_option, other_settings
from cli.output.text import say
from retriever.settings import Setting


@click.command("settings", cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@json_option
def settings_command(words: tuple[str, ...], as_json: bool) -> None:
    """List settings with their values, default, meaning and source.

    Without COMMAND, the command lists settings of encoders. They follow the model in --model, as in
    all-MiniLM-L6-v2::layers=0,6::pooling=cls. With COMMAND, such as `train encoder`, it lists the
    settings for --set.
    """
    from retriever.encoders import encoder_keys

    settings = _settings_of(words) if words else encoder_keys()
    if as_json:
        facts = [
            {
                "key": setting_.key,
                "values": setting_.expected,
                "default": setting_.default_text,
                "meaning": setting_.description,
                "source": setting_.source,
            }
            for setting_ in settings
        ]
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    for setting_ in settings:
        default = f"; default: {setting_.default_text}" if setting_.default_text else ""
        say(f"{setting_.key}: {setting_.expected}{default}", err=False)
        source = f" ({setting_.source})" if setting_.source else ""
        say(f"    {setting_.description}{source}", err=False)


def _settings_of(words: tuple[str, ...]) -> Iterable[Setting]:
    """Return the settings that the command of these words takes with --set."""
    from cli.main import cli

    command: click.Command | None = cli
    context = click.Context(cli, info_name="retriever")
    for word in words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    if command is None or isinstance(command, click.Group):
        raise click.UsageError(f"expected a command, found {' '.join(words)!r}")
    declared = other_settings(command)
    if not declared:
        raise click.UsageError(f"`retriever {' '.join(words)}` takes no --set: see its --help")
    return declared.values()
