"""An index with a FAISS structure, a segment without one, and deleted passages in both."""

import random

import workload
from answers import check_answers, contents
from forked import in_child
from workload import Operation

from indexes.folder.verify import verify
from retriever.index import Index

CHANCE = random.Random(3)
OLD = {
    f"d{i}": (f"onlyd{i}v1 " + " ".join(CHANCE.choices(workload.VOCABULARY, k=5)), 1)
    for i in range(120)
}
YOUNG = {f"d{i}": (f"onlyd{i}v1 word{i % 50}", 1) for i in range(120, 140)}
GONE = tuple(f"d{i}" for i in (0, 7, 119, 120, 139))
LIFE = (
    Operation("add", OLD),
    Operation("rebuild", structure="IVF4,Flat"),
    Operation("add", YOUNG),
    Operation("delete", gone=GONE),
)
SWEPT = {
    "small": Operation("add", {f"d{i}": (f"onlyd{i}v2 word{i}", 2) for i in (1, 121, 300)}),
    "add": Operation(
        "add", {f"d{i}": (f"onlyd{i}v2 word{i % 50}", 2) for i in (1, 121, *range(300, 312))}
    ),
    "delete": Operation("delete", gone=("d2", "d122", "d138")),
    # More than half of the younger segment, which is therefore rewritten.
    "merge": Operation("delete", gone=tuple(f"d{i}" for i in range(121, 135))),
    "compact": Operation("compact"),
    "rebuild": Operation("rebuild", structure="IVF8,SQ8"),
}
# The number of segments, and the structure that merged ones get.
Shape = tuple[int, str]


def make(folder):
    """Make the index, in a process of its own."""

    def live():
        for operation in LIFE:
            operation.perform(folder)

    assert in_child(live) == (0, None)
    assert verify(folder) == []


def before():
    """What it holds."""
    held = {}
    for operation in LIFE:
        held = operation.steps(held)[-1]
    return held


def check(folder, allowed, other):
    """The index is sound, holds what it may, and finds it."""
    assert verify(folder) == []
    with Index.open(folder) as index:
        held = contents(index)
        assert held in allowed
        some = {id_: held[id_] for id_ in sorted(held)[::50]}
        dead = {id_: other[id_] for id_ in other if held.get(id_) != other[id_]}
        check_answers(index, some, dead)
        facts = index.info()
    segments = facts["segments"]
    kinds = {segment["structure"] for segment in segments}
    wanted = facts["structures"]["index_type"]
    # What is said of the structures and what they are changes in one step.
    assert wanted in kinds
    assert kinds <= {wanted, "flat"}
    return held, (len(segments), wanted)
