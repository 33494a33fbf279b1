"""What a build is expected to take: counted, timed in the small, and said before a long one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_samples import document, make_index
from structure_samples import clustered

import indexes.vectors.estimate
from indexes.errors import MissingExtraError
from indexes.segments.live import LiveSegment
from indexes.segments.maintenance import compact, estimate_build, merge, rebuild
from indexes.vectors.choice import resolve
from indexes.vectors.estimate import (
    Estimate,
    Rates,
    Work,
    count_work,
    estimate,
    seconds,
    time_rates,
)
from indexes.vectors.segment_structure import StructureSettings
from indexes.writer import Writer

VECTORS, _, _ = clustered(3000, 24)
KINDS = ["hnsw", "ivf", "ivf-sq8", "ivf-pq"]
USED = {
    "hnsw": {"graph"},
    "ivf": {"lists"},
    "ivf-sq8": {"lists"},
    "ivf-pq": {"lists", "product"},
    "PQ4x4": {"product"},
    "OPQ8,IVF16_HNSW8,PQ8": {"lists", "product"},
    "HNSW16,SQ8": {"graph"},
    "SQ8": set(),
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Each trial is made, and said to have taken so long."""

    def every_trial_takes(length: float) -> None:
        def timed(action: Callable[[], object]) -> float:
            action()
            return length

        monkeypatch.setattr(indexes.vectors.estimate, "_timed", timed)

    return every_trial_takes


def used(values: Work | Rates) -> set[str]:
    return {name for name in ("lists", "product", "graph") if getattr(values, name)}


@given(
    st.sampled_from(KINDS),
    st.integers(10_000, 10**8),
    st.integers(10_000, 10**8),
    st.integers(1, 4096),
    st.integers(1, 4096),
)
def test_work_grows_with_passages_and_dimensions(
    kind: str, n: int, more: int, d: int, wider: int
) -> None:
    (n, more), (d, wider) = sorted((n, more)), sorted((d, wider))
    small = count_work(resolve(kind, n, d, None).facts, n, d)
    large = count_work(resolve(kind, more, wider, None).facts, more, wider)
    assert all(a <= b for a, b in zip(astuple(small), astuple(large), strict=True))
    assert used(small) == USED[kind]


def test_work_is_what_the_parts_of_a_build_multiply() -> None:
    n, d = 100_000, 64
    lists = resolve("IVF1000,Flat", n, d, None)
    # Ten rounds over a sample of 65,536, then all vectors, against each centroid.
    assert count_work(lists.facts, n, d).lists == (10 * 65_536 + n) * 1000 * d
    coded = resolve("IVF1000,PQ16", n, d, None)
    assert count_work(coded.facts, n, d).product == (25 * 65_536 + n) * 256 * d
    twice = count_work(resolve("HNSW32", 2 * n, d, None).facts, 2 * n, d)
    assert 2 < twice.graph / count_work(resolve("HNSW32", n, d, None).facts, n, d).graph < 2.5


def test_flat_takes_nothing() -> None:
    choice = resolve("auto", 1000, 24, None)
    work = count_work(choice.facts, 1000, 24)
    assert work == Work()
    assert time_rates(choice.facts, VECTORS) == Rates()
    assert estimate(choice, work, Rates(1, 1, 1, 1)) == Estimate(0, False, 0, 0)


@pytest.mark.parametrize("name", list(USED))
def test_a_trial_is_made_of_each_part_and_of_no_other(
    name: str, clock: Callable[[float], None]
) -> None:
    clock(0.5)
    facts = resolve(name, 100_000, 24, None).facts
    slow, quick = time_rates(facts, VECTORS), None
    assert used(slow) == USED[name]
    assert slow.scans > 0
    clock(0.25)
    quick = time_rates(facts, VECTORS)
    work = count_work(facts, 100_000, 24)
    assert seconds(work, slow) == pytest.approx(2 * seconds(work, quick))


@pytest.mark.parametrize("name", ["hnsw", "ivf", "PQ4x4", "IVF4096,Flat", "IVF16,PQ4x6"])
def test_what_a_build_takes_is_what_its_trial_took_where_they_are_one(
    name: str, clock: Callable[[float], None]
) -> None:
    clock(3.0)
    for m in (40, 256, 2000):
        rows = VECTORS[:m]
        facts = resolve(name, m, 24, None).facts
        if facts is None:
            continue
        work, rates = count_work(facts, m, 24), time_rates(facts, rows)
        assert all(np.isfinite(astuple(rates)))
        if name == "hnsw":
            assert work.graph * rates.graph == pytest.approx(3)
        if name == "PQ4x4":
            # The trial is made of two of the four parts.
            assert work.product * rates.product == pytest.approx(6)


def test_what_else_has_to_be_trained_is_said() -> None:
    counted = resolve("IVF16,PQ4x4", 5000, 24, None)
    other = resolve("OPQ4,IVF16,PQ4x4", 5000, 24, None)
    work = count_work(counted.facts, 5000, 24)
    assert not estimate(counted, work, Rates()).at_least
    assert "what was not counted" in str(estimate(other, work, Rates()))
    assert not estimate(resolve("Pad32,IVF16,SQ8", 5000, 24, None), work, Rates()).at_least


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0.4, "less than 1 s, at most 1,500.0 GB of memory, a file of 2.5 MB"),
        (61.2, "about 61 s, "),
        (600, "about 10 min, "),
        (10_000, "about 2.8 h, "),
    ],
)
def test_an_estimate_reads_as_a_line(length: float, text: str) -> None:
    assert str(Estimate(length, False, 1_500 * 10**9, 2_500_000)).startswith(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    documents = [document(f"d{i}", f"word{i} word{i % 7}") for i in range(400)]
    return make_index(tmp_path / "index", documents[:200], documents[200:])


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines that were said until now."""
    caplog.set_level(logging.INFO, logger="indexes.segments.maintenance")
    return lambda: caplog.messages


def test_before_a_long_build_it_is_said_what_it_takes(
    folder: Path,
    said: Callable[[], list[str]],
    clock: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("indexes.segments.maintenance._QUICK", 0)
    clock(20.0)
    with Writer(folder) as writer:
        compact(writer)
        assert said() == []  # flat
        rebuild(writer, StructureSettings("ivf"))
        writer.delete(["d1"])
        assert said() == []  # whoever rebuilds has asked before
        compact(writer)
    (line,) = said()
    assert line.startswith(f"{folder}: merging 399 passages and building their search structure")
    assert "a file of 0.0 MB" in line


def test_nothing_is_tried_or_said_where_a_build_is_quick(
    folder: Path, said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a trial was made")

    with Writer(folder) as writer:
        writer.set("structures", StructureSettings("hnsw").to_json())
        monkeypatch.setattr("indexes.segments.maintenance.time_rates", never)
        assert compact(writer) == 2
        writer.delete([f"d{i}" for i in range(300)])
        assert merge(writer) == 1
        assert writer.segments()[0].segment.structure.name == "hnsw"
    assert said() == []


def live(folder: Path) -> tuple[LiveSegment, ...]:
    with Writer(folder) as writer:
        return writer.segments()


def test_an_estimate_is_of_the_live_passages_of_all_segments(
    folder: Path, clock: Callable[[float], None]
) -> None:
    clock(1.0)
    with Writer(folder) as writer:
        writer.delete([f"d{i}" for i in range(100)])
        segments = writer.segments()
        found = estimate_build(segments, StructureSettings("hnsw"))
        assert found is not None
        assert found.file_bytes == resolve("hnsw", 300, 6, None).memory_bytes
        assert estimate_build(segments, StructureSettings("auto")) is None
        assert estimate_build((), StructureSettings("hnsw")) is None


def test_without_faiss_there_is_no_estimate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtraError("no FAISS")

    monkeypatch.setattr("indexes.vectors.flat.load_faiss", missing)
    assert estimate_build(live(folder), StructureSettings("ivf")) is None


def test_a_segment_that_a_commit_left_gets_its_structure_once(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "one", [document(f"d{i}", f"word{i}") for i in range(100)])
    with Writer(folder) as writer:
        assert compact(writer) == 0
        writer.set("structures", StructureSettings("ivf").to_json())
        assert compact(writer) == 1
        assert writer.segments()[0].segment.structure.name == "ivf"
        assert compact(writer) == 0
