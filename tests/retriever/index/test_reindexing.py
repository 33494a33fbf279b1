"""Another encoder for an index: equal to a fresh one, without downtime, and safe when killed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from indexes.folder.lock import new_folder
from indexes.folder.verify import verify
from indexes.protocol import StructureSettings
from retriever import (
    AnalyzerSettings,
    Document,
    Index,
    IndexingReport,
    PassageSettings,
    SearchSettings,
    parse_encoder,
)
from retriever.errors import DamagedIndexError, IndexLockedError, NotAnIndexError
from retriever.index.recreation import reindexed
from tests.retriever.index.moving_samples import (
    SMALL,
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)

ROOT = Path(__file__).parents[3]
# Reindexes in small commits, and is killed after three of them.
DYING = """
import os, signal, sys
from indexes.folder.writer import FolderWriter
from retriever import CommitSettings
from retriever.index.recreation import reindexed
import retriever.index.add
retriever.index.add._CHUNK = 20
commit, made = FolderWriter.commit, []
def dying(*arguments, **options):
    commit(*arguments, **options)
    made.append(1)
    if len(made) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
FolderWriter.commit = dying
small = CommitSettings(passages=20, window_passages=20)
reindexed(sys.argv[1], sys.argv[2], commit=small)
"""


@pytest.fixture
def choice(tmp_path):
    return choice_of(word_vectors(tmp_path / "words.txt"))


@pytest.fixture
def other(tmp_path):
    return choice_of(word_vectors(tmp_path / "others.txt", seed=1, dimensions=5))


@pytest.fixture
def folder(tmp_path, choice):
    """Sound afterwards, with nothing left beside it."""
    folder = make_index(
        tmp_path / "my.index",
        choice,
        random_documents(120),
        analyzer=AnalyzerSettings("german"),
        passages=PassageSettings(overlap=3),
        structures=StructureSettings("flat"),
    )
    yield folder
    assert verify(folder) == []
    assert [path.name for path in tmp_path.iterdir() if "retriever-" in path.name] == []


def settings_of(folder):
    with Index.open(folder) as index:
        return str(index.encoder_spec), index.analyzer.settings, index.passages, index.structures


def test_a_reindexed_index_equals_a_fresh_one_and_keeps_other_settings(folder, other, tmp_path):
    read = []
    report = reindexed(folder, other, read=read.append)
    assert (report.added, sum(read)) == (120, 120)
    fresh = make_index(
        tmp_path / "fresh",
        other,
        sorted(random_documents(120), key=lambda document: document.id),
        analyzer=AnalyzerSettings("german"),
        passages=PassageSettings(overlap=3),
        structures=StructureSettings("flat"),
    )
    assert stored(folder) == stored(fresh)
    assert answers(folder) == answers(fresh)
    assert settings_of(folder) == settings_of(fresh)


def test_the_old_index_answers_until_the_new_one_takes_its_place(folder, choice, other):
    before = answers(folder)
    seen = []

    def look(_):
        seen.append(answers(folder) == before)
        with Index.open(folder) as index, pytest.raises(IndexLockedError):
            index.delete(["d1"])

    with Index.open(folder) as reader:
        hits = reader.search("w1 w2")
        reindexed(folder, other, read=lambda n: look(n) if len(seen) < 3 else None)
        assert seen == [True] * 3
        assert reader.search("w1 w2") != hits
        assert reader.encoder_spec.dimensions == 5
    assert answers(folder) != before


@pytest.mark.parametrize(
    "ask", [Index.info, lambda index: index.plan(StructureSettings("hnsw"))], ids=["info", "plan"]
)
def test_an_open_index_tells_of_the_new_one(folder, other, ask):
    with Index.open(folder) as reader:
        reindexed(folder, other)
        with Index.open(folder) as fresh:
            assert ask(reader) == ask(fresh)


def test_the_same_encoder_changes_nothing(folder, choice):
    files = {path: path.stat().st_mtime_ns for path in (folder / "segments").rglob("*")}
    own = parse_encoder(choice).model
    for same in (
        "",
        choice,
        "::max-length=12",
        f"{own}::max-length=12::static=average",
    ):
        assert reindexed(folder, same) is None
    assert reindexed(folder, analyzer=AnalyzerSettings("german")) is None
    assert {path: path.stat().st_mtime_ns for path in (folder / "segments").rglob("*")} == files


def test_without_a_model_the_rest_is_as_in_the_index(folder, choice):
    assert reindexed(folder, "::max-length=20") is not None
    encoder, analyzer, *_ = settings_of(folder)
    assert encoder == f"{parse_encoder(choice).model}::static=average::max-length=20"
    assert analyzer == AnalyzerSettings("german")
    # With a model, that model's own settings.
    assert reindexed(folder, parse_encoder(choice).model) is not None
    assert "max-length=20" not in settings_of(folder)[0]


def test_other_settings_alone_can_be_changed(folder):
    assert reindexed(folder, analyzer=AnalyzerSettings("none")) is not None
    assert settings_of(folder)[1] == AnalyzerSettings("none")
    assert reindexed(folder, structures=StructureSettings("flat", 10**9)) is not None
    assert settings_of(folder)[3].memory_bytes == 10**9


def test_a_truncated_document_is_read_as_a_whole(tmp_path, choice):
    text = " ".join(f"w{i}" for i in range(50))
    folder = make_index(
        tmp_path / "my.index",
        choice,
        [Document("a", text)],
        passages=PassageSettings("truncate"),
    )
    last = SearchSettings(mode="bm25")
    with Index.open(folder) as index:
        assert index.search("w49", last) == []
    reindexed(folder, passages=PassageSettings("split"))
    with Index.open(folder) as index:
        assert [hit.id for hit in index.search("w49", last)] == ["a"]
    assert stored(folder)["a"][1] == text


def test_a_damaged_document_stops_it_and_nothing_is_lost(folder, other, tmp_path):
    shutil.copytree(folder, tmp_path / "good")
    with closing(sqlite3.connect(folder / "index.sqlite")) as database, database:
        database.execute("UPDATE documents SET text = 'other' WHERE id = 'd5'")
    with pytest.raises(DamagedIndexError, match="'d5' was altered"):
        reindexed(folder, other)
    assert settings_of(folder)[0] == settings_of(tmp_path / "good")[0]
    with closing(sqlite3.connect(folder / "index.sqlite")) as database, database:
        text = next(one.text for one in random_documents(120) if one.id == "d5")
        database.execute("UPDATE documents SET text = ? WHERE id = 'd5'", (text,))
    assert answers(folder) == answers(tmp_path / "good")
    reindexed(folder, other)
    shutil.rmtree(tmp_path / "good")


def test_documents_that_change_between_two_attempts_are_as_they_are_now(folder, choice, other):
    read = []

    def stop(documents):
        read.append(documents)
        if len(read) == 100:
            raise RuntimeError("now")

    with pytest.raises(RuntimeError, match="now"):
        reindexed(folder, other, read=stop)
    assert {"d1", "d2"} < set(stored(new_folder(folder)))
    with Index.open(folder) as index:
        index.delete(["d1"])
        index.add([Document("d2", "w7 w8"), Document("new", "w9")])
    expected = {id_: parts[:3] for id_, parts in stored(folder).items()}
    reindexed(folder, other)
    assert {id_: parts[:3] for id_, parts in stored(folder).items()} == expected


def test_a_folder_that_is_no_index_is_not_made_one(tmp_path, other):
    with pytest.raises(NotAnIndexError):
        reindexed(tmp_path / "nowhere", other)
    assert not (tmp_path / "nowhere").exists()


def test_a_killed_reindexing_leaves_the_old_index_serving_and_goes_on(folder, choice, other):
    before = answers(folder)
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(folder), other],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert answers(folder) == before
    assert verify(folder) == []
    done = len(stored(new_folder(folder)))
    assert 0 < done < 120
    report = IndexingReport()
    reindexed(folder, other, commit=SMALL, report=report)
    assert (report.unchanged, report.added) == (done, 120 - done)
    assert settings_of(folder)[0].startswith(parse_encoder(other).model)
    assert len(stored(folder)) == 120
