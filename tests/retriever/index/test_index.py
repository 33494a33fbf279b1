"""The Index object: making, opening, describing, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from indexes.folder.connection import FORMAT_VERSION
from retriever import (
    AnalyzerSettings,
    Document,
    Index,
    PassageSettings,
    SearchSettings,
)
from retriever.errors import (
    BadInputError,
    ClosedIndexError,
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    FilterError,
    FormatVersionError,
    NotAnIndexError,
    StorageError,
)

BM25 = SearchSettings(mode="bm25")
DOCUMENTS = [Document(str(i), f"apples and n{i}", None, {"i": i}) for i in range(5)]


@pytest.fixture
def folder(tmp_path, fake_encoder, monkeypatch):
    """Of one segment."""
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    with Index.create(tmp_path / "my.index") as index:
        index.add(DOCUMENTS)
    return tmp_path / "my.index"


def change(folder, statement, *values):
    with closing(sqlite3.connect(folder / "index.sqlite")) as database, database:
        database.execute(statement, values)


def one_line(error):
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


def test_create_opens_what_is_there_and_keeps_it(folder):
    with Index.create(folder) as index:
        assert index.info()["documents"] == 5
        assert index.add(DOCUMENTS).unchanged == 5


@pytest.mark.parametrize("impossible", [{"on_long": "error"}, {"overlap": -1}], ids=str)
def test_impossible_passage_settings_are_refused(impossible):
    with pytest.raises(ConfigError, match=f"{next(iter(impossible))}: expected"):
        PassageSettings(**impossible)


def test_create_makes_the_folders_above(tmp_path, fake_encoder):
    with Index.create(tmp_path / "a" / "b" / "my.index") as index:
        assert index.search("x", BM25) == []


def test_open_loads_no_model(folder, fake_encoder):
    loads = fake_encoder.loads
    with Index.open(str(folder)) as index:
        assert len(index.search("apples", BM25)) == 5
        assert fake_encoder.loads == loads
        assert len(index.search("apples")) == 5
        assert len(index.search("apples")) == 5
    assert fake_encoder.loads == loads + 1


def test_searching_sees_every_commit_made_before(folder):
    with Index.open(folder) as reader, Index.open(folder) as writer:
        assert len(reader.search("apples", BM25)) == 5
        writer.delete(["0"])
        assert len(reader.search("apples", BM25)) == 4
        writer.add([Document("new", "apples")])
        assert len(reader.search("apples", BM25)) == 5
        assert reader.info()["generation"] == writer.info()["generation"]


@pytest.mark.parametrize("make", ["nowhere", "empty", "other"])
def test_a_folder_that_is_no_index_is_not_opened(tmp_path, make):
    folder = tmp_path / make
    if make != "nowhere":
        folder.mkdir()
    if make == "other":
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(NotAnIndexError) as caught:
        Index.open(folder)
    assert str(folder) in one_line(caught)
    assert make == "nowhere" or sorted(p.name for p in folder.iterdir()) == (
        ["notes.txt"] if make == "other" else []
    )


def test_a_folder_with_other_files_is_left_alone_before_a_model_is_loaded(tmp_path, fake_encoder):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAnIndexError, match=r"holds 'notes\.txt'"):
        Index.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert fake_encoder.loads == 0


def test_a_file_is_no_place_for_an_index(tmp_path, fake_encoder):
    file = tmp_path / "file"
    file.write_text("mine")
    for make in (Index.create, Index.open):
        with pytest.raises(NotAnIndexError, match="found a file"):
            make(file)
    with pytest.raises(StorageError) as caught:
        Index.create(file / "below")
    assert str(file) in one_line(caught)
    assert file.read_text() == "mine"


def test_an_index_of_a_newer_release_is_refused_and_left_alone(folder):
    change(folder, f"PRAGMA user_version={FORMAT_VERSION + 1}")
    before = (folder / "index.sqlite").read_bytes()
    for make in (Index.open, Index.create):
        with pytest.raises(FormatVersionError) as caught:
            make(folder)
        assert f"version {FORMAT_VERSION + 1}" in one_line(caught)
    assert (folder / "index.sqlite").read_bytes() == before


def test_another_analyzer_than_the_index_has_is_refused(folder):
    with pytest.raises(ConfigError) as caught:
        Index.create(folder, analyzer=AnalyzerSettings("german"))
    assert "german" in one_line(caught)
    with Index.create(folder, analyzer=AnalyzerSettings()) as index:
        assert index.analyzer.settings == AnalyzerSettings()


def test_another_model_than_the_index_has_is_refused_naming_both(folder, tiny_models):
    model = str(tiny_models["bert"])
    with pytest.raises(EncoderMismatchError) as caught:
        Index.open(folder, model)
    assert "fake" in one_line(caught)
    assert model in str(caught.value)


def test_a_copy_of_the_index_model_under_another_name_is_accepted(tmp_path, tiny_models):
    with Index.create(tmp_path / "i", str(tiny_models["bert"])) as index:
        index.add([Document("1", "w1 w2 w3"), Document("2", "w4 w5")])
    (tmp_path / "moved").symlink_to(tiny_models["bert"])
    with Index.open(tmp_path / "i", str(tmp_path / "moved")) as index:
        assert index.search("w1 w2 w3", SearchSettings(mode="dense"))[0].id == "1"


def test_a_model_that_changed_on_disk_is_refused_when_it_is_needed(tmp_path, tiny_models):
    model = shutil.copytree(tiny_models["bert"], tmp_path / "model")
    with Index.create(tmp_path / "i", str(model)) as index:
        index.add([Document("1", "w1 w2 w3")])
    shutil.copy(tiny_models["roberta"] / "tokenizer.json", model)
    with Index.open(tmp_path / "i") as index:
        assert len(index.search("w1", BM25)) == 1
        with pytest.raises(EncoderMismatchError, match="has changed"):
            index.search("w1")
        with pytest.raises(EncoderMismatchError, match="has changed"):
            index.add([Document("2", "w1")])
        assert index.verify() == []


@pytest.mark.parametrize("key", ["encoder", "analyzer", "passages"])
@pytest.mark.parametrize("value", [None, "[]", '{"no such": 1}', "{", '"text"'])
def test_an_altered_setting_is_damage_that_names_the_file(folder, key, value):
    if value is None:
        change(folder, "DELETE FROM settings WHERE key = ?", key)
    else:
        change(folder, "UPDATE settings SET value = ? WHERE key = ?", value, key)
    with pytest.raises(DamagedIndexError) as caught:
        Index.open(folder)
    assert str(folder / "index.sqlite") in one_line(caught)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_blank_query_is_refused_with_its_number(folder, text):
    with Index.open(folder) as index, pytest.raises(BadInputError, match="query 2 is empty"):
        list(index.search_many(["apples", text], BM25))


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_a_query_that_is_no_unicode_text_is_refused(folder, mode):
    with Index.open(folder) as index, pytest.raises(BadInputError, match="query 1 holds the lone"):
        index.search("caf\udce9", SearchSettings(mode=mode))


def test_a_filter_that_does_not_parse_points_at_the_character(folder):
    with Index.open(folder) as index:
        for call in (lambda w: index.search("x", BM25, where=w), index.delete_where):
            with pytest.raises(FilterError) as caught:
                call("i > = 3")
            assert caught.value.position == 4
        assert index.info()["documents"] == 5


def test_queries_are_read_as_a_stream(folder):
    asked = []

    def queries():
        for number in range(1000):
            asked.append(number)
            yield f"n{number}"

    with Index.open(folder) as index:
        answers = index.search_many(queries(), BM25)
        assert asked == []
        assert [hit.id for hit in next(answers)] == ["0"]
        assert len(asked) < 1000
        assert sum(1 for _ in answers) == 999


def test_info_describes_the_index_in_json_values(folder):
    with Index.open(folder) as index:
        index.delete(["3"])
        info = index.info()
        on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert json.loads(json.dumps(info)) == info
    assert (info["documents"], info["passages"], info["deleted_passages"]) == (4, 4, 1)
    assert info["format_version"] == FORMAT_VERSION
    assert info["encoder"]["model"] == "fake"
    assert info["analyzer"]["language"] == "english"
    assert [segment["passages"] for segment in info["segments"]] == [5]
    assert info["bytes"] == on_disk


def test_a_missing_file_of_a_segment_is_named(folder):
    [vectors] = folder.glob("segments/*/vectors.npy")
    vectors.unlink()
    with pytest.raises(DamagedIndexError) as caught:
        Index.open(folder).search("x")
    assert str(vectors) in one_line(caught)


def test_leaving_the_block_releases_the_database(folder):
    with Index.open(folder) as index:
        pass
    for use in (
        lambda: index.search("apples", BM25),
        index.info,
        lambda: index.add([Document("new", "text")]),
        lambda: len(index),
        lambda: index.encoder,
    ):
        with pytest.raises(ClosedIndexError, match=r"my\.index: the index object is closed"):
            use()
