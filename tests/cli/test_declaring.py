"""What commands take from their options."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from cli.main import cli


def commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*words, name))
        elif found is not None:
            yield " ".join((*words, name)), found


@pytest.mark.parametrize(("words", "command"), list(commands(cli)))
def test_each_value_that_a_command_takes_comes_from_one_place(words, command):
    """`head` of an encoder and `head` of a training would take each other's place."""
    names = [one.name for one in command.params]
    assert sorted(names) == sorted(set(names)), words
