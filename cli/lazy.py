"""Groups of commands that import a command when it runs."""

from __future__ import annotations

import importlib

import click


class LazyGroup(click.Group):
    """A group whose subcommands are imported when first needed.

    Args:
        modules: subcommand name to the module that defines it as `command`.
    """

    def __init__(self, *args: object, modules: dict[str, str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands, in the order in which a user meets them."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None if there is none of that name."""
        if cmd_name not in self._modules:
            return None
        command: click.Command = importlib.import_module(self._modules[cmd_name]).command
        return command
