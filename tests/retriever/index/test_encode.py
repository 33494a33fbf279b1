"""Vectors of a corpus in a file: NumPy reads it, rows are in order, failures leave nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retriever import Document
from retriever.errors import ConfigError, SourceError, StorageError
from retriever.index.export import encode_to_file

LONG = " ".join(f"w{i}" for i in range(100))


def documents(n):
    for i in range(n):
        yield Document(f"id {i} é", f"text n{i}", f"Title {i}" if i % 2 else None)


class Told:
    """The sizes of windows, and the number of texts."""

    def __init__(self):
        self.windows, self.texts = [], 0

    def window(self, passages):
        self.windows.append(passages)

    def encoded(self, passages, pieces):
        self.texts += passages


def write(stream, encoder, output, on_long="truncate", progress=None):
    progress = progress or Told()
    return encode_to_file(stream, encoder, output, on_long=on_long, progress=progress)


@pytest.mark.parametrize(
    ("n", "windows"), [(0, []), (1, [1]), (10, [10]), (8192, [8192]), (8193, [8192, 1])]
)
def test_numpy_reads_the_rows_in_the_order_of_the_documents(tmp_path, fake_encoder, n, windows):
    output, told = tmp_path / "vectors.npy", Told()
    # Those of an earlier run are replaced.
    write(documents(2), fake_encoder, output)
    written = write(documents(n), fake_encoder, output, progress=told)
    assert (told.windows, told.texts) == (windows, n)
    assert written == (n, 0)
    for mode in (None, "r"):
        vectors = np.load(output, mmap_mode=mode, allow_pickle=False)
        assert (vectors.dtype, vectors.shape) == (np.float32, (n, 16))
        assert vectors.flags.c_contiguous
    texts = [f"{d.title} {d.text}" if d.title else d.text for d in documents(n)]
    if n:
        np.testing.assert_array_equal(vectors, fake_encoder.encode(texts))
    ids = [json.loads(line) for line in (tmp_path / "vectors.ids.jsonl").read_text().splitlines()]
    assert ids == [d.id for d in documents(n)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.ids.jsonl", "vectors.npy"]


def test_long_texts_are_cut_and_counted(tmp_path, fake_encoder):
    stream = [Document("a", "short"), Document("b", LONG), Document("c", LONG, "t")]
    assert write(stream, fake_encoder, tmp_path / "v.npy") == (3, 2)
    expected = fake_encoder.encode(["short", LONG, f"t {LONG}"])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)


def failing(n):
    yield from documents(n)
    raise SourceError("corpus.jsonl:9: bad")


def interrupted(n):
    yield from documents(n)
    raise KeyboardInterrupt


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("stream", "on_long", "error"),
    [
        (lambda: failing(10_000), "truncate", SourceError),
        (lambda: interrupted(10_000), "truncate", KeyboardInterrupt),
        (lambda: [Document("a", "x"), Document("b", LONG)], "error", SourceError),
    ],
)
def test_a_failure_leaves_what_was_there_and_nothing_else(
    tmp_path, fake_encoder, existing, stream, on_long, error
):
    if existing:
        write(documents(2), fake_encoder, tmp_path / "v.npy")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error):
        write(stream(), fake_encoder, tmp_path / "v.npy", on_long)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_name_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path, fake_encoder):
    (tmp_path / "folder.npy").mkdir()
    for name, error in (
        ("corpus.jsonl", ConfigError),
        ("nowhere/v.npy", StorageError),
        ("folder.npy", StorageError),
    ):
        with pytest.raises(error, match="expected a file"):
            write(failing(0), fake_encoder, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npy"]
