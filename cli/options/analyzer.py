"""The text analyzer of BM25."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cli.options.declaring import F, option, settings

if TYPE_CHECKING:
    from retriever.documents.analyzer import AnalyzerSettings


@dataclass(frozen=True, slots=True)
class AnalyzerOptions:
    """Options of the analyzer; None for those that are not given."""

    language: str | None
    stemming: bool | None
    stop_words: bool | None

    def settings(self, base: AnalyzerSettings | None = None) -> AnalyzerSettings | None:
        """The given settings, the rest as in `base`; None if none is given.

        Raises:
            ConfigError: the language is unknown, or has no stemmer or stop words.
        """
        from retriever.documents.analyzer import AnalyzerSettings

        asked = {name: value for name, value in asdict(self).items() if value is not None}
        if not asked:
            return None
        return AnalyzerSettings.from_json({**(base or AnalyzerSettings()).to_json(), **asked})


def analyzer_options(default: str) -> Callable[[F], Callable[..., Any]]:
    """--language, --stemming and --stop-words: the command takes `analyzer: AnalyzerOptions`.

    Args:
        default: what the help says happens without an option; {} stands for the default of a new
            index.
    """
    return settings(
        "analyzer",
        AnalyzerOptions,
        [
            option(
                "--language",
                metavar="NAME",
                help="Language of the texts, or none.",
                shown_default=default.format("english"),
                section="BM25",
            ),
            option(
                "--stemming/--no-stemming",
                default=None,
                help="Reduce words to their stems.",
                shown_default=default.format("yes"),
                section="BM25",
            ),
            option(
                "--stop-words/--no-stop-words",
                default=None,
                help="Drop stop words such as `the` and `of`.",
                shown_default=default.format("yes"),
                section="BM25",
            ),
        ],
    )
