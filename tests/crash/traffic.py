"""One writer and several readers of an index, as processes of their own.

Run as ``traffic.py write FOLDER SECONDS [KIND...]`` or ``traffic.py read FOLDER SECONDS SEED
[USER]``, where USER is the number of a user who may not write. Prints what was done as a line of
JSON, with the resident memory in bytes after a third of the time and at the end. Documents come in
groups of five that are written, rewritten and deleted together: a reader must find all five in one
version, or none.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from indexes.protocol import StructureSettings
from retriever.documents import Document
from retriever.index import Index, recreated
from retriever.search import SearchSettings
from tests.crash import workload

GROUPS = 40
SIZE = 5
STRUCTURES = ("IVF4,Flat", "hnsw", "flat", "IVF2,SQ8")


class Clock:
    """The time that is left, and the resident memory after a third of it and at the end."""

    def __init__(self, seconds):
        self._began = time.monotonic()
        self._seconds = seconds
        self.resident = []

    def running(self, enough=True):
        """Return whether time is left or the required changes are not done."""
        passed = time.monotonic() - self._began
        over = passed >= self._seconds and enough
        if over or (not self.resident and passed >= self._seconds / 3):
            self.resident.append(resident())
        return not over


def resident():
    """Return this process's anonymous resident memory in bytes, 0 if unknown."""
    try:
        pages, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    except FileNotFoundError:
        return 0
    return (pages - shared) * os.sysconf("SC_PAGESIZE")


def text_of(group, item, version):
    return f"group{group} group{group} group{group} item{item} version{version}"


def members(group, version):
    return [
        Document(
            f"{group}-{item}",
            text_of(group, item, version),
            metadata={"group": group, "item": item, "version": version},
        )
        for item in range(SIZE)
    ]


def write(folder, clock, kinds):
    chance, done, live = random.Random(1), Counter[str](), set()
    version = 0
    # On a busy machine the time may be too short.
    while clock.running(enough=all(done[kind] for kind in kinds)):
        version += 1
        if version % 25 == 0:
            live = set(chance.sample(range(GROUPS), 12))
            with recreated(folder) as index:
                index.add([d for g in sorted(live) for d in members(g, version)], prune=True)
            done["recreated"] += 1
            continue
        group = chance.randrange(GROUPS)
        with Index.create(folder) as index:
            segments = len(index.info()["segments"])
            if version % 25 == 10:
                index.compact()
                done["compacted"] += 1
            elif version % 25 == 18:
                index.rebuild(StructureSettings(STRUCTURES[version // 25 % len(STRUCTURES)]))
                done["rebuilt"] += 1
            elif group not in live or chance.random() < 0.4:
                index.add(members(group, version))
                done["rewritten" if group in live else "added"] += 1
                live.add(group)
                done["merged"] += len(index.info()["segments"]) < segments
            else:
                assert index.delete_where(f"group = {group}") == SIZE
                live.remove(group)
                done["deleted"] += 1
    return done


def check_group(hits, group, what):
    """Return whether the group was found; fail on a partial group or two versions."""
    group_hits = [hit for hit in hits if hit.metadata["group"] == group]
    seen = f"{what}: {[(hit.id, hit.metadata['version']) for hit in group_hits]}"
    assert len({hit.id for hit in group_hits}) == len(group_hits) in (0, SIZE), seen
    assert len({hit.metadata["version"] for hit in group_hits}) <= 1, seen
    for hit in hits:
        metadata = hit.metadata
        assert hit.id == f"{metadata['group']}-{metadata['item']}", seen
        assert hit.passage == text_of(metadata["group"], metadata["item"], metadata["version"]), (
            seen
        )
    return bool(group_hits)


def read(folder, clock, seed):
    chance, done = random.Random(seed), Counter[str]()
    index = Index.open(folder)
    while clock.running():
        group = chance.randrange(GROUPS)
        query, where = f"group{group}", f"group = {group}"
        for mode in ("bm25", "dense", "hybrid"):
            settings = SearchSettings(mode=mode, k=20)
            hits = index.search(query, settings)
            if check_group(hits, group, mode):
                done[mode] += 1
                # The five come first: no other document mentions the group.
                first = [hit.metadata["group"] for hit in hits[:SIZE]]
                assert set(first) == {group}, f"{mode}: {first} for {group}"
            assert mode != "bm25" or len(hits) in (0, SIZE)
            check_group(index.search(query, settings, where=where), group, f"{mode} filtered")
            done["searches"] += 2
        facts = index.info()
        assert facts["passages"] == facts["documents"], facts
        assert facts["documents"] % SIZE == 0, facts
        if chance.random() < 0.1:
            assert index.verify() == []
            done["verified"] += 1
        if chance.random() < 0.2:
            index.close()
            index = Index.open(folder)
            done["opened"] += 1
    index.close()
    return done


def main():
    workload.install()
    action, folder, clock = sys.argv[1], Path(sys.argv[2]), Clock(float(sys.argv[3]))
    rest = sys.argv[4:]
    if action == "read" and rest[1:]:
        # That user may not be able to read the libraries: their modules are imported before.
        read(folder, Clock(1), 0)
        os.setgroups([])
        os.setuid(int(rest[1]))
    done = read(folder, clock, int(rest[0])) if action == "read" else write(folder, clock, rest)
    sys.stdout.write(json.dumps({**done, "resident": clock.resident}) + "\n")


if __name__ == "__main__":
    main()
