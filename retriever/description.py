"""What an index is and holds, as JSON values, and how much of the disk it takes."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from indexes import LiveSegment, StructureSettings, View, remains
from retriever.encoders.loading import describe_backend
from retriever.encoders.meta.folder import is_meta_folder, read_folder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ModelError
from retriever.indexing.creation import COMPUTED, IndexState


def describe(
    folder: Path, view: View, state: IndexState, structures: StructureSettings
) -> dict[str, Any]:
    """The facts of an index.

    Args:
        folder: the index.
        view: of it.
        state: what it was made with.
        structures: how its large segments are searched.
    """
    encoder = state.encoder
    return {
        "folder": str(folder.absolute()),
        "format_version": view.format_version,
        "created": view.setting("created"),
        "generation": view.generation,
        "documents": view.count_documents(),
        "passages": view.statistics.passages,
        "deleted_passages": view.count_tombstones(),
        "waiting_passages": sum(len(one.postings) for one in view.segments if one.is_pending),
        "segments": [_describe_segment(one) for one in view.segments if not one.is_pending],
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
        "mean_passage_terms": round(view.statistics.mean_length, 3),
        "bytes": size_on_disk(folder),
        "remains": {str(path): what for path, what in remains(folder).items()},
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


def size_on_disk(folder: Path) -> int:
    """Bytes of every file below `folder`."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A writer's temporary file, or a folder that was replaced, may have just gone.
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _describe_segment(live: LiveSegment) -> dict[str, Any]:
    segment = live.segment
    return {
        "segment": segment.number,
        "passages": len(segment.ids),
        **segment.structure.to_json(),
        "bytes": size_on_disk(segment.folder),
    }
