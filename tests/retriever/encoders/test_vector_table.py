"""Ready vectors as an encoder."""

import json

import numpy as np
import pytest

from retriever import Encoder, Index, MetaSettings, fit_meta
from retriever.errors import ConfigError, EncoderMismatchError, SourceError
from tests.retriever.encoders.plain import unit

TEXTS = ["A cat sleeps.", "", "A dog\nbarks: %3A::", "naïve \u2028 text"]
VECTORS = np.array([[3, 4, 0], [0, 0, 0], [1, 0, 0], [0, 0.5, 0.5]])


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "use.npy", VECTORS, TEXTS)


def write(path, vectors, texts):
    np.save(path, vectors)
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    path.with_suffix(".texts.jsonl").write_text(lines, encoding="utf-8")
    return path


def test_vector_table_looks_up_texts_and_is_identified_by_content(table, tmp_path):
    encoder = Encoder.load(str(table))
    chosen = [2, 0, 0, 1, 3]
    found = encoder.encode([TEXTS[row] for row in chosen])
    np.testing.assert_allclose(found, unit(VECTORS[chosen]), atol=1e-7)
    assert found.dtype == np.float32
    copy = write(tmp_path / "copy.npy", VECTORS, TEXTS)
    assert Encoder.load(str(copy)).spec.fingerprint == encoder.spec.fingerprint
    for vectors, texts in ((VECTORS + 1e-9, TEXTS), (VECTORS, [*TEXTS[:3], "other"])):
        other = write(tmp_path / "other.npy", vectors, texts)
        assert Encoder.load(str(other)).spec.fingerprint != encoder.spec.fingerprint
    raw = Encoder.load(f"{table}::normalize=no")
    np.testing.assert_array_equal(raw.encode(TEXTS, query=True), VECTORS.astype(np.float32))
    with pytest.raises(SourceError, match=r"2 of 3 texts have no vector, the first is 'A cow.'"):
        encoder.encode(["A cow.", TEXTS[0], "x"])


def test_index_of_vector_table_is_searched_and_refuses_other_tables(table, tmp_path):
    with Index.create(tmp_path / "index", model=str(table)) as index:
        index.add([{"id": "cat", "text": TEXTS[0]}, {"id": "dog", "text": TEXTS[2]}])
        (first, _) = index.search(TEXTS[2], mode="dense")
        assert (first.id, round(first.score, 6)) == ("dog", 1)
    write(table, VECTORS[::-1].copy(), TEXTS)
    with (
        Index.open(tmp_path / "index") as index,
        pytest.raises(EncoderMismatchError, match="has changed"),
    ):
        index.search(TEXTS[0], mode="dense")


def test_vector_table_is_source_of_meta_embedding(table, tmp_path):
    other = write(tmp_path / "other.npy", np.eye(4), TEXTS)
    encoder = fit_meta(TEXTS, [str(table), str(other)], tmp_path / "both", MetaSettings("conc"))
    assert encoder.meta_parts().level == "sentence"
    expected = unit(np.hstack([unit(VECTORS), np.eye(4)]))
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("setting", ["pooling=cls", "layers=0", "query-prompt=a", "dtype=bfloat16"])
def test_settings_of_models_are_refused(table, setting):
    with pytest.raises(ConfigError, match=f"{setting.split('=')[0]}: .* is a file of ready vec"):
        Encoder.load(f"{table}::{setting}")


@pytest.mark.parametrize(
    ("vectors", "texts", "message"),
    [
        (VECTORS, TEXTS[:3], r"texts\.jsonl: expected 4 lines, one for each row of use.npy, fou"),
        (VECTORS, [*TEXTS, "more"], "found 5"),
        (VECTORS, [*TEXTS[:3], 7], r"texts\.jsonl:4: expected a text as a JSON string, found b'7"),
        (VECTORS, [*TEXTS[:3], TEXTS[0]], "has the text of line 1 and another vector"),
        (VECTORS[0], TEXTS, r"expected \(texts, dimensions\) floating point numbers, found an arr"),
        (VECTORS.astype(int), TEXTS, "type int64"),
        (np.array([[{}]], object), ["a"], "cannot be read as a NumPy file"),
    ],
)
def test_malformed_vector_table_is_refused(tmp_path, vectors, texts, message):
    with pytest.raises(SourceError, match=message):
        Encoder.load(str(write(tmp_path / "use.npy", vectors, texts)))


def test_missing_vector_table_files_are_named(table, tmp_path):
    with pytest.raises(SourceError, match=r"none\.npy: cannot be read"):
        Encoder.load(str(tmp_path / "none.npy"))
    table.with_suffix(".texts.jsonl").unlink()
    with pytest.raises(SourceError, match=r"write the text of each row of use\.npy into it"):
        Encoder.load(str(table))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_a_vector_that_float32_cannot_hold_is_named(table, bad):
    # Equal texts may have equal vectors.
    write(table, np.array([[1, bad, 0], [1, 0, 0], [1, 0, 0]]), ["bad", "good", "good"])
    encoder = Encoder.load(str(table))
    assert encoder.encode(["good"]).tolist() == [[1, 0, 0]]
    with pytest.raises(SourceError, match="row 1: expected numbers that float32 holds"):
        encoder.encode(["bad"])
