"""Create the index of a place, or open the one that is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from indexes import open_store
from retriever.encoders.encoder import Encoder, ModelChoice, wrap_encoder
from retriever.errors import ConfigError, EncoderMismatchError
from retriever.search.opened import (
    IndexSettings,
    OpenedIndex,
    changed_settings,
    holds_documents,
    initial_settings,
)

if TYPE_CHECKING:
    from indexes import Store
    from retriever.encoders.spec import TextEncoder


def create_index(
    folder: str | Path | Store,
    choice: ModelChoice,
    encoder: Encoder | TextEncoder | None,
    settings: IndexSettings,
    *,
    lock_timeout: float = 0.0,
    exist_ok: bool = True,
) -> OpenedIndex:
    """Open the index of a place, which is created if there is none; see `Index.create`."""
    if encoder is not None and choice.encoder:
        raise TypeError("model and encoder are both given: give one of them")
    store = open_store(folder)
    loaded = wrap_encoder(encoder)
    if store.exists() and not exist_ok:
        raise ConfigError(f"{store}: the index exists; open it with Index.open")
    if not store.exists():
        loaded = loaded or choice.load()
        store.create(initial_settings(loaded, settings), lock_timeout)
    try:
        return OpenedIndex(store, choice, loaded, settings)
    except (ConfigError, EncoderMismatchError):
        if holds_documents(store):
            raise
        new_settings = changed_settings(store, settings, choice, loaded)
        with store.replacement(json.dumps(new_settings)) as new:
            # Under the lock, since another process may have added some meanwhile.
            if holds_documents(store):
                raise
            new.create(new_settings)
    return OpenedIndex(store, choice, loaded, settings)
