"""Which backend computes, and what is refused."""

from __future__ import annotations

import sys

import pytest

from retriever.encoders import computing, registry
from retriever.encoders.computing import (
    OPENVINO_PAYS,
    TORCH_PAYS,
    check_computing,
    engine_for,
    faster_format,
    runs_on_cpu,
)
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, MissingExtraError


@pytest.mark.parametrize("installed", [True, False])
def test_few_pieces_run_in_numpy_and_many_in_what_is_installed(installed, monkeypatch):
    monkeypatch.setattr(computing, "has_openvino", lambda: installed)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    plain = EncoderSettings()
    assert engine_for(plain, 20) == "numpy"
    assert engine_for(plain, OPENVINO_PAYS) == "numpy"
    assert engine_for(plain, OPENVINO_PAYS + 1) == ("openvino" if installed else "numpy")
    assert engine_for(plain, TORCH_PAYS + 1) == ("openvino" if installed else "torch")
    half = EncoderSettings(dtype="bfloat16")
    assert engine_for(half, 20) == ("openvino" if installed else "torch")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_backend_that_is_asked_for_computes_everything(backend):
    assert engine_for(EncoderSettings(backend=backend), 1) == backend
    assert engine_for(EncoderSettings(backend=backend), 10**6) == backend


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
        check_computing(EncoderSettings(backend=backend, dtype=dtype))


def test_a_gpu_that_a_driver_has_is_left_to_torch(monkeypatch):
    assert runs_on_cpu("cpu")
    assert not runs_on_cpu("cuda")
    monkeypatch.setattr("os.path.exists", lambda path: path == "/dev/nvidiactl")
    assert not runs_on_cpu(None)
    monkeypatch.setattr("os.path.exists", lambda path: False)
    assert runs_on_cpu(None)


def test_a_faster_number_format_is_named_where_the_processor_has_it(tmp_path, monkeypatch):
    flags = tmp_path / "cpuinfo"
    monkeypatch.setattr(computing, "_PROCESSOR", flags)
    plain = EncoderSettings()
    assert faster_format(plain) is None
    for found, expected in (("sse2", None), ("sse2 avx512_bf16", "bfloat16")):
        flags.write_text(f"flags : {found} avx\n")
        assert faster_format(plain) == expected
    assert faster_format(EncoderSettings(dtype="int8")) is None
    assert faster_format(EncoderSettings(backend="numpy")) is None


def test_a_static_encoder_has_no_backend(minilm):
    with pytest.raises(ConfigError, match="backend: a static encoder"):
        Encoder.load("::static=average::backend=numpy")


@pytest.mark.parametrize("model", ["use.npy", "http://127.0.0.1:8080/v1#name"])
def test_what_runs_no_model_here_has_no_backend_and_no_faster_format(model, monkeypatch):
    monkeypatch.setattr(
        "retriever.encoders.transformer.loading.faster_format", lambda settings: "bfloat16"
    )
    spec = EncoderSpec(EncoderSettings(model=model, max_length=64), "0" * 64, 3)
    assert registry.describe(spec)["backend"] is None
    assert registry.describe_faster(spec) is None
    transformer = EncoderSpec(EncoderSettings(model="model", max_length=64), "0" * 64, 3)
    assert "bfloat16" in registry.describe_faster(transformer)
