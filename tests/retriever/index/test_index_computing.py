"""How vectors are computed: recorded, no part of the encoder, without torch where possible."""

from __future__ import annotations

import gc
import shutil
import weakref
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest

from retriever import ConfigError, Encoder, Index, encode_shards, import_documents
from retriever.encoders.transformer import loading
from retriever.index import recreated
from tests.retriever.encoders.architectures import save

TEXTS = ["w1 w2 w3", "w4 w5 zoo", "w6 w7 w8 w9 Hello"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(save("bert", tmp_path_factory.mktemp("model") / "bert"))


def computed(index):
    return [way.rpartition(" ")[0] for way in index.info()["encoder"]["computed"]]


def test_an_index_lists_how_its_vectors_were_computed(bert, tmp_path):
    with Index.create(tmp_path / "i", f"{bert}::backend=numpy", device="cpu") as index:
        assert computed(index) == []
        index.add(TEXTS[:1])
        assert computed(index) == ["float32 by numpy"]
        assert index.info()["encoder"]["backend"] == "numpy"
    with Index.open(tmp_path / "i", "::backend=torch::dtype=bfloat16", device="cpu") as index:
        index.add(TEXTS[1:])
        index.add(["w11"])
        assert computed(index) == ["float32 by numpy", "bfloat16 by torch"]
        assert index.verify() == []


def test_index_of_shards_lists_computation_and_later_runs_repeat_it(bert, tmp_path):
    model = f"{bert}::backend=torch::dtype=bfloat16"
    encode_shards(TEXTS, tmp_path / "s", model, device="cpu", shard_size=2)
    with pytest.raises(ConfigError, match=r"dtype=bfloat16, but .* was asked for"):
        encode_shards(TEXTS, tmp_path / "s", bert, device="cpu")
    (tmp_path / "s/000001.safetensors").unlink()
    assert encode_shards(TEXTS, tmp_path / "s", device="cpu").made == 1
    import_documents(tmp_path / "i", tmp_path / "s")
    with Index.open(tmp_path / "i") as index:
        assert computed(index) == ["bfloat16 by torch"]


def test_an_index_takes_queries_of_any_backend_and_computes_them_in_float32(bert, tmp_path):
    with Index.create(tmp_path / "i", f"{bert}::dtype=bfloat16", device="cpu") as index:
        index.add(TEXTS)
        assert "dtype=bfloat16" in str(index.encoder_spec)
        stored = index.encoder.encode(TEXTS)
    query = Encoder.load(f"{bert}::backend=torch", device="cpu").encode(["w4 w5"], query=True)[0]
    scores = stored @ query
    forms = ["", "::backend=torch", "::backend=numpy::dtype=float32", "::dtype=bfloat16"]
    if find_spec("openvino"):
        forms.append("::backend=openvino")
    for form in forms:
        with Index.open(tmp_path / "i", form, device="cpu") as index:
            hits = index.search("w4 w5", mode="dense")
        assert [hit.passage for hit in hits] == [TEXTS[i] for i in np.argsort(-scores)]
        if not form:
            found = [hit.score for hit in hits]
            np.testing.assert_allclose(found, sorted(scores)[::-1], rtol=0, atol=2e-6)


def test_an_index_that_was_replaced_needs_the_model_of_the_new_one_alone(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "old")
    old = f"{tmp_path / 'old'}::dtype=bfloat16"
    Index.create(tmp_path / "i", old, device="cpu").close()
    with Index.open(tmp_path / "i", device="cpu") as index:
        index.add(TEXTS)
        with recreated(tmp_path / "i", f"{bert}::pooling=max", device="cpu") as new:
            new.add(TEXTS)
        shutil.rmtree(tmp_path / "old")
        assert len(index.search("w4 w5", mode="dense")) == len(TEXTS)


def test_indexes_of_one_encoder_load_it_once(bert, tmp_path):
    for name in ("one", "two"):
        Index.create(tmp_path / name, bert, device="cpu").close()
    with Index.open(tmp_path / "one", device="cpu") as one:
        first = one.encoder
        with (
            Index.open(tmp_path / "two", device="cpu") as two,
            Index.open(tmp_path / "two", "::backend=torch", device="cpu") as other,
        ):
            assert two.encoder is first
            assert other.encoder is not first
    known = weakref.ref(first)
    del one, two, other, first
    gc.collect()
    assert known() is None


def test_reindexing_in_another_number_format_encodes_again(bert, tmp_path):
    with Index.create(tmp_path / "i", f"{bert}::dtype=bfloat16", device="cpu") as index:
        index.add(TEXTS)
        assert index.reindex("::dtype=bfloat16") is None
        report = index.reindex("::dtype=float32::backend=numpy")
        assert report is not None
        assert report.passages == 3
        assert computed(index) == ["float32 by numpy"]


@pytest.mark.parametrize("native", ["bfloat16", "float32"])
def test_queries_are_computed_in_float32_however_many(native, bert, tmp_path, monkeypatch):
    if not find_spec("openvino"):
        pytest.skip("OpenVINO is not installed")
    monkeypatch.setattr(loading, "native_format", lambda: native)
    monkeypatch.setattr(loading, "least_cosine", lambda *_: 1.0)
    queries = [f"w{row % 40} w{row // 40}" for row in range(200)]
    with Index.create(tmp_path / "i", bert, device="cpu") as index:
        # More than the first pieces of a process.
        index.add([f"{query} w5" for query in queries])
        assert index.encoder.computed == {f"{native} by openvino {version('openvino')}"}
        together = list(index.search_many(queries, mode="dense"))
        formats = {way.split()[0] for way in index.query_encoder.computed}
    assert formats == {"float32"}
    for number in (1, 2):
        with Index.open(tmp_path / "i", device="cpu") as index:
            found = list(index.search_many(queries[:number], mode="dense"))
            assert {way.split()[2] for way in index.query_encoder.computed} == {"numpy"}
        for hits, expected in zip(found, together, strict=False):
            scores = [hit.score for hit in hits]
            np.testing.assert_allclose(scores, [hit.score for hit in expected], atol=1e-5)


def test_queries_and_passages_share_what_is_loaded(bert, tmp_path, monkeypatch):
    if not find_spec("openvino"):
        pytest.skip("OpenVINO is not installed")
    monkeypatch.setattr(loading, "native_format", lambda: "bfloat16")
    Index.create(tmp_path / "i", bert, device="cpu").close()
    with Index.open(tmp_path / "i", device="cpu") as index:
        queries = index.query_encoder
        loads = []
        monkeypatch.setattr(Encoder, "from_spec", lambda *_, **__: loads.append(1))
        gc.collect()
        assert index.encoder is not queries
        assert index.encoder.in_float32() is queries
        assert loads == []
        original = weakref.ref(index.encoder)
    del index, queries
    gc.collect()
    assert original() is None
