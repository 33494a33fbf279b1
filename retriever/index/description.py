"""What an index is and holds, as JSON values."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from indexes import Store, StructureSettings, View
from retriever.encoders.loading.load import describe_backend
from retriever.encoders.meta.folder import is_meta_folder, read_folder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ModelError
from retriever.indexing.creation import COMPUTED, IndexState


def describe(
    store: Store, view: View, state: IndexState, structures: StructureSettings
) -> dict[str, Any]:
    """The facts of an index, those of its store among them.

    Args:
        store: the index.
        view: of it.
        state: what it was made with.
        structures: how its vectors are searched.
    """
    encoder = state.encoder
    return {
        "index": str(store),
        "created": view.setting("created"),
        "documents": view.count_documents(),
        "passages": view.passage_count,
        "encoder": {
            **encoder.to_json(),
            "model": encoder.model,
            "max_length": encoder.max_length,
            "fingerprint": encoder.fingerprint,
            "computed": view.setting(COMPUTED, []),
            "backend": describe_backend(encoder),
            "meta": _describe_meta(encoder),
        },
        "analyzer": state.analyzer.settings.to_json(),
        "long_texts": asdict(state.passages),
        "structures": structures.to_json(),
        **view.describe(),
    }


def _describe_meta(encoder: EncoderSpec) -> dict[str, Any] | None:
    """The sources of a meta-embedding, if its folder is still there."""
    if not is_meta_folder(encoder.model):
        return None
    with suppress(ModelError):
        parts = read_folder(Path(encoder.model))
        if parts.identity() == encoder.weights:
            return parts.describe()
    return None
