"""Building an index again while the old one serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

from indexes import Store, StructureSettings, open_store
from retriever.documents.analyzer import AnalyzerSettings
from retriever.documents.passages import PassageSettings
from retriever.encoders.encoder import ModelChoice
from retriever.encoders.registry import adopt
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import LoadedEncoder, TextEncoder
from retriever.index import Index
from retriever.indexing.creation import IndexKeywords, IndexSettings


@contextmanager
def recreated(
    folder: str | Path | Store,
    model: str | EncoderSettings = "",
    *,
    encoder: LoadedEncoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    **settings: Unpack[IndexKeywords],
) -> Iterator[Index]:
    """Build an index beside the old one, which it replaces if the block does not raise.

    Until then the old index serves readers and stays as it is, damaged or not; the new one grows
    in a hidden place beside it (see `Store.replacement`). If the block raises, or the process
    dies, that is kept: the next `recreated` with the same settings resumes it. The caller
    passes ``prune=True`` to `Index.add`, so that nothing of an earlier attempt with other sources
    stays. Where there is no old index, this is `Index.create`, whose arguments it takes.

    Raises:
        What `Index.create` raises; IndexLockedError: another writer holds the old index;
        NotAnIndexError: the folder, or one beside it that is needed, holds other files;
        ConfigError: the current folder is, or is inside, the one to be replaced.
    """
    store, asked = open_store(folder), IndexSettings.of(settings)
    choice = ModelChoice(str(model), device, download)
    loaded = None if encoder is None else adopt(encoder)
    begun_with = json.dumps(
        {
            "encoder": str(choice.settings if loaded is None else loaded.spec),
            "weights": choice.weights() if loaded is None else loaded.spec.weights,
            "analyzer": (asked.analyzer or AnalyzerSettings()).to_json(),
            "passages": asdict(asked.passages or PassageSettings()),
            "structures": (asked.structures or StructureSettings()).to_json(),
        }
    )
    with (
        store.replacement(begun_with) as new,
        Index.create(
            new, model, encoder=loaded, device=device, download=download, **settings
        ) as index,
    ):
        yield index
