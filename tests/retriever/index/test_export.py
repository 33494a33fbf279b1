"""An index, and vectors of a corpus, as files: readers read them back, all or nothing."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from indexes.folder.verify import verify
from retriever import CorpusReader, Document, Fields, Index
from retriever.errors import ConfigError, SourceError, StorageError
from retriever.index import encode_to_file, export_jsonl, export_npy
from tests.retriever.index.collection_samples import stored

WORDS = " ".join(f"word{i}" for i in range(100))
ODD = [
    Document("b", "NUL \0, separators \u2028 \x85 and\nlines\r\n", "", {"x": {"_id": "y"}}),
    Document("a", "plain"),
    Document("10", "after 9 as text? no: before", None, {"n": -(2**63), "f": 0.1, "t": [True]}),
    Document("9", "Füße 🦊 \\ \" '", "Title", {"é": None, "contents": "c", "_id": 3}),
    Document("é", "last", "A long title " * 5, {}),
    Document("long", WORDS),
]


@pytest.fixture
def folder(tmp_path, fake_encoder):
    with Index.create(tmp_path / "my.index") as index:
        index.add([Document("gone", "deleted"), *ODD])
        index.delete(["gone"])
    return tmp_path / "my.index"


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_export_is_read_back_in_order_of_ids_and_indexing_it_changes_nothing(folder, tmp_path):
    written = export_jsonl(folder, tmp_path / "out.jsonl")
    assert (written.documents, written.files) == (6, (tmp_path / "out.jsonl",))
    back = list(CorpusReader([tmp_path / "out.jsonl"]))
    assert back == sorted(ODD, key=lambda document: document.id)
    assert names(tmp_path) == ["my.index", "out.jsonl"]
    with Index.open(folder) as index:
        assert index.add(back).unchanged == 6
        index.clear()
    export_jsonl(folder, tmp_path / "out.jsonl", vectors=True)
    export_npy(folder, tmp_path / "out.npy")
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    assert np.load(tmp_path / "out.npy").shape == (0, 16)


def test_vectors_come_back_as_the_float32_they_are(folder, tmp_path, fake_encoder):
    written = export_jsonl(folder, tmp_path / "out.jsonl", vectors=True)
    assert written.files == (tmp_path / "out.jsonl", tmp_path / "out.encoder.json")
    expected = stored(folder)
    total = 0
    for record in lines(tmp_path / "out.jsonl"):
        title, text, _, spans, vectors = expected.pop(record["id"])
        assert [(vector["start"], vector["stop"]) for vector in record["vectors"]] == spans
        found = [vector["vector"] for vector in record["vectors"]]
        np.testing.assert_array_equal(np.array(found, np.float32), np.array(vectors, np.float32))
        texts = [f"{title} {text[a:b]}" if title else text[a:b] for a, b in spans]
        np.testing.assert_allclose(found, fake_encoder.encode(texts), atol=1e-6)
        total += len(spans)
    assert not expected
    assert total == written.passages > 6
    encoder = json.loads((tmp_path / "out.encoder.json").read_text())
    assert encoder == fake_encoder.spec.to_json()
    stream = io.StringIO()
    assert export_jsonl(folder, stream, vectors=True).files == ()
    assert stream.getvalue() == (tmp_path / "out.jsonl").read_text("utf-8")


def test_numpy_gets_a_row_a_passage_with_its_id_and_place(folder, tmp_path):
    written = export_npy(folder, tmp_path / "out.npy")
    matrix = np.load(tmp_path / "out.npy", allow_pickle=False)
    rows = lines(tmp_path / "out.ids.jsonl")
    assert (matrix.dtype, matrix.shape) == (np.float32, (written.passages, 16))
    expected = [
        ({"id": id_, "start": start, "stop": stop}, vector)
        for id_, (*_, spans, vectors) in stored(folder).items()
        for (start, stop), vector in zip(spans, vectors, strict=True)
    ]
    assert rows == [row for row, _ in expected]
    assert matrix.tolist() == [vector for _, vector in expected]
    assert names(tmp_path) == ["my.index", "out.encoder.json", "out.ids.jsonl", "out.npy"]


def test_fields_can_have_other_names(tmp_path, fake_encoder):
    document = Document("1", "text", None, {"id": "x", "text": "y", "title": "z"})
    with Index.create(tmp_path / "my.index") as index:
        index.add([document, Document("2", "more", "T")])
    fields = Fields("key", "body", "headline")
    export_jsonl(tmp_path / "my.index", tmp_path / "out.jsonl", names=fields)
    back = list(CorpusReader([tmp_path / "out.jsonl"], fields))
    assert back == [document, Document("2", "more", "T")]
    with pytest.raises(ConfigError, match="one name"):
        export_jsonl(tmp_path / "my.index", tmp_path / "out.jsonl", names=Fields("text"))


@pytest.mark.parametrize("name", ["id", "text", "title", "vectors"])
def test_export_refuses_metadata_with_reserved_name_and_keeps_old_file(
    tmp_path, fake_encoder, name
):
    with Index.create(tmp_path / "my.index") as index:
        index.add([Document("1", "good"), Document("2", "bad", None, {name: 1})])
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    with pytest.raises(ConfigError, match=f"^document '2': its metadata has a field {name!r}.*$"):
        export_jsonl(tmp_path / "my.index", output, vectors=True)
    assert output.read_text() == "old"
    assert names(tmp_path) == ["my.index", "out.jsonl"]
    if name == "vectors":
        assert export_jsonl(tmp_path / "my.index", output).documents == 2


@pytest.mark.parametrize("form", ["jsonl", "npy"])
def test_an_export_is_of_one_commit_while_a_writer_goes_on(tmp_path, fake_encoder, form):
    documents = [Document(f"d{i:04}", f"text n{i}") for i in range(1100)]
    with Index.create(tmp_path / "my.index") as index:
        index.add(documents)
        before = stored(tmp_path / "my.index")
        calls = []

        def change(done):
            calls.append(done)
            index.delete([document.id for document in documents])
            index.add([Document(f"new{len(calls)}", "text")])
            index.compact()

        output = tmp_path / f"out.{form}"
        if form == "jsonl":
            export_jsonl(tmp_path / "my.index", output, vectors=True, progress=change)
            found = {one["id"]: [one["vectors"][0]["vector"]] for one in lines(output)}
        else:
            export_npy(tmp_path / "my.index", output, progress=change)
            ids = [one["id"] for one in lines(tmp_path / "out.ids.jsonl")]
            found = {id_: [row] for id_, row in zip(ids, np.load(output).tolist(), strict=True)}
    assert len(calls) > 2
    assert list(found) == [document.id for document in documents]
    for id_, vectors in found.items():
        np.testing.assert_array_equal(np.array(vectors, np.float32), np.float32(before[id_][4]))
    assert verify(tmp_path / "my.index") == []


class Told:
    """The sizes of windows, and the number of texts."""

    def __init__(self):
        self.windows, self.texts = [], 0

    def window(self, passages, waiting):
        self.windows.append(passages)

    def encoded(self, passages, pieces):
        self.texts += passages


def encode(stream, encoder, output, on_long="truncate", told=None):
    return encode_to_file(stream, encoder, output, on_long=on_long, progress=told or Told())


def many(n, error=None):
    for i in range(n):
        yield Document(f"id {i} é", f"text n{i}", f"Title {i}" if i % 2 else None)
    if error is not None:
        raise error


@pytest.mark.parametrize(("n", "windows"), [(0, []), (1, [1]), (8192, [8192]), (8193, [8192, 1])])
def test_numpy_reads_encoded_rows_in_the_order_of_the_documents(tmp_path, fake_encoder, n, windows):
    output, told = tmp_path / "out.npy", Told()
    # Those of an earlier run are replaced.
    encode(many(2), fake_encoder, output)
    assert encode(many(n), fake_encoder, output, told=told) == (n, 0)
    assert (told.windows, told.texts) == (windows, n)
    vectors = np.load(output, mmap_mode="r", allow_pickle=False)
    assert (vectors.dtype, vectors.shape) == (np.float32, (n, 16))
    texts = [f"{d.title} {d.text}" if d.title else d.text for d in many(n)]
    if n:
        np.testing.assert_array_equal(vectors, fake_encoder.encode(texts))
    assert lines(tmp_path / "out.ids.jsonl") == [d.id for d in many(n)]
    assert names(tmp_path) == ["out.ids.jsonl", "out.npy"]


def test_long_texts_are_cut_and_counted(tmp_path, fake_encoder):
    stream = [Document("a", "short"), Document("b", WORDS), Document("c", WORDS, "t")]
    assert encode(stream, fake_encoder, tmp_path / "v.npy") == (3, 2)
    expected = fake_encoder.encode(["short", WORDS, f"t {WORDS}"])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("stream", "on_long", "error"),
    [
        (lambda: many(10_000, SourceError("bad")), "truncate", SourceError),
        (lambda: many(10_000, KeyboardInterrupt), "truncate", KeyboardInterrupt),
        (lambda: [Document("a", "x"), Document("b", WORDS)], "error", SourceError),
    ],
)
def test_failed_encoding_leaves_only_old_files(
    tmp_path, fake_encoder, existing, stream, on_long, error
):
    if existing:
        encode(many(2), fake_encoder, tmp_path / "v.npy")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error):
        encode(stream(), fake_encoder, tmp_path / "v.npy", on_long)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_export_refuses_unwritable_names_before_reading(folder, tmp_path):
    (tmp_path / "a.jsonl").mkdir()
    for write, name, error, message in (
        (export_jsonl, "a.jsonl", StorageError, "a.jsonl"),
        (export_jsonl, "nowhere/out.jsonl", StorageError, "nowhere"),
        (export_jsonl, "out.csv", ConfigError, r"ends in \.jsonl"),
        (export_npy, "out.bin", ConfigError, r"ends in \.npy"),
        (lambda _, path: encode([], None, path), "out.bin", ConfigError, r"ends in \.npy"),
    ):
        with pytest.raises(error, match=message):
            write(folder, tmp_path / name)
    assert names(tmp_path) == ["a.jsonl", "my.index"]
