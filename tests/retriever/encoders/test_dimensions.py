"""`dimensions=N` keeps the first components of a vector, as sentence-transformers' truncate_dim."""

from __future__ import annotations

import numpy as np
import pytest

from retriever import Encoder, Index
from retriever.encoders.meta import fit_meta
from retriever.encoders.training import TrainableEncoder
from retriever.errors import ConfigError, EncoderMismatchError
from tests.retriever.encoders.architectures import CLOSE, TEXTS, WIDTH
from tests.retriever.encoders.sentence_models import dense, pooling, sentence_transformer

pytestmark = pytest.mark.usefixtures("one_thread")
FEWER = 5


def load_truncated(folder, asked=f"::dimensions={FEWER}"):
    return Encoder.load(f"{folder}{asked}", device="cpu")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_vectors_are_those_of_truncate_dim(backend, make):
    folder = make(pooling(), dense(7))
    encoder = load_truncated(folder, f"::backend={backend}::dimensions={FEWER}")
    model = sentence_transformer(folder)
    model.truncate_dim = FEWER
    for normalize in (True, False):
        vectors = encoder.encode(TEXTS, normalize_embeddings=normalize)
        expected = model.encode(list(TEXTS), normalize_embeddings=normalize)
        np.testing.assert_allclose(vectors, expected, **CLOSE)
    assert vectors.shape == (len(TEXTS), encoder.dimensions) == (len(TEXTS), FEWER)
    assert vectors.flags["C_CONTIGUOUS"]


def test_every_kind_of_encoder_truncates_to_dimensions(folders, tmp_path):
    table = tmp_path / "vectors.txt"
    table.write_text("a 1 2 3\nb 4 6 8\n")
    vectors = load_truncated(table, "::static=average::normalize=no::dimensions=2").encode(
        ["a b", "c"]
    )
    np.testing.assert_allclose(vectors, [[2.5, 4], [0, 0]])
    np.save(tmp_path / "ready.npy", np.array([[3, 4, 5]], np.float32))
    (tmp_path / "ready.texts.jsonl").write_text('"a"\n')
    vectors = load_truncated(tmp_path / "ready.npy", "::dimensions=2").encode(["a"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8]], rtol=1e-6)


def test_fingerprint_changes_only_with_fewer_dimensions(folders):
    whole, named = (
        load_truncated(folders("bert"), ""),
        load_truncated(folders("bert"), f"::dimensions={WIDTH}"),
    )
    assert whole.spec == named.spec
    fewer = load_truncated(folders("bert"))
    assert f"::dimensions={FEWER}" in str(fewer.spec)
    assert len({one.spec.fingerprint for one in (whole, fewer)}) == 2


def test_index_keeps_dimensions_setting(folders, tmp_path, retriever):
    form, index = f"{folders('bert')}::dimensions={FEWER}", tmp_path / "index"
    with Index.create(index, model=form, device="cpu") as created:
        created.add(
            [{"id": f"{number}", "text": text} for number, text in enumerate(TEXTS) if text]
        )
    for asked in ("", form, str(folders("bert"))):
        with Index.open(index, asked, device="cpu") as opened:
            assert f"::dimensions={FEWER}" in str(opened.encoder_spec)
            assert opened.encoder.encode("w1").shape == (FEWER,)
            assert opened.search(TEXTS[4], mode="dense")[0].id == "4"
    with pytest.raises(EncoderMismatchError, match="dimensions=6 was asked for"):
        Index.open(index, "::dimensions=6", device="cpu")
    assert f"dimensions={FEWER}" in retriever("info", "-i", index).out
    assert "\ndimensions: " in retriever("inspect", "settings").out


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (WIDTH + 1, rf"dimensions: the vectors of .* have {WIDTH}, found {WIDTH + 1}; name fewer"),
        (0, "dimensions: expected .*found 0"),
        (-3, "dimensions: expected .*found -3"),
    ],
)
def test_dimensions_out_of_range_are_refused_in_one_line(number, expected, folders):
    with pytest.raises(ConfigError, match=expected) as caught:
        load_truncated(folders("bert"), f"::dimensions={number}")
    assert "\n" not in str(caught.value)


def test_meta_and_training_refuse_truncated_dimensions(folders, tmp_path):
    form = f"{folders('bert')}::dimensions={FEWER}"
    with pytest.raises(ConfigError, match="a source gives whole vectors"):
        fit_meta(["w1"], [form, str(folders("bert"))], tmp_path / "meta")
    with pytest.raises(ConfigError, match="dimensions"):
        TrainableEncoder.load(form, device="cpu")
