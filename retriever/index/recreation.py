"""An index built again from its sources, while the old one serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from indexes import Store, open_store
from retriever.encoders.encoder import Encoder, ModelChoice, wrap_encoder
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import TextEncoder
from retriever.index.index import Index
from retriever.index.reindexing import replacement
from retriever.search.opened import IndexKeywords, IndexSettings


@contextmanager
def recreated(
    folder: str | Path | Store,
    model: str | Path | EncoderSettings = "",
    *,
    encoder: Encoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    **settings: Unpack[IndexKeywords],
) -> Iterator[Index]:
    """Build an index beside the old one, and replace the old one when the block ends.

    Until then the old index serves readers and stays as it is, damaged or not. The new one is built
    in a hidden folder beside it. If the block raises or the process dies, the new index is kept,
    and the next `recreated` with the same settings resumes it. Pass ``prune=True`` to `Index.add`
    to delete documents that an earlier attempt added from other sources. If there is no old index,
    this does the same as `Index.create`, and takes the same arguments.

    Raises:
        What `Index.create` raises.
        IndexLockedError: another writer holds the old index.
        NotAnIndexError: the folder, or one beside it that is needed, holds other files.
        ConfigError: the current folder is, or is inside, the one to be replaced.
    """
    choice = ModelChoice(model, device, download)
    requested = IndexSettings.of(settings)
    with replacement(open_store(folder), choice, wrap_encoder(encoder), requested) as opened:
        yield Index(opened)
