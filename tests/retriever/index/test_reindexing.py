"""Another encoder for an index: equal to a fresh one, without downtime, and safe when killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from indexes.folder.lock import new_folder
from indexes.folder.verify import verify
from indexes.protocol import StructureSettings
from retriever import (
    AnalyzerSettings,
    Document,
    Index,
    PassageSettings,
    SearchSettings,
    parse_encoder,
)
from retriever.errors import DamagedIndexError, IndexLockedError, NotAnIndexError
from retriever.index.recreation import reindexed
from tests.retriever.index.moving_samples import (
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)


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


def test_what_is_not_given_is_as_in_the_index(folder, choice):
    own = parse_encoder(choice).model
    assert reindexed(folder, "::max-length=20") is not None
    german = AnalyzerSettings("german"), PassageSettings(overlap=3), StructureSettings("flat")
    assert settings_of(folder) == (f"{own}::static=average::max-length=20", *german)
    # With a model, that model's own settings.
    assert reindexed(folder, own) is not None
    assert "max-length=20" not in settings_of(folder)[0]
    plain, large = AnalyzerSettings("none"), StructureSettings("flat", 10**9)
    assert reindexed(folder, analyzer=plain, structures=large) is not None
    assert settings_of(folder)[1:] == (plain, german[1], large)


def test_a_damaged_document_stops_it_and_no_index_is_made_where_there_is_none(
    folder, other, tmp_path
):
    before = settings_of(folder)
    text = next(one.text for one in random_documents(120) if one.id == "d5")
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        for altered in ("other", text):
            with database:
                database.execute("UPDATE documents SET text = ? WHERE id = 'd5'", (altered,))
            if altered == "other":
                with pytest.raises(DamagedIndexError, match="'d5' was altered"):
                    reindexed(folder, other)
                assert settings_of(folder) == before
    reindexed(folder, other)
    with pytest.raises(NotAnIndexError):
        reindexed(tmp_path / "nowhere", other)
    assert not (tmp_path / "nowhere").exists()
