"""Keeping the number of segments small.

Before a merge that builds a search structure, a line on the logger of this module, of level INFO,
says how many passages it reads and how much memory it takes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from indexes.progress import Stage, no_progress
from indexes.segments.live import LiveSegment
from indexes.segments.policy import next_merge
from indexes.vectors.choice import FLAT, Choice, StructureSettings
from indexes.writer import Writer

LOG = logging.getLogger(__name__)


def merge(writer: Writer, stage: Stage = no_progress) -> int:
    """Merge segments as `indexes.segments.policy` says.

    Args:
        writer: of the index.
        stage: told how far each search structure is.

    Returns:
        How many segments were read.

    Raises:
        What `Writer.replace` raises; merges before it stand.
    """
    merged = 0
    while more := merge_once(writer, stage):
        merged += more
    return merged


def merge_once(writer: Writer, stage: Stage = no_progress) -> int:
    """The first merge of those that `merge` makes, if there is one; see `merge`."""
    live = writer.segments()
    chosen = next_merge([len(one.segment.ids) for one in live], [len(one.deleted) for one in live])
    if chosen is None:
        return 0
    _replace(writer, live[chosen.start : chosen.stop], None, stage)
    return len(chosen)


def rebuild(writer: Writer, structures: StructureSettings, stage: Stage = no_progress) -> int:
    """Make all segments one with another search structure, which later merges give, too.

    Returns:
        How many segments were read.

    Raises:
        ConfigError, MissingExtraError: see `build_structure`.
        What `Writer.replace` raises; the index and its setting are then as before.
    """
    # Refused before anything is written.
    planned_choice(writer.segments(), structures)
    writer.flush()
    live = writer.segments()
    _replace(writer, live, structures, stage)
    return len(live)


def compact(writer: Writer, stage: Stage = no_progress) -> int:
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
        ConfigError, MissingExtraError: see `StructureSettings.choice`.
    """
    passages = sum(len(one.segment.ids) - len(one.deleted) for one in live)
    dimensions = live[0].segment.vectors.shape[1] if live else 1
    return structures.choice(passages, dimensions)


def _replace(
    writer: Writer,
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
