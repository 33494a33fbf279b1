"""Keeping the number of segments small."""

from __future__ import annotations

from indexes.merge_policy import next_merge
from indexes.segment_structure import StructureSettings
from indexes.writer import Writer


def merge(writer: Writer) -> int:
    """Merge segments as `indexes.merge_policy` says.

    Returns:
        How many segments were read.

    Raises:
        What `Writer.replace` raises; merges before it stand.
    """
    merged = 0
    while more := merge_once(writer):
        merged += more
    return merged


def merge_once(writer: Writer) -> int:
    """The first merge of those that `merge` makes, if there is one.

    Returns, Raises:
        See `merge`.
    """
    live = writer.segments()
    chosen = next_merge([len(one.segment.ids) for one in live], [one.dead for one in live])
    if chosen is None:
        return 0
    writer.replace(live[chosen.start : chosen.stop])
    return len(chosen)


def rebuild(writer: Writer, structures: StructureSettings) -> int:
    """Make all segments one with another search structure, which later merges give, too.

    Returns:
        How many segments were read.

    Raises:
        ConfigError, MissingExtraError: see `indexes.segment_structure.build_structure`.
        What `Writer.replace` raises; the index and its setting are then as before.
    """
    before, live = writer.structures, writer.segments()
    if live:
        # Said before anything is written.
        passages = sum(len(one.segment.ids) - one.dead for one in live)
        structures.choice(passages, live[0].segment.vectors.shape[1])
    writer.structures = structures
    try:
        if live:
            writer.replace(live)
    except BaseException:
        writer.structures = before
        raise
    return len(live)


def compact(writer: Writer) -> int:
    """Make all segments one, drop what is deleted, and give space back to the system.

    Returns, Raises:
        See `merge`.
    """
    live = writer.segments()
    needed = len(live) > 1 or any(one.dead for one in live)
    if needed:
        writer.replace(live)
    writer.vacuum()
    return len(live) if needed else 0
