"""Recreating an index: the old one serves until the new one is complete."""

from __future__ import annotations

import shutil

import pytest

from indexes.files import aside_of
from indexes.folder.lock import new_folder, writer_lock
from indexes.folder.verify import verify
from retriever import (
    AnalyzerSettings,
    CommitSettings,
    Document,
    Index,
    SearchSettings,
    StructureSettings,
    recreated,
)
from retriever.errors import ConfigError, IndexLockedError, NotAnIndexError

ALL = SearchSettings(mode="dense", k=10_000)
SMALL = CommitSettings(passages=100, window_passages=100)


class Killed(BaseException):
    """Ends the block as the death of the process would: nothing runs after it."""


def documents(n, word="old"):
    return [Document(f"{word}{i}", f"{word} text {i}") for i in range(n)]


def held(folder):
    with Index.open(folder) as index:
        return {hit.id for hit in index.search("text", ALL)}


def ids(*lists):
    return {document.id for documents in lists for document in documents}


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


def test_the_old_index_serves_until_the_block_ends(folder):
    with Index.open(folder) as reader:
        with recreated(folder) as index:
            index.add(documents(30, "new"), prune=True)
            assert held(folder) == ids(documents(20))
            assert {hit.id for hit in reader.search("text", ALL)} == ids(documents(20))
        assert held(folder) == ids(documents(30, "new"))
        assert {hit.id for hit in reader.search("text", ALL)} == ids(documents(30, "new"))


@pytest.mark.parametrize(("error", "lost"), [(RuntimeError, 0), (Killed, 512)])
def test_an_attempt_that_ends_early_is_resumed_with_the_same_settings(
    folder, fake_encoder, error, lost
):
    with pytest.raises(error), recreated(folder) as index:
        index.add(interrupted(2000, error), commit=SMALL, prune=True)
    assert held(folder) == ids(documents(20))
    with writer_lock(folder), pytest.raises(IndexLockedError), recreated(folder):
        pass
    before = fake_encoder.encoded
    with recreated(folder) as index:
        index.add(documents(2010, "new"), prune=True)
    assert fake_encoder.encoded - before <= lost + 10
    assert held(folder) == ids(documents(2010, "new"))


def test_other_sources_or_settings_leave_nothing_of_the_first_attempt(folder, fake_encoder):
    with pytest.raises(Killed), recreated(folder) as index:
        index.add(interrupted(1000), commit=SMALL, prune=True)
    with recreated(folder) as index:
        index.add(documents(5, "third"), prune=True)
    assert held(folder) == ids(documents(5, "third"))
    with pytest.raises(RuntimeError), recreated(folder) as index:
        index.add(interrupted(300, RuntimeError), prune=True)
    before = fake_encoder.encoded
    with recreated(folder, analyzer=AnalyzerSettings("german")) as index:
        index.add(documents(300, "new"), prune=True)
    assert fake_encoder.encoded - before == 300
    with Index.open(folder) as index:
        assert index.analyzer.settings.language == "german"


@pytest.mark.parametrize("damage", ["segment", "database", "settings"])
def test_a_damaged_index_can_be_recreated(folder, damage):
    if damage == "segment":
        shutil.rmtree(folder / "segments")
    elif damage == "database":
        content = (folder / "index.sqlite").read_bytes()
        (folder / "index.sqlite").write_bytes(content[:100] + b"\xff" * 3000)
    else:
        (folder / "index.sqlite").unlink()
    with recreated(folder) as index:
        index.add(documents(7, "new"), prune=True)
    assert held(folder) == ids(documents(7, "new"))


def test_a_second_writer_is_refused_meanwhile(folder):
    with recreated(folder) as index:
        index.add(documents(3, "new"), prune=True)
        with Index.open(folder) as old, pytest.raises(IndexLockedError):
            old.add(documents(1))
        with pytest.raises(IndexLockedError), recreated(folder):
            pass


def test_what_a_finished_replacement_left_beside_is_removed(folder, tmp_path):
    shutil.copytree(folder, new_folder(folder))
    shutil.copytree(folder, aside_of(folder))
    with recreated(folder) as index:
        index.add(documents(2, "new"), prune=True)
    assert held(folder) == ids(documents(2, "new"))


def test_without_an_old_index_a_new_one_is_made(folder, tmp_path):
    for name in ("fresh", "empty"):
        place = folder / name
        if name == "empty":
            place.mkdir()
        with recreated(place) as index:
            index.add(documents(2))
        assert held(place) == ids(documents(2))
        shutil.rmtree(place)


@pytest.mark.parametrize(
    "name",
    ["my.index", ".my.index.retriever-new", ".my.index.retriever-old", "photos"],
)
def test_files_that_are_no_part_of_an_index_are_never_removed(folder, tmp_path, name):
    (tmp_path / name).mkdir(exist_ok=True)
    precious = tmp_path / name / "precious.txt"
    precious.write_text("keep me")
    where = tmp_path / name if name == "photos" else folder
    with pytest.raises(NotAnIndexError, match=r"precious\.txt"), recreated(where):
        pass
    assert precious.read_text() == "keep me"
    assert held(folder) == ids(documents(20))
    precious.unlink()
    if name != "my.index":
        (tmp_path / name).rmdir()


def test_an_open_index_follows_one_made_anew_with_its_analyzer(folder):
    settings = SearchSettings(mode="bm25")
    with Index.open(folder) as reader:
        assert reader.search("texts", settings)
        with recreated(folder, analyzer=AnalyzerSettings(language="none")) as index:
            index.add([Document("x", "texts and the rest")], prune=True)
        # The old analyzer would look for the stem "text", which the new index does not hold.
        assert [hit.id for hit in reader.search("texts", settings)] == ["x"]
        assert reader.analyzer.settings.language == "none"
        # The old analyzer would leave "the" out of what it indexes.
        reader.add([Document("y", "the end")])
        assert [hit.id for hit in reader.search("the", settings)] == ["y", "x"]


def test_what_is_refused_keeps_what_is_there(folder, monkeypatch):
    nonsense = StructureSettings("nonsense")
    with pytest.raises(ConfigError, match="nonsense"), recreated(folder, structures=nonsense):
        pass
    assert not new_folder(folder).exists()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="another folder"), recreated("."):
        pass


def test_a_link_to_an_index_stays_a_link(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    with recreated(link) as index:
        index.add(documents(4, "new"), prune=True)
    assert link.is_symlink()
    assert held(link) == held(folder) == ids(documents(4, "new"))
    link.unlink()
