"""The analyser of the BM25 side, as options of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from retriever.analyzer import AnalyzerSettings

Command = TypeVar("Command", bound=Callable[..., Any])


def analyzer_options(command: Command) -> Command:
    """--language, --stemming and --stop-words, for `analyzer_settings`."""
    for option in (
        click.option("--stop-words/--no-stop-words", default=None, help="Leave out `the`, `of` …"),
        click.option("--stemming/--no-stemming", default=None, help="Reduce words to stems."),
        click.option(
            "--language",
            help="Language of the BM25 side, or none. [default: english, or the index's own]",
        ),
    ):
        command = option(command)
    return command


def analyzer_settings(
    language: str | None,
    stemming: bool | None,
    stop_words: bool | None,
    base: AnalyzerSettings | None = None,
) -> AnalyzerSettings | None:
    """What the options ask for, the rest as in `base`, or None where no option was given.

    Raises:
        ConfigError: the language is unknown, or lacks what is asked for.
    """
    from retriever.analyzer import AnalyzerSettings

    given = {"language": language, "stemming": stemming, "stop_words": stop_words}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        return None
    return AnalyzerSettings.from_json({**(base or AnalyzerSettings()).to_json(), **chosen})
