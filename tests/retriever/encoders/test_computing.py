"""Choice of engines and number formats, refusals, and batches of texts."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retriever import Encoder, Index
from retriever.encoders import EncoderSettings, EncoderSpec, computing, registry, scale_to_unit
from retriever.encoders.computing import (
    OPENVINO_PAYS,
    TORCH_PAYS,
    describe_engines,
    engine_for,
    is_int8_slower,
    native_format,
    runs_on_cpu,
    token_batches,
)
from retriever.errors import ConfigError, MissingExtraError

PLAIN = EncoderSettings()


@pytest.mark.parametrize("installed", [True, False])
def test_few_pieces_run_in_numpy_and_many_in_what_is_installed(installed, monkeypatch):
    monkeypatch.setattr(computing, "has_openvino", lambda: installed)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    pays, other = (OPENVINO_PAYS, "openvino") if installed else (TORCH_PAYS, "torch")
    found = [engine_for(PLAIN, pieces) for pieces in (1, pays, pays + 1)]
    assert found == ["numpy", "numpy", other]
    assert engine_for(EncoderSettings(dtype="bfloat16"), 1) == other
    shown = f"{other} in float32" if installed else other
    monkeypatch.setattr(computing, "native_format", lambda: "float32")
    assert describe_engines(PLAIN) == (
        f"numpy for the first {pays} tokens of a process, then {shown}"
    )
    # None stands for what is not installed.
    monkeypatch.setitem(sys.modules, "torch", None)
    assert engine_for(PLAIN, 10**6) == ("openvino" if installed else "numpy")
    # Where torch has been imported anyway, it costs no start.
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert engine_for(PLAIN, OPENVINO_PAYS) == "numpy"
    assert engine_for(PLAIN, OPENVINO_PAYS + 1) == other
    for backend in ("numpy", "torch"):
        asked = EncoderSettings(backend=backend)
        assert (
            engine_for(asked, 1) == engine_for(asked, 10**6) == describe_engines(asked) == backend
        )


@pytest.mark.parametrize("asked", [{"backend": "openvino"}, {"dtype": "int8"}])
def test_openvino_that_is_not_installed_is_asked_for_by_its_extra(asked, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"layer-retriever\[openvino\]"):
        engine_for(EncoderSettings(**asked), 1)


@pytest.mark.parametrize(
    ("backend", "dtype"), [("numpy", "bfloat16"), ("torch", "int8"), ("openvino", "float16")]
)
def test_a_number_format_that_a_backend_lacks_is_refused_naming_both(backend, dtype):
    with pytest.raises(ConfigError, match=f"{backend} computes in .*, found {dtype}"):
        EncoderSettings(backend=backend, dtype=dtype)
    EncoderSettings(backend=backend)
    EncoderSettings(dtype=dtype)


def test_engine_is_torch_where_gpu_is_available(monkeypatch):
    assert runs_on_cpu("cpu")
    assert not runs_on_cpu("cuda")
    monkeypatch.setattr("os.path.exists", lambda path: path == "/dev/nvidiactl")
    assert not runs_on_cpu(None)
    monkeypatch.setattr("os.path.exists", lambda path: False)
    assert runs_on_cpu(None)


def test_the_default_format_is_bfloat16_where_the_processor_multiplies_it(tmp_path, monkeypatch):
    flags = tmp_path / "cpuinfo"
    monkeypatch.setattr(computing, "PROCESSOR_FILE", flags)
    monkeypatch.setattr(computing, "has_openvino", lambda: True)
    assert native_format() == "float32"
    for found, expected in (
        ("sse2 avx512_vnni", "float32"),
        ("avx512_vnni avx512_bf16", "bfloat16"),
        ("amx_bf16", "bfloat16"),
    ):
        flags.write_text(f"flags : {found} avx\n")
        assert native_format() == expected
        assert describe_engines(PLAIN).endswith(f"then openvino in {expected}")
        assert is_int8_slower() == ("amx" in found)
    assert describe_engines(EncoderSettings(dtype="int8")) == "openvino"


@pytest.mark.parametrize("model", ["use.npy", "http://127.0.0.1:8080/v1#name"])
def test_remote_encoders_and_vector_tables_have_no_backend(model):
    spec = EncoderSpec(EncoderSettings(model=model, max_length=64), "0" * 64, 3)
    assert registry.describe(spec)["backend"] is None


@given(st.lists(st.integers(1, 300), max_size=120), st.integers(1, 1000))
def test_batches_hold_each_text_once_longest_first_and_as_many_as_the_budget(lengths, budget):
    batches = [batch.tolist() for batch in token_batches(lengths, budget)]
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    assert [row for batch in batches for row in batch] == order
    for batch in batches:
        longest = lengths[batch[0]]
        assert len(batch) * longest <= budget or len(batch) == 1
        assert (len(batch) + 1) * longest > budget or batch is batches[-1]


def test_the_argument_dtype_is_what_vectors_are_computed_in(tiny_models, tmp_path):
    model = str(tiny_models["bert"])
    encoder = Encoder.load(model, device="cpu", dtype="bfloat16")
    assert encoder.spec.settings.dtype == "bfloat16"
    named = Encoder.load(f"{model}::dtype=bfloat16", device="cpu")
    np.testing.assert_array_equal(encoder.encode("w1 w2"), named.encode("w1 w2"))
    assert Encoder.load(model, device="cpu", dtype="auto").spec.settings.dtype is None
    with Index.create(tmp_path / "index", model=model, dtype="bfloat16") as index:
        index.add(["w1 w2"])
        (way,) = index.info()["encoder"]["computed"]
    assert way.startswith("bfloat16")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.9, 1e-3, 1e-10, 1e-20])
def test_vectors_of_any_magnitude_are_scaled_to_length_one(dtype, share):
    limits = np.finfo(dtype)
    plain = np.random.default_rng(0).uniform(-1, 1, (4, 8)).astype(dtype)
    expected = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    for magnitude in (limits.max * share, limits.tiny / share):
        vectors = plain * dtype(magnitude)
        vectors[2] = 0
        scaled = scale_to_unit(vectors)
        assert scaled is vectors
        np.testing.assert_allclose(scaled[[0, 1, 3]], expected[[0, 1, 3]], rtol=1e-5)
        assert not scaled[2].any()
    np.testing.assert_allclose(scale_to_unit(plain[0] * dtype(magnitude)), expected[0], rtol=1e-5)
