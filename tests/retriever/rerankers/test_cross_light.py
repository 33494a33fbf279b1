"""Cross-encoders without torch: the scores that torch gives."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from retriever.errors import ConfigError
from retriever.rerankers.cross import (
    CrossEncoder,
    LightCrossEncoder,
    load_cross_encoder,
    read_cross_encoder,
    write_cross_encoder,
)
from retriever.search.reranking import load_reranker
from tests.retriever.encoders.architectures import CLOSE
from tests.retriever.rerankers.cross_samples import cross_encoder

pytestmark = pytest.mark.usefixtures("one_thread")
Models = Callable[[str], Path]
QUESTIONS = ["w1 w2", "w3", "w4 " * 30, "", "w5 w6 w7"] * 40
PASSAGES = ["w2", "w9 w8 zoo", "w1 " * 40, "w3 w3", "Hello, w1!"] * 40
needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None, reason="OpenVINO is not installed"
)


@pytest.fixture
def folder(models: Models, tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        write_cross_encoder(
            tmp_path / name, cross_encoder(models(name), training=True, max_length=33), {}
        )
        return tmp_path / name

    return make


@pytest.mark.parametrize("backend", ["numpy", pytest.param("openvino", marks=needs_openvino)])
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_scores_are_those_of_torch(
    name: str, backend: str, folder: Callable[[str], Path], models: Models
) -> None:
    saved = folder(name)
    reference = read_cross_encoder(saved, device="cpu")
    found = load_cross_encoder(saved, device="cpu", backend=backend)  # type: ignore[arg-type]
    assert isinstance(found, LightCrossEncoder)
    counted: list[int] = []
    scores = found.score(QUESTIONS, PASSAGES, counted.append)
    np.testing.assert_allclose(scores, reference.score(QUESTIONS, PASSAGES), **CLOSE)
    assert sum(counted) == len(QUESTIONS)
    assert found.cut == reference.cut > 0
    assert found.max_length == 33


@needs_openvino
def test_auto_takes_openvino_for_models_that_it_runs(folder: Callable[[str], Path]) -> None:
    assert isinstance(load_cross_encoder(folder("bert"), device="cpu"), LightCrossEncoder)
    saved = folder("roberta")
    assert isinstance(load_cross_encoder(saved, device="cpu"), CrossEncoder)
    with pytest.raises(ConfigError, match="cannot run with openvino"):
        load_cross_encoder(saved, device="cpu", backend="openvino")
    assert load_reranker(saved, device="cpu", backend="torch") is not None


def test_torch_stays_where_it_is_asked_for(folder: Callable[[str], Path]) -> None:
    found = load_cross_encoder(folder("bert"), device="cpu", backend="torch")
    assert isinstance(found, CrossEncoder)
    with torch.no_grad():
        assert found.score(["w1"], ["w2"]).shape == (1,)
