"""`compact` and search structures, `doctor`, and `retriever` without arguments."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest

from cli.main import start_lines
from indexes.folder.connection import write_setting
from retriever import Index, StructureSettings
from tests.cli.conftest import assert_refused, printed_json

WORDS = [f"w{number}" for number in range(60)]


def records(count, seed=0):
    chance = random.Random(seed)
    return [
        {"id": f"d{seed}-{i}", "text": " ".join(chance.choices(WORDS, k=8))} for i in range(count)
    ]


pytestmark = pytest.mark.usefixtures("fake_encoder")


@pytest.fixture
def indexed(retriever, write_jsonl):
    assert retriever("index", write_jsonl(*records(300)), "--quiet") == (0, "", "")


def segments(retriever):
    return printed_json(retriever("info", "--json"))["segments"]


def test_compact_prints_cost_before_rebuilding(retriever, indexed):
    done = retriever("compact", "--index-type", "ivf")
    (takes,) = done.err.splitlines()
    assert "building their search structure (ivf), which takes up to " in takes
    assert done.out.startswith(".retriever: 300 passages, ivf\n  effort 1      recall@10 0.")
    with Index.open(".retriever") as index:
        plan = index.plan(StructureSettings("ivf-pq"))
        assert index.plan(StructureSettings()).build_bytes == 0
    assert (plan.name, plan.factory) == ("ivf-sq8", "IVF7,SQ8")
    assert (plan.memory_bytes, plan.build_bytes) == (8_848, 28_048)
    assert "too few to train a product quantizer" in plan.reasons[1]
    rebuilt = printed_json(retriever("compact", "--index-type", "flat", "--json"))
    assert rebuilt == {"index_type": "flat", "segments": segments(retriever)}


def test_compact_refuses_bad_index_type_or_memory_without_changes(retriever, indexed):
    before = segments(retriever)
    for name in ("nonsense", " "):
        assert_refused(retriever("compact", "--index-type", name), repr(name), "ivf-pq")
    for size in ("2 dozen", "0.5"):
        assert_refused(retriever("compact", "--set", f"memory={size}"), "memory: expected", size)
    assert segments(retriever) == before


def test_info_shows_measured_recall_of_each_segment(retriever, indexed, write_jsonl, monkeypatch):
    retriever("compact", "--index-type", "IVF8,SQ8", "--set", "memory=2.5 gb")
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    retriever("index", write_jsonl(*records(5, seed=1), name="more.jsonl"))
    head, table = retriever("info").out.split("\n\n")
    assert "index type   IVF8,SQ8, within 2.5 GB\n" in head
    assert "305 in 2 segments, 0 waiting in the database" in head
    names, first, recall, second = table.splitlines()
    assert names.split() == ["segment", "passages", "size", "structure"]
    assert first.split()[1] == "300"
    assert "IVF8,SQ8: IVF8,SQ8 was asked for; FAISS advises 39 vectors" in first
    assert recall.strip().startswith("recall@10 (effort): 0.")
    assert recall.endswith("1.0000 (8)")
    assert second.split()[1] == "5"
    assert second.endswith("  flat")
    rows = segments(retriever)
    assert [segment["structure"] for segment in rows] == ["IVF8,SQ8", "flat"]
    assert rows[0]["recall"][-1] == {"effort": 8, "recall": 1.0}


def test_query_reaches_asked_recall_or_refuses_in_one_line(retriever, write_jsonl, monkeypatch):
    # A code of half a byte cannot tell 16 dimensions apart; more effort would scan all vectors.
    monkeypatch.setattr("indexes.vectors.search._OTHER_EFFORTS", (1,))
    retriever("index", write_jsonl(*records(2000)))
    retriever("compact", "--index-type", "PQ1x4")
    (segment,) = segments(retriever)
    best = max(segment["recall"], key=lambda row: row["recall"])
    assert 0 < best["recall"] < 0.99
    query = ("query", "w1 w2 w3", "--json", "-k", "3", "--mode", "dense", "--set")
    enough = retriever(*query, f"recall={best['recall'] * 0.99}")
    assert (enough.code, enough.err, len(enough.out.splitlines())) == (0, "", 3)
    assert_refused(
        retriever(*query, "recall=0.99"),
        "recall 0.99: ",
        f"{best['recall']:.4f}, at effort {best['effort']}",
        "compact` with another --index-type",
    )


def test_every_merging_command_announces_structure_build(
    retriever, indexed, write_jsonl, monkeypatch
):
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    assert retriever("compact", "--index-type", "IVF4,Flat").code == 0
    changed = [{**record, "text": "other words"} for record in records(200)]
    for command in (
        ("index", write_jsonl(*changed, name="changed.jsonl"), "--json", "--no-compact"),
        ("delete", "--where", 'id like "d0-1%"', "--json"),
        ("compact",),
    ):
        done = retriever(*command)
        assert done.code == 0
        (line,) = done.err.splitlines()
        assert line.startswith(".retriever: merging ")
        assert (
            "passages and building their search structure (IVF4,Flat), which takes up to " in line
        )


def test_index_run_ends_with_structure_for_its_size_and_announces_it(
    retriever, write_jsonl, monkeypatch
):
    monkeypatch.setattr("indexes.vectors.choice.FLAT_LIMIT", 1000)
    first = retriever("index", write_jsonl(*records(1500)), "--no-compact", "--json")
    assert printed_json(first)["merged_segments"] == 0
    assert [row["structure"] for row in segments(retriever)] == ["flat"]
    # Nothing is new in the second run, which does what the first one left undone.
    done = retriever("index", write_jsonl(*records(1500)))
    assert "1,500 unchanged" in done.out
    assert "s of it to merge 1 segment;" in done.out
    announced = done.err.splitlines()[-1]
    assert "merging 1,500 passages and building their search structure (ivf-sq8)" in announced
    assert [row["structure"] for row in segments(retriever)] == ["ivf-sq8"]
    assert retriever("verify").code == 0


def kinds(outcome):
    return [finding["kind"] for finding in json.loads(outcome.out)["findings"]]


def test_verify_notes_language_counts_of_earlier_release_as_no_damage(
    retriever, fake_encoder, write_jsonl
):
    assert retriever("index", write_jsonl(*records(3)), "--quiet").code == 0
    with closing(sqlite3.connect(".retriever/index.sqlite")) as database, database:
        database.execute("UPDATE passages SET languages = NULL")
        write_setting(database, "languages", {"english": 3, "german": 200})
    message = "an earlier release stored 3 passages and counts the languages of deleted ones too"
    sound = retriever("verify")
    assert (sound.code, sound.out) == (0, ".retriever: sound\n")
    assert sound.err == f"note: .retriever: {message}; `retriever compact` counts them again\n"
    doctor = retriever("doctor")
    assert doctor.code == 1
    assert f"languages: {message}\n  mend it: retriever compact -i .retriever\n" in doctor.out
    assert retriever("compact").code == 0
    assert printed_json(retriever("info", "--json"))["languages"] == {"english": 3}
    assert (retriever("verify").err, retriever("doctor").code) == ("", 0)
    with closing(sqlite3.connect(".retriever/index.sqlite")) as database, database:
        write_setting(database, "languages", {"english": 2})
    damaged = retriever("verify")
    assert (damaged.code, "`retriever compact` counts them again" in damaged.err) == (3, True)
    assert retriever("compact").code == 0
    assert retriever("verify").code == 0


def test_terms_of_earlier_release_are_noted_with_reindex_command(
    retriever, fake_encoder, write_jsonl
):
    corpus = write_jsonl(*records(3), {"id": "x", "text": "written in C++, see e-mail 4.5.6"})
    assert retriever("index", corpus, "--quiet").err == ""
    assert "earlier release" not in retriever("info").out
    with closing(sqlite3.connect(".retriever/index.sqlite")) as database, database:
        (value,) = database.execute("SELECT value FROM settings WHERE key = 'analyzer'").fetchone()
        analyzer = json.loads(value)
        assert analyzer.pop("terms") == "whole"
        write_setting(database, "analyzer", analyzer)
    reason = "an earlier release made it, without terms such as 3.11.2, C++ and IT"
    note = f"note: .retriever: {reason}; `retriever reindex -i .retriever` brings them\n"
    assert note in retriever("index", corpus).err
    assert note in retriever("refresh").err
    assert retriever("refresh", "--quiet").err == ""
    assert ", terms of an earlier release\n" in retriever("info").out
    doctor = retriever("doctor")
    assert f"terms: {reason}\n  mend it: retriever reindex -i .retriever\n" in doctor.out
    assert retriever("query", "C++", "--mode", "bm25").code == 0


def test_doctor_names_stale_sources_missing_extras_and_damage(
    retriever, fake_encoder, tmp_path, monkeypatch
):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("Apples are red.")
    assert retriever("index", "notes", "--quiet").code == 0
    assert printed_json(retriever("doctor", "--json"))["findings"] == []
    assert retriever("doctor").out.endswith("\n.retriever: sound, and nothing is missing\n")
    (notes / "b.txt").write_text("Pears are green.")
    stale = retriever("doctor")
    assert stale.code == 1
    assert (
        "1 file new or changed, 0 gone\n  mend it: retriever refresh -i .retriever\n" in stale.out
    )
    assert retriever("refresh").code == 0
    assert retriever("doctor").code == 0
    (notes / "c.pdf").write_text("")
    monkeypatch.setattr("retriever.index.sources.files.lacking", lambda: ["pypdfium2"])
    assert kinds(retriever("doctor", "--json")) == ["sources", "extra"]
    (notes / "c.pdf").unlink()
    (notes / "a.txt").unlink()
    (notes / "b.txt").unlink()
    notes.rmdir()
    assert "retriever refresh --prune" in retriever("doctor").out
    assert kinds(retriever("doctor", "--json")) == ["sources"]
    assert retriever("doctor", "-i", "none").code == 2
    (tmp_path / ".retriever" / "index.sqlite-sources").write_text("no database at all")
    damaged = retriever("doctor", "--json")
    assert (damaged.code, kinds(damaged)) == (3, ["damage"])


def test_command_without_arguments_describes_nearest_index(
    retriever, good_index, tmp_path, monkeypatch
):
    assert retriever().code == 2
    (tmp_path / "below").mkdir()
    output = list(start_lines())
    assert any(line.startswith("retriever doctor ") for line in output)
    assert ": 2 documents, encoder " in output[-1]
    monkeypatch.chdir(tmp_path / "below")
    assert list(start_lines())[-1] == f"To use it from here: -i {tmp_path}/.retriever"
    monkeypatch.setenv("RETRIEVER_INDEX", "none")
    assert list(start_lines())[-1].startswith("none: ")
    monkeypatch.delenv("RETRIEVER_INDEX")
    monkeypatch.chdir(tmp_path)
