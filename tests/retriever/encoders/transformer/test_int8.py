"""int8: ranges, rounding and the cache of what was measured."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from retriever.encoders import Encoder, find_model
from retriever.encoders.transformer import quantization as int8
from retriever.encoders.transformer.architectures.registry import read_network
from retriever.encoders.transformer.network import Affine
from retriever.encoders.transformer.quantization import (
    calibrate,
    calibration_texts,
    measure_ranges,
    quantize,
)
from retriever.encoders.transformer.tokenizer import Tokenizer
from tests.retriever.encoders.architectures import TEXTS

# Without VNNI, OpenVINO adds products of int8 in 16 bits, which overflow into their limits.
CPU = Path("/proc/cpuinfo")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_rounded_layer_computes_about_the_same():
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((24, 48)).astype(np.float32)
    # Components of very different size, as in transformers.
    inputs = draw.standard_normal((500, 48)).astype(np.float32) * np.geomspace(0.05, 20, 48)
    layer = Affine("a", weight, np.zeros(24, np.float32))
    found = quantize(layer, np.stack([inputs.min(axis=0), inputs.max(axis=0)]).astype(np.float32))
    assert found.weight.dtype == np.int8
    step = (found.high - found.low) / 255
    assert found.low / step == pytest.approx(round(found.low / step), abs=1e-3)
    smoothed = np.clip(inputs * found.smoothing, found.low, found.high)
    product = (np.rint(smoothed / step) * step) @ (found.weight * found.step).T
    exact = inputs @ weight.T
    error = np.linalg.norm(product - exact) / np.linalg.norm(exact)
    assert error < 0.02


def test_int8_ranges_equal_extremes_of_inputs(folders):
    folder = find_model(str(folders("bert")))
    network, tokenizer = read_network(folder), Tokenizer(folder)
    ids = tokenizer.tokenize(TEXTS)
    found = measure_ranges(network, ids)
    assert len(found) == 6 * network.depth
    each = [measure_ranges(network, [row]) for row in ids]
    for name, (low, high) in found.items():
        np.testing.assert_array_equal(low, np.min([one[name][0] for one in each], axis=0))
        np.testing.assert_array_equal(high, np.max([one[name][1] for one in each], axis=0))


def test_ranges_are_measured_once_if_the_cache_can_be_written(folders, cache, monkeypatch):
    folder = find_model(str(folders("bert")))
    parts = read_network(folder), "model", Tokenizer(folder), 64
    first = calibrate(*parts)
    assert len(list((cache / "int8").iterdir())) == 1
    monkeypatch.setenv("RETRIEVER_CACHE", str(next((cache / "int8").iterdir())))
    unwritten = calibrate(*parts)
    monkeypatch.setenv("RETRIEVER_CACHE", str(cache))
    monkeypatch.setattr(int8, "measure_ranges", None)
    again = calibrate(*parts)
    assert first.keys() == again.keys() == unwritten.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
        np.testing.assert_array_equal(values, unwritten[name])
    with pytest.raises(TypeError):
        calibrate(parts[0], "another model", *parts[2:])


@pytest.mark.skipif(
    CPU.exists() and "vnni" not in CPU.read_text(), reason="this processor has no VNNI"
)
@pytest.mark.parametrize("name", ["bert", pytest.param("", marks=pytest.mark.soak)])
def test_int8_vectors_are_close_to_float32(folders, cache, name):
    if not find_spec("openvino"):
        pytest.skip("OpenVINO is not installed")
    folder = str(folders(name)) if name else ""
    texts = TEXTS if name else ["total and all-embracing", "the mitochondrion of a cell. " * 8]
    found = Encoder.load(f"{folder}::dtype=int8", device="cpu")
    expected = Encoder.load(f"{folder}::backend=numpy", device="cpu").encode(texts)
    assert np.sum(found.encode(texts) * expected, axis=1).min() > 0.98
    assert [one.split()[:3] for one in found.computed] == [["int8", "by", "openvino"]]


def test_calibration_texts_are_always_the_same():
    digest = hashlib.sha256("\n".join(calibration_texts()).encode()).hexdigest()
    assert digest == "855c1b158181650506962543c20758e0e7f5741a3ab9c11b03969350e214ff91"
