"""What a new index is made with, and whether one that exists was made with the same."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from indexes.vectors.segment_structure import StructureSettings
from retriever.analyzer import Analyzer, AnalyzerSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError
from retriever.indexing.passages import PassageSettings

_Settings = AnalyzerSettings | PassageSettings | StructureSettings


def own_name(folder: str | Path) -> Path:
    """The path of a folder that can be replaced: not a link, nor written ``.`` or ``..``."""
    path = Path(folder)
    return path.resolve() if path.name in ("", "..") or path.is_symlink() else path


def initial_settings(
    encoder: EncoderSpec,
    analyzer: AnalyzerSettings | None,
    passages: PassageSettings | None,
    structures: StructureSettings | None,
) -> dict[str, Any]:
    """The settings of a new index, as JSON values.

    Args:
        encoder: its encoder.
        analyzer: language of the BM25 side; None takes English.
        passages: how long texts are treated; None splits them.
        structures: how large segments are searched; None chooses.

    Raises:
        ConfigError: FAISS does not know the structure.
        MissingExtraError: FAISS is not installed, and a factory string is given.
    """
    structures = structures or StructureSettings()
    structures.choice(0, encoder.dimensions)
    analyser = Analyzer(analyzer)
    return {
        "encoder": encoder.to_json(),
        "analyzer": analyser.settings.to_json(),
        "stop_list": sorted(analyser.stop_list),
        "passages": asdict(passages or PassageSettings()),
        "structures": structures.to_json(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def require_same(
    what: str,
    wanted: _Settings | None,
    found: _Settings,
    folder: Path,
    remedy: str = "make the index again with --recreate",
) -> None:
    """Check that an index has the settings that are asked for, if any are.

    Args:
        what: they are of, for the error.
        wanted: None where nothing is asked for.
        found: those of the index.
        folder: of the index.
        remedy: for the error.

    Raises:
        ConfigError: it has others.
    """
    if wanted is not None and wanted != found:
        raise ConfigError(
            f"{folder}: the index was made with {what} {_told(found)}, but {_told(wanted)} "
            f"was asked for; leave the option out, or {remedy}"
        )


def _told(settings: _Settings) -> str:
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    return ", ".join(f"{name}={value}" for name, value in given.items())
