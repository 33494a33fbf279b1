"""An index built again: the old one serves until the new one, equal to a fresh one, is complete."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

from indexes.files import aside_of
from indexes.folder.lock import new_folder, writer_lock
from indexes.folder.verify import verify
from retriever import (
    AnalyzerSettings,
    CommitSettings,
    Document,
    Index,
    PassageSettings,
    SearchSettings,
    StructureSettings,
    parse_encoder,
    recreated,
    reindexed,
)
from retriever.errors import ConfigError, DamagedIndexError, IndexLockedError, NotAnIndexError
from tests.retriever.index.collection_samples import (
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)

SMALL = CommitSettings(passages=100, window_passages=100)
BM25 = SearchSettings(mode="bm25")
GERMAN = {
    "analyzer": AnalyzerSettings("german").resolved(),
    "passages": PassageSettings(overlap=3),
    "structures": StructureSettings("flat"),
}


class Killed(BaseException):
    """Ends the block as the death of the process would: nothing runs after it."""


def documents(n, word="old"):
    return [Document(f"{word}{i}", f"{word} text {i}") for i in range(n)]


def ids_of(index):
    return {hit.id for hit in index.search("text", mode="dense", k=10_000)}


def stored_ids(folder):
    with Index.open(folder) as index:
        return ids_of(index)


def ids(documents):
    return {document.id for document in documents}


def interrupted(n, error=Killed):
    yield from documents(n, "new")
    raise error("now")


@pytest.fixture
def folder(tmp_path, fake_encoder, monkeypatch):
    """An index of twenty old documents in a segment, sound and alone in the end."""
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    folder = tmp_path / "my.index"
    with Index.create(folder) as index:
        index.add(documents(20))
    yield folder
    assert verify(folder) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.index"]


def test_the_old_index_serves_until_the_block_ends_and_open_ones_follow(folder):
    new = [*documents(30, "new"), Document("x", "texts and the rest")]
    with Index.open(folder) as reader:
        with recreated(folder, language="none") as index:
            index.add(new, prune=True)
            assert stored_ids(folder) == ids_of(reader) == ids(documents(20))
            with pytest.raises(IndexLockedError):
                reader.add(documents(1))
            with pytest.raises(IndexLockedError), recreated(folder):
                pass
        assert stored_ids(folder) == ids_of(reader) == ids(new)
        # The old analyzer would look for the stem "text", and leave "the" out of what it indexes.
        assert [hit.id for hit in reader.search("texts", BM25)] == ["x"]
        reader.add([Document("y", "the end")])
        assert [hit.id for hit in reader.search("the", BM25)] == ["y", "x"]


@pytest.mark.parametrize(("error", "lost"), [(RuntimeError, 0), (Killed, 512)])
def test_an_attempt_that_ends_early_is_resumed_with_the_same_settings(
    folder, fake_encoder, error, lost
):
    with pytest.raises(error), recreated(folder) as index:
        index.add(interrupted(2000, error), commit=SMALL, prune=True)
    assert stored_ids(folder) == ids(documents(20))
    with writer_lock(folder), pytest.raises(IndexLockedError), recreated(folder):
        pass
    before = fake_encoder.encoded
    with recreated(folder) as index:
        index.add(documents(2010, "new"), prune=True)
    assert fake_encoder.encoded - before <= lost + 10
    assert stored_ids(folder) == ids(documents(2010, "new"))


def test_recreation_with_other_sources_or_settings_starts_afresh(folder, fake_encoder):
    with pytest.raises(Killed), recreated(folder) as index:
        index.add(interrupted(1000), commit=SMALL, prune=True)
    with recreated(folder) as index:
        index.add(documents(5, "third"), prune=True)
    assert stored_ids(folder) == ids(documents(5, "third"))
    with pytest.raises(RuntimeError), recreated(folder) as index:
        index.add(interrupted(300, RuntimeError), prune=True)
    before = fake_encoder.encoded
    with recreated(folder, analyzer=AnalyzerSettings("german")) as index:
        index.add(documents(300, "new"), prune=True)
    assert fake_encoder.encoded - before == 300
    with Index.open(folder) as index:
        assert index.analyzer.settings.language == "german"


def remake(folder, number):
    with recreated(folder) as index:
        index.add(documents(number, "new"), prune=True)
    assert stored_ids(folder) == ids(documents(number, "new"))


def test_recreation_replaces_damaged_leftover_linked_or_missing_index(folder, tmp_path):
    shutil.rmtree(folder / "segments")
    remake(folder, 3)
    content = (folder / "index.sqlite").read_bytes()
    (folder / "index.sqlite").write_bytes(content[:100] + b"\xff" * 3000)
    remake(folder, 4)
    (folder / "index.sqlite").unlink()
    remake(folder, 5)
    # What a replacement that was killed leaves beside.
    shutil.copytree(folder, new_folder(folder))
    shutil.copytree(folder, aside_of(folder))
    remake(folder, 6)
    link = tmp_path / "link"
    link.symlink_to(folder)
    remake(link, 7)
    assert link.is_symlink()
    assert stored_ids(folder) == stored_ids(link)
    link.unlink()
    (folder / "empty").mkdir()
    for name in ("empty", "fresh"):
        remake(folder / name, 2)
        shutil.rmtree(folder / name)


@pytest.mark.parametrize(
    "name", ["my.index", ".my.index.retriever-new", ".my.index.retriever-old", "photos"]
)
def test_files_that_are_no_part_of_an_index_are_never_removed(folder, tmp_path, name):
    (tmp_path / name).mkdir(exist_ok=True)
    precious = tmp_path / name / "precious.txt"
    precious.write_text("keep me")
    where = tmp_path / name if name == "photos" else folder
    with pytest.raises(NotAnIndexError, match=r"precious\.txt"), recreated(where):
        pass
    assert precious.read_text() == "keep me"
    assert stored_ids(folder) == ids(documents(20))
    precious.unlink()
    if name != "my.index":
        (tmp_path / name).rmdir()


def test_refused_recreation_keeps_old_index(folder, monkeypatch):
    nonsense = StructureSettings("nonsense")
    with pytest.raises(ConfigError, match="nonsense"), recreated(folder, structures=nonsense):
        pass
    assert not new_folder(folder).exists()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="another folder"), recreated("."):
        pass


@pytest.fixture
def other(tmp_path):
    return choice_of(word_vectors(tmp_path / "others.txt", seed=1, dimensions=5))


@pytest.fixture
def german(tmp_path, model):
    """Index with real vectors; it must be sound and without leftovers after the test."""
    folder = make_index(tmp_path / "my.index", model, random_documents(120), **GERMAN)
    yield folder
    assert verify(folder) == []
    assert [path.name for path in tmp_path.iterdir() if "retriever-" in path.name] == []


def settings_of(folder):
    with Index.open(folder) as index:
        return str(index.encoder_spec), index.analyzer.settings, index.passages, index.structures


def test_a_reindexed_index_equals_a_fresh_one_and_keeps_other_settings(german, other, tmp_path):
    read = []
    report = reindexed(german, other, read=read.append)
    assert (report.added, sum(read)) == (120, 120)
    in_order = sorted(random_documents(120), key=lambda document: document.id)
    fresh = make_index(tmp_path / "fresh", other, in_order, **GERMAN)
    for what in (stored, answers, settings_of):
        assert what(german) == what(fresh)


def test_the_old_index_answers_until_the_new_one_takes_its_place(german, other):
    before, seen = answers(german), []

    def look(_):
        if len(seen) < 3:
            seen.append(answers(german) == before)
            with Index.open(german) as index, pytest.raises(IndexLockedError):
                index.delete(["d1"])

    with Index.open(german) as reader:
        hits = reader.search("w1 w2")
        reindexed(german, other, read=look)
        assert seen == [True] * 3
        assert reader.search("w1 w2") != hits
        assert reader.encoder_spec.dimensions == 5
        structure = StructureSettings("hnsw")
        with Index.open(german) as fresh:
            assert reader.info() == fresh.info()
            assert reader.plan(structure) == fresh.plan(structure)
    assert answers(german) != before


def test_reindex_with_same_encoder_writes_no_files(german, model):
    files = {path: path.stat().st_mtime_ns for path in (german / "segments").rglob("*")}
    own = parse_encoder(model).model
    for same in ("", model, "::max-length=12", f"{own}::max-length=12::static=average"):
        assert reindexed(german, same) is None
    assert reindexed(german, analyzer=AnalyzerSettings("german")) is None
    assert {path: path.stat().st_mtime_ns for path in (german / "segments").rglob("*")} == files


def test_a_truncated_document_is_read_as_a_whole(tmp_path, model):
    text = " ".join(f"w{i}" for i in range(50))
    folder = make_index(
        tmp_path / "my.index", model, [Document("a", text)], passages=PassageSettings("truncate")
    )
    last = SearchSettings(mode="bm25")
    with Index.open(folder) as index:
        assert index.search("w49", last) == []
    reindexed(folder, passages=PassageSettings("split"))
    with Index.open(folder) as index:
        assert [hit.id for hit in index.search("w49", last)] == ["a"]
    assert stored(folder)["a"][1] == text


def test_documents_that_change_between_two_attempts_are_as_they_are_now(german, model, other):
    read = []

    def stop(documents):
        read.append(documents)
        if len(read) == 100:
            raise RuntimeError("now")

    with pytest.raises(RuntimeError, match="now"):
        reindexed(german, other, read=stop)
    assert {"d1", "d2"} < set(stored(new_folder(german)))
    with Index.open(german) as index:
        index.delete(["d1"])
        index.add([Document("d2", "w7 w8"), Document("new", "w9")])
    expected = {id_: parts[:3] for id_, parts in stored(german).items()}
    reindexed(german, other)
    assert {id_: parts[:3] for id_, parts in stored(german).items()} == expected


def test_reindex_keeps_settings_that_are_not_overridden(german, model):
    own = parse_encoder(model).model
    assert reindexed(german, "::max-length=20") is not None
    assert settings_of(german) == (f"{own}::static=average::max-length=20", *GERMAN.values())
    # With a model, that model's own settings.
    assert reindexed(german, own) is not None
    assert "max-length=20" not in settings_of(german)[0]
    plain, large = AnalyzerSettings("none").resolved(), StructureSettings("flat", 10**9)
    assert reindexed(german, analyzer=plain, structures=large) is not None
    assert settings_of(german)[1:] == (plain, GERMAN["passages"], large)


def test_a_damaged_document_stops_it_and_no_index_is_made_where_there_is_none(
    german, other, tmp_path
):
    before = settings_of(german)
    text = next(document.text for document in random_documents(120) if document.id == "d5")
    with closing(sqlite3.connect(german / "index.sqlite")) as database:
        for altered in ("other", text):
            with database:
                database.execute("UPDATE documents SET text = ? WHERE id = 'd5'", (altered,))
            if altered == "other":
                with pytest.raises(DamagedIndexError, match="'d5' was altered"):
                    reindexed(german, other)
                assert settings_of(german) == before
    reindexed(german, other)
    with pytest.raises(NotAnIndexError):
        reindexed(tmp_path / "nowhere", other)
    assert not (tmp_path / "nowhere").exists()


def test_reindex_adds_terms_of_current_release(tmp_path, model):
    earlier = AnalyzerSettings(detection="words", terms="parts")
    with Index.create(tmp_path / "index", model, analyzer=earlier) as index:
        texts = {"a": "the vitamin A", "b": "vitamins, a few"}
        index.add([{"id": id_, "text": text} for id_, text in texts.items()])
        assert index.term_weights("vitamin A").keys() == {"vitamin"}
    with Index.open_or_create(tmp_path / "index", language="auto") as index:
        assert index.analyzer.settings.terms == "parts"
    assert reindexed(tmp_path / "index") is not None
    assert reindexed(tmp_path / "index") is None
    with Index.open(tmp_path / "index") as index:
        assert index.analyzer.settings.terms == "whole"
        # Languages are told anew where the language is asked for.
        assert index.analyzer.settings.detection == "words"
        assert index.term_weights("vitamin A").keys() == {"vitamin", "A"}
        assert index.search("vitamin A", mode="bm25")[0].id == "a"


def test_reindex_detects_languages_again_if_language_is_set(tmp_path, model):
    text = "Panthers savunması yalnızca 308 sayı verdi ve ligde altıncı sırada bitirdi."
    earlier = AnalyzerSettings(detection="words")
    with Index.create(tmp_path / "index", model, analyzer=earlier) as index:
        index.add([text])
    with Index.open_or_create(tmp_path / "index", language="auto") as index:
        index.add([text, text[10:]])
        assert list(index.languages) == ["english"]
    assert reindexed(tmp_path / "index", context="none") is not None
    with Index.open(tmp_path / "index") as index:
        assert list(index.languages) == ["english"]
    assert reindexed(tmp_path / "index", language="auto") is not None
    with Index.open(tmp_path / "index") as index:
        assert list(index.languages) == ["turkish"]
    assert reindexed(tmp_path / "index", language="auto") is None
