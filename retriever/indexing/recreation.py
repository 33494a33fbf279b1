"""Building an index again while the old one serves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

from indexes import (
    DATABASE_FILE,
    StructureSettings,
    WriterLock,
    aside_of,
    foreign_files,
    new_folder,
    recover_replacement,
    replace_folder,
    require_vacant,
    storage_errors,
)
from retriever.analyzer import AnalyzerSettings
from retriever.encoders.choice import ModelChoice
from retriever.encoders.protocol import LoadedEncoder, TextEncoder, adopt
from retriever.encoders.settings import EncoderSettings
from retriever.errors import ConfigError, NotAnIndexError, RetrieverError
from retriever.index import Index
from retriever.indexing.creation import IndexKeywords, IndexSettings, index_path
from retriever.indexing.passages import PassageSettings

# Says that the folder is an unfinished recreation, and with which settings it was begun.
_MARKER = f"{DATABASE_FILE}-unfinished"


@contextmanager
def recreated(
    folder: str | Path,
    model: str | EncoderSettings = "",
    *,
    encoder: LoadedEncoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    **settings: Unpack[IndexKeywords],
) -> Iterator[Index]:
    """Build an index beside the old one, which it replaces when the block ends well.

    Until then the old index serves readers and stays as it is, damaged or not; the new one grows
    in a hidden folder beside it (see `replacement`). If the block raises, or the process
    dies, that folder is kept: the next `recreated` with the same settings resumes it. The caller
    passes ``prune=True`` to `Index.add`, so that nothing of an earlier attempt with other sources
    stays. Where there is no old index, this is `Index.create`, whose arguments it takes.

    Raises:
        What `Index.create` raises; IndexLockedError: another writer holds the old index;
        NotAnIndexError: the folder, or one beside it that is needed, holds other files;
        ConfigError: the current folder is, or lies in, the one to be replaced.
    """
    folder, asked = index_path(folder), IndexSettings.of(settings)
    choice = ModelChoice(str(model), device, download)
    loaded = None if encoder is None else adopt(encoder)
    recover_replacement(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        with Index.create(
            folder, model, encoder=loaded, device=device, download=download, **settings
        ) as index:
            yield index
        return
    strangers = foreign_files(folder)
    if strangers:
        raise NotAnIndexError(
            f"{folder}: holds {strangers[0]!r}, which is no part of an index and would be lost; "
            "move it away, or choose another folder with -i"
        )
    if Path.cwd().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{folder}: the folder is to be replaced and is the current one, or holds it: run the "
            "command from another folder"
        )
    new = new_folder(folder)
    for beside in (new, aside_of(folder)):
        # Somebody's own folder may have this name.
        require_vacant(beside)
    begun_with = json.dumps(
        {
            "encoder": str(choice.settings if loaded is None else loaded.spec),
            "weights": choice.weights() if loaded is None else loaded.spec.weights,
            "analyzer": (asked.analyzer or AnalyzerSettings()).to_json(),
            "passages": asdict(asked.passages or PassageSettings()),
            "structures": (asked.structures or StructureSettings()).to_json(),
        }
    )
    marker = new / _MARKER
    with WriterLock(folder):
        with storage_errors(new):
            if not marker.is_file() or marker.read_text() != begun_with:
                # Other settings, or the old index that a finished replacement left behind. The
                # marker goes first: nobody is to resume what an interruption leaves of it.
                marker.unlink(missing_ok=True)
                shutil.rmtree(new, ignore_errors=True)
            new.mkdir(exist_ok=True)
            marker.write_text(begun_with)
        try:
            index = Index.create(
                new, model, encoder=loaded, device=device, download=download, **settings
            )
        except RetrieverError:
            if [path.name for path in new.iterdir()] == [_MARKER]:
                shutil.rmtree(new, ignore_errors=True)
            raise
        with index:
            yield index
        with storage_errors(folder):
            marker.unlink()
            replace_folder(new, folder)
