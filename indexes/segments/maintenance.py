"""Keeping the number of segments small.

Before a merge whose search structure is expected to take more than ten seconds to build, a line on
the logger of this module, of level INFO, says how long, how much memory and how large a file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexes.errors import MissingExtraError
from indexes.segments.live import LiveSegment
from indexes.segments.policy import next_merge
from indexes.vectors.choice import FLAT
from indexes.vectors.estimate import TRIAL_ROWS, Estimate, count_work, estimate, time_rates
from indexes.vectors.segment_structure import StructureSettings
from indexes.writer import Writer

LOG = logging.getLogger(__name__)

# What is worth a line; and the multiplications that take less on any machine.
_LONG_SECONDS, _QUICK = 10.0, 10**9


def merge(writer: Writer) -> int:
    """Merge segments as `indexes.segments.policy` says.

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
    _replace(writer, live[chosen.start : chosen.stop])
    return len(chosen)


def rebuild(writer: Writer, structures: StructureSettings) -> int:
    """Make all segments one with another search structure, which later merges give, too.

    Returns:
        How many segments were read.

    Raises:
        ConfigError, MissingExtraError: see `indexes.vectors.segment_structure.build_structure`.
        What `Writer.replace` raises; the index and its setting are then as before.
    """
    live = writer.segments()
    if live:
        # Said before anything is written.
        structures.choice(*_live_shape(live))
    writer.replace(live, structures)
    return len(live)


def compact(writer: Writer) -> int:
    """Make all segments one, drop what is deleted, renew the columns, and give space back.

    A single segment is made anew, too, where it is as a commit left it and is to have a structure.

    Returns, Raises:
        See `merge`.
    """
    live = writer.segments()
    needed = len(live) > 1 or any(one.dead for one in live)
    if not needed and live and not live[0].segment.structure.reasons:
        needed = writer.structures.choice(*_live_shape(live)).spec.name != FLAT
    if needed:
        _replace(writer, live)
    writer.vacuum()
    return len(live) if needed else 0


def estimate_build(
    live: Sequence[LiveSegment], structures: StructureSettings, *, at_least: int = 0
) -> Estimate | None:
    """What it takes to build the structure of the live passages of some segments.

    Args:
        live: the segments.
        structures: which structure they get together.
        at_least: None is returned for fewer multiplications.

    Returns:
        None as well where there is nothing to build, or no FAISS to build it with.

    Raises:
        ConfigError, MissingExtraError: see `StructureSettings.choice`.
    """
    n, d = _live_shape(live)
    if n == 0:
        return None
    choice = structures.choice(n, d)
    work = count_work(choice.facts, n, d)
    if choice.facts is None or work.total < at_least:
        return None
    try:
        return estimate(choice, work, time_rates(choice.facts, _sample(live)))
    except MissingExtraError:
        return None


def _replace(writer: Writer, live: Sequence[LiveSegment]) -> None:
    """Merge segments, and say so before where it takes long."""
    expected = estimate_build(live, writer.structures, at_least=_QUICK)
    if expected is not None and expected.seconds > _LONG_SECONDS:
        LOG.info(
            "%s: merging %s passages and building their search structure takes %s",
            writer.folder,
            f"{_live_shape(live)[0]:,}",
            expected,
        )
    writer.replace(live)


def _live_shape(live: Sequence[LiveSegment]) -> tuple[int, int]:
    """Live passages, and dimensions of their vectors (0 where there is no segment)."""
    passages = sum(len(one.segment.ids) - one.dead for one in live)
    return passages, live[0].segment.vectors.shape[1] if live else 0


def _sample(live: Sequence[LiveSegment]) -> NDArray[np.float32]:
    """Vectors of the largest segment, drawn evenly."""
    vectors = max((one.segment.vectors for one in live), key=len)
    return np.ascontiguousarray(vectors[:: -(-len(vectors) // TRIAL_ROWS)])
