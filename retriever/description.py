"""What an index is and holds, as JSON values, and how much of the disk it takes."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from indexes.reader import Snapshot
from indexes.segments.segment import Segment
from indexes.vectors.segment_structure import StructureSettings
from retriever.analyzer import AnalyzerSettings
from retriever.encoders.spec import EncoderSpec
from retriever.indexing.passages import PassageSettings


def describe(
    folder: Path,
    snapshot: Snapshot,
    *,
    encoder: EncoderSpec,
    analyzer: AnalyzerSettings,
    passages: PassageSettings,
    structures: StructureSettings,
) -> dict[str, Any]:
    """The facts of an index.

    Args:
        folder: the index.
        snapshot: a commit of it.
        encoder: the encoder that the index was made with.
        analyzer: language of its BM25 side.
        passages: how it treats long texts.
        structures: how its large segments are searched.
    """
    return {
        "folder": str(folder.absolute()),
        "format_version": snapshot.format_version,
        "created": snapshot.setting("created"),
        "generation": snapshot.generation,
        "documents": snapshot.count_documents(),
        "passages": snapshot.statistics.passages,
        "deleted_passages": snapshot.count_tombstones(),
        "segments": [_describe_segment(live.segment) for live in snapshot.segments],
        "encoder": {
            **encoder.to_json(),
            "model": encoder.model,
            "max_length": encoder.max_length,
            "fingerprint": encoder.fingerprint,
        },
        "analyzer": analyzer.to_json(),
        "long_texts": asdict(passages),
        "structures": structures.to_json(),
        "mean_passage_terms": round(snapshot.statistics.mean_length, 3),
        "bytes": size_on_disk(folder),
    }


def size_on_disk(folder: Path) -> int:
    """Bytes of every file below `folder`."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A writer's temporary file, or a folder that was replaced, may have just gone.
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _describe_segment(segment: Segment) -> dict[str, Any]:
    return {
        "segment": segment.number,
        "passages": len(segment.ids),
        **segment.structure.to_json(),
        "bytes": size_on_disk(segment.folder),
    }
