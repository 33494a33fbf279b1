"""Which segments to merge, and when: few segments, and little written for each passage added.

Segments have tiers by size: tier 0 holds up to `FLOOR` passages, each further one `FACTOR` times as
many. Two rules keep n passages in fewer than FACTOR segments of each of log(n) tiers:

1. From old to new, tiers never rise: segments that are smaller than a newer one are merged with it.
2. `FACTOR` neighbors of one tier are merged, which makes one of a higher tier (or, in tier 0, a
   larger one of it).

So a passage is written once in each tier that it comes through, and once more where a large segment
comes after small ones. Merged segments are neighbors: ids stay in ascending order.

A segment of which half the passages or more are deleted is rewritten without them.
"""

from __future__ import annotations

from collections.abc import Sequence

FACTOR = 8
FLOOR = 1024
_DEAD_SHARE = 0.5


def tier(passages: int) -> int:
    """The tier of a segment with this number of passages, 0 or more."""
    found = 0
    while passages > FLOOR * FACTOR**found:
        found += 1
    return found


def next_merge(sizes: Sequence[int], dead: Sequence[int]) -> range | None:
    """The segments to merge next, None when all is well.

    Args:
        sizes: passages of each segment, deleted ones included, the oldest segment first.
        dead: how many of them are deleted.

    Returns:
        Neighboring places in `sizes`; a single one is rewritten without its deleted
        passages. Called again after each merge, it ends.
    """
    for place, (size, gone) in enumerate(zip(sizes, dead, strict=True)):
        if gone and gone >= _DEAD_SHARE * size:
            return range(place, place + 1)
    tiers = [tier(size) for size in sizes]
    for newer in range(len(tiers) - 1, 0, -1):
        if tiers[newer - 1] < tiers[newer]:
            oldest = newer - 1
            while oldest and tiers[oldest - 1] < tiers[newer]:
                oldest -= 1
            return range(oldest, newer + 1)
    # Tiers fall from here on: equal ones are neighbors.
    for first, found in enumerate(tiers):
        if tiers[first : first + FACTOR] == [found] * FACTOR:
            return range(first, first + FACTOR)
    return None
