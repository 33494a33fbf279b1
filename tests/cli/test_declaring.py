"""What commands take from their options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields

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
    assert command.callback is not None
    takes = inspect.signature(command.callback).parameters
    names = inspect.unwrap(command.callback).__globals__
    made = {
        name: {field.name for field in fields(names[str(one.annotation)])}
        for name, one in takes.items()
        if str(one.annotation).endswith("Options")
    }
    for name in made:
        assert not any(name in parts for other, parts in made.items() if other != name), name
    taken = [name for parts in made.values() for name in parts] + [*takes.keys() - made.keys()]
    assert sorted(taken) == sorted(set(taken))
    assert {one.name for one in command.params if one.expose_value} <= set(taken), words
