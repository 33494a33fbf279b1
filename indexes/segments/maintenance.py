"""Keeping the number of segments small, and queries fast.

Before a merge that builds a search structure, a line on the logger of this module, of level INFO,
says how many passages it reads and how much memory it takes; `settle` says afterwards how long it
took.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from indexes.folder.writer import FolderWriter
from indexes.progress import Stage, no_progress
from indexes.segments.live import LiveSegment
from indexes.segments.policy import Part, faster_merge, next_merge
from indexes.vectors.choice import FLAT, Choice, StructureSettings
from indexes.vectors.segment_structure import buildable_choice

LOG = logging.getLogger(__name__)


def merge(writer: FolderWriter, stage: Stage = no_progress) -> int:
    """Merge segments as `indexes.segments.policy` says.

    Args:
        writer: of the index.
        stage: receives the progress of each search structure.

    Returns:
        How many segments were read.

    Raises:
        What `FolderWriter.replace` raises; merges before it stand.
    """
    merged = 0
    while more := merge_once(writer, stage):
        merged += more
    return merged


def merge_once(writer: FolderWriter, stage: Stage = no_progress) -> int:
    """The first merge of those that `merge` makes, if there is one; see `merge`."""
    live = writer.segments()
    chosen = next_merge([len(one.segment.ids) for one in live], [len(one.deleted) for one in live])
    if chosen is None:
        return 0
    _replace(writer, live[chosen.start : chosen.stop], None, stage)
    return len(chosen)


def settle(writer: FolderWriter, added: int, stage: Stage = no_progress) -> int:
    """The merge at the end of a run that adds passages, if it makes queries faster.

    See `indexes.segments.policy.faster_merge`. Where segments are merged, the passages that wait in
    the database are merged with them.

    Args:
        writer: of the index.
        added: how many passages the run has added.
        stage: receives the progress of the search structure.

    Returns:
        How many segments were read; 0 if there was nothing worth merging.

    Raises:
        See `merge`.
    """
    if _faster_merge(writer, added) is None:
        return 0
    writer.flush()
    chosen = _faster_merge(writer, added)
    if chosen is None:
        return 0
    started, read = time.monotonic(), f"{len(chosen)} segment{'s' * (len(chosen) > 1)}"
    _replace(writer, chosen, None, stage)
    name = planned_choice(chosen, writer.structures).spec.name
    if name != FLAT:
        took = time.monotonic() - started
        LOG.info("%s: %s merged into one (%s) in %.1f s", writer.folder, read, name, took)
    return len(chosen)


def rebuild(writer: FolderWriter, structures: StructureSettings, stage: Stage = no_progress) -> int:
    """Make all segments one with another search structure, which later merges give, too.

    Returns:
        How many segments were read.

    Raises:
        ConfigError, MissingExtraError: see `build_structure`.
        What `FolderWriter.replace` raises; the index and its setting are then as before.
    """
    # Refused before anything is written.
    planned_choice(writer.segments(), structures)
    writer.flush()
    live = writer.segments()
    _replace(writer, live, structures, stage)
    return len(live)


def compact(writer: FolderWriter, stage: Stage = no_progress) -> int:
    """Make all segments one, drop what is deleted, and give space back.

    A single segment is rewritten, too, where it is as a commit left it and is to have a structure.
    Altered values of metadata are read from the documents again.

    Returns, Raises:
        See `merge`.
    """
    writer.repair_values()
    writer.flush()
    live = writer.segments()
    needed = len(live) > 1 or any(one.deleted for one in live)
    if not needed and live and not live[0].segment.structure.reasons:
        needed = planned_choice(live, writer.structures).spec.name != FLAT
    if needed:
        _replace(writer, live, None, stage)
    writer.vacuum()
    return len(live) if needed else 0


def planned_choice(live: Sequence[LiveSegment], structures: StructureSettings) -> Choice:
    """The structure that the live passages of some segments get together.

    Raises:
        ConfigError, MissingExtraError: see `build_structure`.
    """
    passages = sum(len(one.segment.ids) - len(one.deleted) for one in live)
    dimensions = live[0].segment.vectors.shape[1] if live else 1
    return buildable_choice(structures, passages, dimensions)


def _faster_merge(writer: FolderWriter, added: int) -> Sequence[LiveSegment] | None:
    """The segments to merge for faster queries."""
    live, structures = writer.segments(), writer.structures

    def is_scanned(passages: int) -> bool:
        dimensions = live[0].segment.vectors.shape[1]
        return buildable_choice(structures, passages, dimensions).spec.name == FLAT

    parts = [
        Part(len(one.segment.ids) - len(one.deleted), one.segment.structure.structure is None)
        for one in live
    ]
    chosen = faster_merge(parts, added, is_scanned)
    return None if chosen is None else live[chosen.start : chosen.stop]


def _replace(
    writer: FolderWriter,
    live: Sequence[LiveSegment],
    structures: StructureSettings | None,
    stage: Stage,
) -> None:
    choice = planned_choice(live, structures or writer.structures)
    if choice.spec.name != FLAT:
        LOG.info(
            "%s: merging %s passages and building their search structure (%s), which takes up to "
            "%s of memory",
            writer.folder,
            f"{sum(len(one.segment.ids) - len(one.deleted) for one in live):,}",
            choice.spec.name,
            choice.build_size,
        )
    writer.replace(live, structures, stage)
