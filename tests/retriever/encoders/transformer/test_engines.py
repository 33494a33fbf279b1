"""The same vectors from NumPy, OpenVINO and torch, for every pooling and fusion."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from retriever.encoders import Encoder, computing, find_model
from retriever.encoders.fusion import SBERTWKSettings
from retriever.encoders.transformer import loading
from retriever.encoders.transformer.architectures.mpnet import distance_buckets
from retriever.encoders.transformer.architectures.registry import read_network
from retriever.encoders.transformer.model import TransformerModel
from retriever.encoders.transformer.numpy_engine import NumPyEngine, gelu
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import CLOSE, TEXTS
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

# On Linux with ARM it does not come with the package.
needs_openvino = pytest.mark.skipif(not find_spec("openvino"), reason="OpenVINO is not installed")
engines = pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=needs_openvino)]
)
FORMS = [
    "",
    "pooling=max",
    "pooling=cls",
    "pooling=sep",
    "special-tokens=drop",
    "head=yes::normalize=no",
    "lc:0,2",
    "last4",
    "top-bottom",
    "layers=all::fusion=concat",
    "layers=1..3::fusion=max::pooling=max",
    "fusion=sbert-wk",
    "fusion=sbert-wk::wk-preset=released::max-length=10",
    "fusion=sbert-wk::wk-layers=last::wk-words=uniform",
]

CASES = [("bert", form) for form in FORMS]
# The others differ in their layers alone.
POOLERLESS = ("distilbert", "modernbert")
for name in ("camembert", "distilbert", "modernbert", "mpnet", "roberta", "xlm-roberta"):
    CASES.append((name, "layers=all::fusion=concat"))
    CASES += [
        pytest.param(name, form, marks=pytest.mark.soak)
        for form in FORMS
        if name not in POOLERLESS or "head" not in form
    ]

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.* longer than the window"),
]


@engines
@pytest.mark.parametrize(("name", "form"), CASES)
def test_engine_vectors_equal_torch(name, form, backend, load):
    reference = load(name, f"backend=torch::{form}".removesuffix("::"))
    found = load(name, f"backend={backend}::{form}".removesuffix("::"))
    assert found.spec.fingerprint == reference.spec.fingerprint
    assert found.spec.max_length == reference.spec.max_length
    np.testing.assert_allclose(found.encode(TEXTS), reference.encode(TEXTS), **CLOSE)


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=needs_openvino), "torch"]
)
@pytest.mark.parametrize("name", ["modernbert", "roberta"])
def test_hidden_states_are_those_of_transformers(name, backend, load, plain):
    encoder = load(name, f"backend={backend}")
    found = zip(encoder.hidden_states(TEXTS), plain(name).states, strict=True)
    for text_states, expected in found:
        np.testing.assert_allclose(text_states.states, expected, **CLOSE)


@engines
@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("name", ["modernbert", "roberta"])
def test_sbert_wk_is_that_of_the_reference(name, preset, backend, load, plain):
    encoder = load(name, f"sbert-wk::wk-preset={preset}::normalize=no::backend={backend}")
    settings = SBERTWKSettings.of(encoder.spec.settings, encoder.depth)
    for vector, hidden in zip(encoder.encode(TEXTS), plain(name).states, strict=True):
        fused_pieces = np.ones(hidden.shape[1], bool)
        fused_pieces[-1] = preset == "paper"
        expected = reference(
            hidden,
            fused_pieces,
            preset=preset,
            start=settings.start_layer,
            window=settings.window,
            variance=settings.variance,
        )
        np.testing.assert_allclose(vector, expected.vector, rtol=0, atol=5e-5)


@engines
def test_a_vector_does_not_depend_on_the_batch(backend, load):
    encoder = load("bert", f"backend={backend}")
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, **CLOSE)
    many = encoder.encode(list(TEXTS) * 60)
    np.testing.assert_allclose(many, np.tile(alone, (60, 1)), **CLOSE)


@engines
def test_layers_above_the_highest_one_read_are_not_computed(backend, load, folders, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(folders("bert"), tmp_path / "bert")
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "layer.2." in name:
            tensor.fill(np.nan)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    expected = load("bert", "layers=0,2::backend=torch").encode(TEXTS)
    vectors = Encoder.load(f"{folder}::layers=0,2::backend={backend}", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, **CLOSE)


@needs_openvino
def test_bfloat16_is_close_to_float32(minilm):
    texts = ["cat", "The mitochondrion is the powerhouse of the cell. " * 8, "It boils at 100 °C"]
    encoder = Encoder.load("::backend=openvino::dtype=bfloat16", device="cpu")
    # A lone short text is filled up.
    for found in (encoder.encode(texts), np.stack([encoder.encode(text) for text in texts])):
        assert np.sum(found * minilm.encode(texts), axis=1).min() > 0.9995


@needs_openvino
def test_the_default_format_stays_float32_where_bfloat16_changes_vectors(
    folders, tmp_path, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "native_format", lambda: "bfloat16")
    monkeypatch.setattr(computing, "OPENVINO_PAYS", 0)
    # One model, two poolings: the vectors of each are compared.
    forms = [str(folders("bert")), f"{folders('bert')}::pooling=cls::normalize=no"]

    def way(form, dtype):
        encoder = Encoder.load(form, dtype=dtype, device="cpu")
        assert encoder.encode(TEXTS).shape == (len(TEXTS), encoder.spec.dimensions)
        assert "dtype" not in str(encoder.spec)
        (found,) = encoder.computed
        return found.split(" by ")[0]

    assert [way(forms[0], dtype) for dtype in ("float32", "auto")] == ["float32", "bfloat16"]
    monkeypatch.setattr(loading, "_LEAST_COSINE", 1.5)
    with pytest.warns(
        UserWarning, match=r"the cosine .* in bfloat16 .* is (0\.99|1\.00).*, below 1\.5"
    ):
        assert way(forms[1], "auto") == "float32"
    # The cosine is measured once.
    monkeypatch.setattr(NumPyEngine, "run", None)
    with pytest.warns(UserWarning, match="below"):
        assert way(forms[1], "auto") == "float32"
    assert len(list((tmp_path / "cosines").iterdir())) == 2


@needs_openvino
def test_a_caller_that_stops_in_the_middle_leaves_an_engine_that_works(load):
    model = load("bert", "backend=openvino")._model
    pieces = model.tokenize(list(TEXTS) * 300)
    batches = model.embed_batches(pieces)
    rows, first = next(batches)
    batches.close()
    np.testing.assert_allclose(model.embed([pieces[row] for row in rows]), first, **CLOSE)


def test_engine_reads_token_type_embeddings(load, folders):
    import torch

    backbone = load("bert", "backend=torch")._model.backbone
    ids, types = [2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1]
    with torch.inference_mode():
        expected = backbone.model(**backbone.batch([ids], [types]).inputs).last_hidden_state.numpy()
    network = read_network(find_model(str(folders("bert"))))
    (found,) = NumPyEngine(network, [3]).run([ids], [types])
    np.testing.assert_allclose(found.states[0], expected, **CLOSE)


def test_the_gelu_is_exact_to_single_precision():
    values = np.linspace(-13, 13, 20_000).astype(np.float32)
    expected = [(1 + math.erf(value / math.sqrt(2))) / 2 for value in values.tolist()]
    np.testing.assert_allclose(gelu(values.copy()) / values, expected, rtol=0, atol=3e-7)


def test_the_buckets_of_distances_are_those_of_mpnet():
    import torch
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = torch.arange(-513, 514)
    expected = MPNetEncoder.relative_position_bucket(distances, num_buckets=32)
    np.testing.assert_array_equal(distance_buckets(514), expected)


@pytest.mark.parametrize("name", ["albert", "electra", "xlnet"])
def test_unsupported_models_run_in_torch_only(name, folders):
    with pytest.raises(UnsupportedModelError):
        read_network(find_model(str(folders(name))))
    assert isinstance(Encoder.load(str(folders(name)), device="cpu")._model, TransformerModel)
    with pytest.raises(ConfigError, match="cannot run with the backend numpy"):
        Encoder.load(f"{folders(name)}::backend=numpy", device="cpu")


def test_many_texts_run_in_torch_where_openvino_is_not_installed(folders, monkeypatch):
    monkeypatch.setattr(computing, "has_openvino", lambda: False)
    encoder = Encoder.load(str(folders("bert")), device="cpu")
    vectors = encoder.encode([f"w{n // 40} w{n % 40}" for n in range(400)])
    assert {way.split()[2] for way in encoder.computed} == {"torch"}
    few = Encoder.load(str(folders("bert")), device="cpu")
    few.expect_many()
    np.testing.assert_allclose(few.encode(["w0 w1"]), vectors[[1]], **CLOSE)
    assert few.computed == encoder.computed


@engines
def test_threads_may_share_an_encoder_and_leave_the_matrix_library_as_it_was(backend, load):
    controller = ThreadpoolController().select(user_api="blas")
    before = [one["num_threads"] for one in controller.info()]
    encoder = load("bert", f"backend={backend}")
    expected = encoder.encode(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: encoder.encode(list(TEXTS) * 20), range(12)):
            np.testing.assert_allclose(found, np.tile(expected, (20, 1)), **CLOSE)
    assert [one["num_threads"] for one in controller.info()] == before


@needs_openvino
@pytest.mark.parametrize(
    ("lengths", "most"), [([8, 9, 10, 11, 12] * 10, 2), ([5] * 3, 1), ([3, 200] * 400, None)]
)
def test_few_texts_are_divided_among_the_cores(load, monkeypatch, lengths, most):
    backbone = load("bert", "backend=openvino")._model.backbone
    engine = backbone.load_openvino("float32", [3])
    monkeypatch.setattr(engine, "_cores", 2)
    batches = list(engine.batches(lengths))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    work = [len(rows) * max(lengths[row] for row in rows) for rows in batches]
    if most is None:
        assert max(work) <= 1024
    else:
        assert len(batches) == most
        # Cores that work at the same time end at about the same time.
        assert max(work) < 1.5 * min(work)


@needs_openvino
def test_openvino_is_imported_without_its_telemetry():
    program = """
import sys
from retriever.encoders.transformer.openvino_engine import import_openvino
assert callable(import_openvino().convert_model)
print([name for name in sys.modules if name.startswith("openvino_telemetry")])
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"[]\n"


@needs_openvino
def test_signals_are_handled_after_openvino_encoders_are_gone(folders):
    """Only a processor with AMX can fail here: there OpenVINO replaces the stack of signals."""
    program = """
import gc, os, signal, sys
from retriever.encoders import Encoder
encoders = [Encoder.load(sys.argv[1] + "::backend=openvino", device="cpu") for _ in range(2)]
for encoder in encoders:
    encoder.encode(["a text"])
del encoder
while encoders:
    encoders.pop(0)
    gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("interrupted"))
os.kill(os.getpid(), signal.SIGINT)
"""
    command = [sys.executable, "-c", program, str(folders("bert"))]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"interrupted\n"


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=needs_openvino), "torch"]
)
def test_forked_process_encodes_with_the_encoder_of_its_parent(folders, backend):
    program = """
import os, signal, sys, warnings
from retriever.encoders import Encoder
warnings.simplefilter("ignore")
texts = ["one two three four"] * 200
encoder = Encoder.load(f"{sys.argv[1]}::backend={sys.argv[2]}", device="cpu")
expected = encoder.encode(texts)
child = os.fork()
if child == 0:
    signal.alarm(20)
    differs = (abs(encoder.encode(texts) - expected) > 1e-5).any()
    os._exit(int(differs))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", program, str(folders("bert")), backend]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    assert subprocess.run(command, env=environment, timeout=60).returncode == 0
