import sqlite3
from contextlib import closing

import numpy as np
import pytest

from eval.vectors.cache import embed
from retriever.errors import StorageError
from tests.conftest import FakeEncoder

TEXTS = ["one two", "three", "one two", "four five six"]


def test_vectors_are_those_of_the_encoder_in_the_order_of_the_texts(tmp_path):
    encoder = FakeEncoder()
    for folder in (None, tmp_path / "new", tmp_path / "new"):
        found = embed(encoder, TEXTS, folder)
        np.testing.assert_allclose(found.vectors, encoder.encode(TEXTS), atol=1e-6)
        assert found.vectors.dtype == np.float32


def test_a_text_is_encoded_once_and_not_again_by_a_second_run(tmp_path):
    encoder = FakeEncoder()
    embed(encoder, TEXTS, tmp_path)
    assert encoder.encoded == 3
    done = []
    embed(encoder, [*TEXTS, "seven"], tmp_path, done=done.append)
    assert encoder.encoded == 4
    assert sum(done) == 4


def test_queries_and_passages_are_kept_apart(tmp_path):
    encoder = FakeEncoder()
    embed(encoder, TEXTS, tmp_path)
    embed(encoder, TEXTS, tmp_path, query=True)
    assert encoder.encoded == 6


def test_another_encoder_has_a_file_of_its_own(tmp_path):
    first, second = FakeEncoder(dimensions=16), FakeEncoder(dimensions=8)
    embed(first, TEXTS, tmp_path)
    assert embed(second, TEXTS, tmp_path).vectors.shape == (4, 8)
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_texts_that_are_cut_are_counted_also_from_the_cache(tmp_path):
    encoder = FakeEncoder(max_length=8)
    texts = ["short", " ".join(["long"] * 20), " ".join(["long"] * 20)]
    for _ in range(2):
        assert embed(encoder, texts, tmp_path).cut == 2
    np.testing.assert_array_equal(
        embed(encoder, texts, tmp_path).vectors, embed(encoder, texts, None).vectors
    )


def test_what_was_encoded_before_an_interruption_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("eval.vectors.cache._BLOCK", 1)
    encoder = FakeEncoder()

    def interrupt(texts):
        if encoder.encoded == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(encoder, TEXTS, tmp_path, done=interrupt)
    embed(encoder, TEXTS, tmp_path)
    assert encoder.encoded == 2 + 2


@pytest.mark.parametrize("damage", ["no database, but long enough " * 50, "vector"])
def test_a_cache_that_cannot_be_used_is_named_in_one_line(tmp_path, damage):
    encoder = FakeEncoder()
    path = tmp_path / f"{encoder.spec.fingerprint}.sqlite"
    if damage == "vector":
        embed(encoder, TEXTS, tmp_path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE vectors SET vector = ?", (b"short",))
    else:
        path.write_text(damage)
    with pytest.raises(StorageError) as caught:
        embed(encoder, TEXTS, tmp_path)
    assert str(path) in str(caught.value)
    assert "remove the file" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_vectors_of_another_model_behind_the_same_name_are_forgotten(tmp_path):
    encoder = FakeEncoder()
    encoder.probes = np.eye(3, 16, dtype=np.float32)
    embed(encoder, TEXTS, tmp_path)
    encoder.probes = encoder.probes + 1e-4
    embed(encoder, TEXTS, tmp_path)
    assert encoder.encoded == 3
    encoder.probes = np.flip(encoder.probes, axis=1)
    embed(encoder, TEXTS, tmp_path)
    assert encoder.encoded == 6
    embed(encoder, TEXTS, tmp_path)
    assert encoder.encoded == 6
