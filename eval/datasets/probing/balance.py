"""Balanced splits of probing sets: the same number of each label, in the published sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retriever.errors import SourceError

TRAIN, HELD = 100_000, 10_000
"""Number of training instances, and of instances in each other split (Conneau et al. 2018)."""
LEAST_HELD = 100
"""Minimum number of instances in dev and test; fewer would measure nothing."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A line of a probing set.

    Attributes:
        order: sort key within its split.
        label: of the class.
        text: tokens with a space between them.
    """

    order: int
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of instances of one label.

    Attributes:
        train: in the training split.
        held: in dev, and in test.
    """

    train: int
    held: int

    @property
    def total(self) -> int:
        """Number in all three splits."""
        return self.train + 2 * self.held


def published_sizes(labels: int) -> Sizes:
    """The sizes of the published splits, rounded up to the same number for each label."""
    return Sizes(math.ceil(TRAIN / labels), math.ceil(HELD / labels))


def least_sizes(labels: int) -> Sizes:
    """The minimum sizes: in the same ratio, with `LEAST_HELD` instances in dev and in test."""
    held = math.ceil(LEAST_HELD / labels)
    return Sizes(held * TRAIN // HELD, held)


def sizes_for(available: int, labels: int) -> Sizes | None:
    """The largest sizes, in the ratio 10 : 1 : 1, for a number of sentences of the rarest label.

    Returns:
        At most the published sizes; None if there are fewer than `least_sizes`.
    """
    if available >= published_sizes(labels).total:
        return published_sizes(labels)
    held = available * HELD // (TRAIN + 2 * HELD)
    sizes = Sizes(held * TRAIN // HELD, held)
    return sizes if held >= least_sizes(labels).held else None


def balanced_splits(
    task: str, classes: Mapping[str, Sequence[Instance]], remedy: str
) -> dict[str, list[Instance]]:
    """Three disjoint splits with the same number of instances of each label.

    Args:
        task: for the message.
        classes: label to its instances; the first ones are taken.
        remedy: for the message if there are too few.

    Returns:
        "tr", "va" and "te", each by order and then text, ascending.

    Raises:
        SourceError: a label has too few.
    """
    rarest = min(classes, key=lambda label: len(classes[label]))
    sizes = sizes_for(len(classes[rarest]), len(classes))
    if sizes is None:
        raise SourceError(
            f"{task}: expected at least {least_sizes(len(classes)).total:,} distinct sentences of "
            f"each of {len(classes):,} labels, found {len(classes[rarest]):,} of {rarest}; {remedy}"
        )
    held = sizes.held
    bounds = {"te": (0, held), "va": (held, 2 * held), "tr": (2 * held, sizes.total)}
    return {
        split: sorted(
            (one for instances in classes.values() for one in instances[slice(*bounds[split])]),
            key=lambda one: (one.order, one.text),
        )
        for split in ("tr", "va", "te")
    }
