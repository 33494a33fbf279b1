"""The Index object: making, opening, describing, forms of documents, keywords, refusals."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indexes import writer_lock
from indexes.folder.connection import FORMAT_VERSION
from retriever import Document, Index, PassageSettings, SearchSettings
from retriever.errors import (
    BadInputError,
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    FilterError,
    IndexLockedError,
    NotAnIndexError,
)
from retriever.index.reading import CorpusDifference

TEXTS = [Document(str(i), f"apples and n{i}", None, {"i": i}) for i in range(12)]


@pytest.fixture
def folder(tmp_path, fake_encoder, monkeypatch):
    """Folder of an index with one segment."""
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    with Index.create(tmp_path / "above" / "my.index") as index:
        index.add(TEXTS)
    return tmp_path / "above" / "my.index"


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "my.index") as made:
        made.add(TEXTS)
        yield made


class Letters:
    """Anything with `encode`: counts letters."""

    name = "letters"
    dimensions = 26

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift

    def encode(self, sentences):
        letters = [chr(97 + (number - self._shift) % 26) for number in range(26)]
        return np.array([[text.lower().count(one) for one in letters] for text in sentences])


def test_a_folder_with_other_files_is_left_alone_before_a_model_is_loaded(tmp_path, fake_encoder):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAnIndexError, match=r"holds 'notes\.txt'"):
        Index.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert fake_encoder.loads == 0


@pytest.mark.parametrize("impossible", [{"on_long": "error"}, {"overlap": -1}], ids=str)
def test_impossible_passage_settings_are_refused(impossible):
    with pytest.raises(ConfigError, match=f"{next(iter(impossible))}: expected"):
        PassageSettings(**impossible)


def test_another_model_than_the_index_has_is_refused_naming_both(folder, tiny_models):
    model = str(tiny_models["bert"])
    with pytest.raises(EncoderMismatchError) as caught:
        Index.open(folder, model)
    assert "fake" in str(caught.value)
    assert model in str(caught.value)
    for make in (Index.open, Index.create):
        with pytest.raises(EncoderMismatchError, match=r"max-length=32 .*, but max-length=16"):
            make(folder, "::max-length=16")


def test_moved_model_is_accepted_and_changed_model_is_refused_at_use(tmp_path, tiny_models):
    model = shutil.copytree(tiny_models["bert"], tmp_path / "model")
    with Index.create(tmp_path / "i", str(model)) as index:
        index.add([Document("1", "w1 w2 w3"), Document("2", "w4 w5")])
    with Index.open(tmp_path / "i", str(tiny_models["bert"])) as index:
        assert index.search("w1 w2 w3", mode="dense")[0].id == "1"
    shutil.copy(tiny_models["roberta"] / "tokenizer.json", model)
    with Index.open(tmp_path / "i") as index:
        assert len(index.search("w1", mode="bm25")) == 1
        for use in (lambda: index.search("w1"), lambda: index.add([Document("3", "w1")])):
            with pytest.raises(EncoderMismatchError, match="has changed"):
                use()
        assert index.verify() == []


@pytest.mark.parametrize("key", ["encoder", "analyzer", "passages"])
@pytest.mark.parametrize("value", [None, "[]", '{"no such": 1}', "{", '"text"'])
def test_an_altered_setting_is_damage_that_names_the_file(folder, key, value):
    with closing(sqlite3.connect(folder / "index.sqlite")) as database, database:
        database.execute("DELETE FROM settings WHERE key = ?", (key,))
        if value is not None:
            database.execute("INSERT INTO settings (key, value) VALUES (?, ?)", (key, value))
    with pytest.raises(DamagedIndexError) as caught:
        Index.open(folder)
    assert str(folder / "index.sqlite") in str(caught.value)


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
@pytest.mark.parametrize(
    ("text", "fault"), [("", "is empty"), (" \n\t", "is empty"), ("caf\udce9", "holds the lone")]
)
def test_a_query_that_is_no_text_is_refused_with_its_number(folder, mode, text, fault):
    with Index.open(folder) as index, pytest.raises(BadInputError, match=f"query 2 {fault}"):
        list(index.search_many(["apples", text], mode=mode))


def test_queries_are_read_as_a_stream(folder):
    asked = []

    def queries():
        for number in range(1000):
            asked.append(number)
            yield f"n{number}"

    with Index.open(folder) as index:
        answers = index.search_many(queries(), mode="bm25")
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
    assert (info["documents"], info["passages"], info["deleted_passages"]) == (11, 11, 1)
    assert info["format_version"] == FORMAT_VERSION
    assert info["encoder"]["model"] == "fake"
    assert (info["analyzer"]["language"], info["languages"]) == ("auto", {"english": 11})
    assert [segment["passages"] for segment in info["segments"]] == [12]
    assert info["bytes"] == on_disk


class TestDocuments:
    def test_texts_mappings_and_documents_are_added_side_by_side(self, tmp_path, fake_encoder):
        with Index.create(tmp_path / "my.index") as index:
            report = index.add(
                [
                    "a text",
                    {"id": "42", "text": "pears", "title": "Fruit", "year": 2020},
                    Document("x", "plums"),
                ]
            )
            assert (report.added, len(index)) == (3, 3)
            assert index["42"] == Document("42", "pears", "Fruit", {"year": 2020})
            # The id of a text depends on its content: adding it again adds nothing.
            assert index.add(["a text"]).unchanged == 1
            assert {document.text for document in index} == {"a text", "pears", "plums"}

    def test_add_accepts_vectors_and_refuses_wrong_shapes(self, index, fake_encoder):
        rows = np.eye(3, 16, dtype=np.float32)
        encoded = fake_encoder.encoded
        index.add([Document(f"v{i}", f"text {i}") for i in range(3)], vectors=rows)
        assert fake_encoder.encoded == encoded
        for wrong, message in (
            (rows[:2], "expected one for each document, found 2"),
            (np.eye(4, 16), "expected 3, one for each document, found more"),
            (np.eye(3, 15), r"'w0': expected vectors of shape \(1, 16\), .*found \(1, 15\)"),
            (np.full((3, 16), np.nan), "'w0': passage 1: .*found NaN"),
        ):
            with pytest.raises(BadInputError, match=message):
                index.add([Document(f"w{i}", f"text {i}") for i in range(3)], vectors=wrong)

    def test_documents_are_found_by_id(self, index):
        assert ("3" in index, 3 in index, len(index)) == (True, False, 12)
        assert [document.id for document in index] == sorted(one.id for one in TEXTS)
        calls = index.__getitem__, index.spans, index.more_like
        for id_ in ("33", "3\0", "\ud800", "", " "):
            assert id_ not in index
            assert index.delete([id_]) == 0
            for call in (*calls, lambda one: index.update(one, metadata={"n": 1})):
                with pytest.raises(KeyError):
                    call(id_)
        assert index["3"] == TEXTS[3]

    def test_metadata_is_updated_without_encoding(self, index, fake_encoder):
        encoded, passages = fake_encoder.encoded, index.info()["passages"]
        index.update("3", metadata={"i": 99, "new": [1, "x"]})
        assert (fake_encoder.encoded, index.info()["passages"]) == (encoded, passages)
        assert index["3"].metadata == {"i": 99, "new": [1, "x"]}
        assert [hit.id for hit in index.search("apples", where="i = 99")] == ["3"]
        assert not index.search("n3", mode="bm25", where="i = 3")
        with pytest.raises(BadInputError, match="document '3': the field 'bad' holds a NUL"):
            index.update("3", metadata={"bad": ["a\0b"]})


class TestRefusals:
    def test_pruning_to_nothing_is_refused(self, index):
        with pytest.raises(ConfigError, match=r"no document was read.*delete all 12.*clear"):
            index.add(iter(()), prune=True)
        assert len(index) == 12
        assert index.clear() == 12
        assert len(index) == 0
        # Nothing is lost where nothing is there.
        assert index.add([], prune=True).deleted == 0

    def test_a_type_that_a_field_does_not_have_is_named(self, index):
        index.update("3", metadata={"year": 2000, "tags": ["geo"]})
        message = "filter: the field 'tags' has lists and no strings: write tags contains \"geo\""
        for search in (index.search, lambda text, where: index.more_like("4", where=where)):
            with pytest.warns(UserWarning, match=message):
                assert search("apples", where="tags = 'geo'") == []
            assert [hit.id for hit in search("apples", where='tags contains "geo"')] == ["3"]
        with pytest.warns(UserWarning, match=message):
            assert index.facets(["year"], where="tags = 'geo'").documents == 0
        assert index.filter_warning("tags = 'geo'") == message
        for where, fault in (
            ("not year = '2000'", "no strings: write the value without quotes, 2000; nothing"),
            ("yer > 3", "no document has the field 'yer'; did you mean 'year'"),
            ("i > = 3", "expected"),
        ):
            with pytest.raises(FilterError, match=fault):
                index.delete_where(where)
        assert len(index) == 12


def test_every_field_of_the_settings_is_a_keyword(index):
    settings = SearchSettings(k=3, mode="bm25")
    assert index.search("n3 apples", k=3, mode="bm25") == index.search("n3 apples", settings)
    # A keyword changes one field of settings that are given.
    assert len(index.search("apples", settings, k=2)) == 2
    low, high = (index.search("n3 apples", alpha=alpha) for alpha in (0.0, 1.0))
    assert [hit.score for hit in low] != [hit.score for hit in high]
    heavy = index.search("n3", mode="bm25", b=0.0, k1=9.0)
    assert heavy[0].score != index.search("n3", mode="bm25")[0].score


class TestWrongArguments:
    """Common wrong arguments; the messages name the right ones."""

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda index: index.delete("12"), "ids: expected several strings, found '12'"),
            (lambda index: index.search_many("cat"), "texts: expected several strings"),
            (lambda index: index.add("cat"), "expected several documents, found one str"),
            (lambda index: index.add({"id": "1"}), "expected several documents, found one dict"),
            (lambda index: index.add(TEXTS[0]), "expected several documents, found one Document"),
            (lambda index: index.search(["cat"]), "text: expected one query, found list"),
            (lambda index: index.search("n1", 3), "settings: expected SearchSettings, found 3;"),
            (lambda index: index.more_like("1", 3), "settings: expected SearchSettings, found 3"),
            (lambda index: index.candidates(["n1"], 3), "expected SearchSettings, found 3;"),
            (lambda index: index.search("n1", bm25=3), "expected BM25Settings or single settings"),
            (lambda index: index.search("n1", fusion=[1]), "expected FusionSettings or single"),
            (
                lambda index: index.search("n1", reranker="my.reranker"),
                "reranker: expected a loaded reranker, found 'my.reranker'; load one",
            ),
            (lambda index: index.search("n1", reranker=print), "expected a loaded reranker, found"),
            (lambda index: index.search("n1", where={}), "filter: expected a text such as"),
            (lambda index: index.delete_where(1), "filter: expected a text such as"),
            (lambda index: index.search("n1", top_k=3), "'top_k'; did you mean 'k'"),
            (lambda index: index.search("n1", filter="i = 1"), "'filter'; did you mean 'where'"),
            (lambda index: index.search("n1", alfa=0.3), "'alfa'; did you mean 'alpha'"),
            (lambda index: index.search("n1", zz=1), "'zz' (known: alpha, b,"),
            (
                lambda index: index.search("n1", zz=1),
                "recall, recency, reranker, rrf_k, sort, variant, where)",
            ),
            (lambda index: index.search_many(["n1"], redy=1), "did you mean 'ready'"),
            (lambda index: index.more_like("1", top_k=3), "rrf_k, sort, start, variant, where)"),
            (lambda index: index.reindex(analyser=None), "did you mean 'analyzer'"),
            (lambda index: index.reindex(None), "expected a name, a folder or EncoderSettings"),
            (
                lambda index: Index.open(index.folder, print),
                "found <built-in function print>; leav",
            ),
            (
                lambda index: Index.create(index.folder, None),
                "found None; leave it out for the default",
            ),
            *(
                (lambda index, one=one: Index.open(index.folder, encoder=one), "model as model")
                for one in ("all-MiniLM-L6-v2", Path("model"), len, Letters)
            ),
        ],
    )
    def test_wrong_argument_raises_type_error_with_expected_name(self, index, call, message):
        with pytest.raises(TypeError, match=re.escape(message)):
            call(index)
        assert len(index) == 12

    @pytest.mark.parametrize("keywords", [{}, {"model": "all-MiniLM-L6-v2"}])
    def test_calling_class_raises_error_that_names_its_constructor(self, keywords):
        message = r"Index: expected Index.open\('my.index'\) or Index.create\('my.index'\)"
        with pytest.raises(TypeError, match=message):
            Index("my.index", **keywords)
        with pytest.raises(TypeError, match=r"expected Index.open\(folder\)"):
            Index(**keywords)


class TestOwnEncoders:
    def test_object_with_encode_method_serves_index(self, tmp_path):
        encoder = Letters()
        with Index.create(tmp_path / "my.index", encoder=encoder) as index:
            index.add(["aaa", "bbb", "abc"])
            (best,) = index.search("bb", mode="dense", k=1)
            assert (best.passage, best.score) == ("bbb", 1.0)
        with Index.open(tmp_path / "my.index", encoder=Letters()) as index:
            assert index.search("aa", mode="dense", k=1)[0].passage == "aaa"

    def test_index_refuses_encoder_object_with_other_name_or_vectors(self, tmp_path):
        class Wrong(Letters):
            def encode(self, sentences):
                return [[1.0]]

        Index.create(tmp_path / "my.index", encoder=Letters()).close()
        other = Letters()
        other.name = "other"
        for encoder, named in ((Letters(shift=1), "letters"), (other, "other")):
            with pytest.raises(EncoderMismatchError, match=named):
                Index.open(tmp_path / "my.index", encoder=encoder)
        with pytest.raises(ConfigError, match=r"expected vectors of shape \(3, 26\)"):
            Index.create(tmp_path / "new", encoder=Wrong())

    def test_one_loaded_encoder_serves_many_indexes(self, tmp_path, fake_encoder):
        for name in ("one", "two"):
            with Index.create(tmp_path / name, encoder=fake_encoder) as index:
                index.add(TEXTS)
                assert index.encoder is fake_encoder
        assert fake_encoder.loads == 0

    def test_sentence_transformer_object_serves_index(self, tmp_path, minilm):
        transformers = pytest.importorskip("sentence_transformers")
        import layer_retriever_minilm

        folder = Path(layer_retriever_minilm.__file__).parent
        found = next(path.parent for path in folder.rglob("modules.json"))
        model = transformers.SentenceTransformer(str(found), device="cpu")
        texts = ["The cat sat on the mat.", "Stocks fell on Monday."]
        with Index.create(tmp_path / "my.index", encoder=model) as index:
            index.add(texts)
            (hit,) = index.search("a cat", mode="dense", k=1)
            vectors = index.encoder.encode(texts)
        assert hit.passage == texts[0]
        np.testing.assert_allclose(vectors, minilm.encode(texts), atol=1e-4)


def test_last_document_of_equal_ids_is_kept_without_extra_commit(index):
    before = index.info()["generation"]
    updates = [Document("3", f"version {i}", None, {"i": i}) for i in range(200)]
    report = index.add(updates)
    assert index["3"].text == "version 199"
    assert index.info()["generation"] - before <= 2
    assert (report.updated, report.added, len(index)) == (1, 0, 12)


def test_writer_waits_for_lock_up_to_lock_timeout(index):
    holder = writer_lock(index.folder)
    holder.__enter__()
    with pytest.raises(IndexLockedError, match="another writer"):
        index.delete(["1"])
    threading.Timer(0.3, holder.__exit__, (None, None, None)).start()
    with Index.open(index.folder, lock_timeout=20) as patient:
        assert patient.delete(["1"]) == 1


def test_a_corpus_is_compared_by_id_title_and_text(index):
    assert index.difference(iter(TEXTS)) == CorpusDifference(12, 0, 0, 0)
    titled, other = replace(TEXTS[0], title="A title"), replace(TEXTS[1], metadata={"year": 2000})
    corpus = [titled, other, Document("new", "n1"), *TEXTS[3:]]
    assert index.difference(iter(corpus)) == CorpusDifference(12, 1, 1, 1)
    assert index.difference(iter([])) == CorpusDifference(0, 0, 0, 12)
    assert len(index) == 12


def test_open_index_continues_after_reindex(index, fake_encoder, tmp_path):
    index.export(tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (12, 16)
    assert index.reindex(encoder=fake_encoder, language="german") is not None
    assert index.analyzer.settings.language == "german"
    assert len(index.search("apples", mode="bm25")) == 10
    assert index.reindex(encoder=fake_encoder, language="german") is None
