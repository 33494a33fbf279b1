"""What a shell completes beyond the types of options: paths, and names of models."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

# As in `retriever.encoders.models.finding`, whose import takes longer than a key press should.
BUNDLED = ("all-MiniLM-L6-v2",)


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
