"""What an index is and holds, as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from indexes import Store, StructureSettings, View
from retriever.encoders.registry import describe as describe_encoder
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
            **describe_encoder(encoder),
        },
        "analyzer": state.analyzer.settings.to_json(),
        "long_texts": asdict(state.passages),
        "structures": structures.to_json(),
        **view.describe(),
    }
