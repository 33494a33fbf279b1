"""Showing where a filter goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from retriever.errors import FilterError


@contextmanager
def pointing(where: str | None) -> Iterator[None]:
    """If the filter `where` does not parse, show it with a caret below the character first."""
    try:
        yield
    except FilterError as error:
        from indexes.filters.grammar import point_at

        click.echo(point_at(where or "", error.position), err=True)
        raise
