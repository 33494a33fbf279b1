"""A cross-encoder on disk: whole, replaced as a whole, refused in one line where it is damaged."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retriever.errors import ConfigError, ModelError
from retriever.rerankers import cross
from retriever.rerankers.cross import (
    CrossEncoder,
    read_cross_encoder,
    read_training,
    write_cross_encoder,
)
from tests.retriever.encoders.architectures import CLOSE
from tests.retriever.rerankers.cross_samples import cross_encoder

pytestmark = pytest.mark.usefixtures("one_thread")
Models = Callable[[str], Path]
QUESTIONS = ["w1 w2", "w3", "w4 " * 30]
TEXTS = ["w5", "w6 w7 w8", "w9 " * 30]
TRAINING = {"curve": [{"epoch": 1, "dev": 0.5}], "identity": {"data": "ab12"}}


@pytest.fixture(scope="module")
def model(models: Models, one_thread: None) -> CrossEncoder:
    return cross_encoder(models("bert"), training=True, max_length=33)


@pytest.fixture(scope="module")
def written(model: CrossEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "cross"
    write_cross_encoder(folder, model, TRAINING)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return shutil.copytree(written, tmp_path / "cross")


def refused(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_cross_encoder(folder, device="cpu")
    message = str(caught.value)
    assert str(folder) in message
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "albert", "distilbert"])
def test_what_is_read_scores_as_what_was_written(name: str, models: Models, tmp_path: Path) -> None:
    saved = cross_encoder(models(name), training=True, max_length=33)
    with torch.no_grad():
        for weight in saved.backbone.model.parameters():
            # The weights in the folder are not those that were loaded.
            weight.mul_(1.1)
    write_cross_encoder(tmp_path / "cross", saved, {})
    found = read_cross_encoder(tmp_path / "cross", device="cpu")
    assert found.max_length == 33
    scores = saved.score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(found.score(QUESTIONS, TEXTS), scores, **CLOSE)
    assert found.cut == saved.cut == 1
    half = read_cross_encoder(tmp_path / "cross", device="cpu", dtype="bfloat16")
    np.testing.assert_allclose(half.score(QUESTIONS, TEXTS), scores, atol=0.15)


def test_it_is_read_ready_to_score(written: Path) -> None:
    found = read_cross_encoder(written, device="cpu")
    assert not found.head.training
    assert not found.backbone.model.training
    first = found.score(QUESTIONS, TEXTS)
    np.testing.assert_array_equal(found.score(QUESTIONS, TEXTS), first)


def test_how_it_was_trained_is_kept(written: Path) -> None:
    assert read_training(written) == TRAINING


def test_every_file_can_be_read_by_whom_the_folder_lets(written: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in written.iterdir()}
    assert len(modes) == 1


def test_the_manifest_is_written_last(
    model: CrossEncoder, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    write = cross.write_manifest

    def watched(folder: Path, *arguments: Any) -> None:
        seen.append({path.name for path in folder.iterdir()})
        write(folder, *arguments)

    monkeypatch.setattr(cross, "write_manifest", watched)
    write_cross_encoder(tmp_path / "cross", model, TRAINING)
    names = {path.name for path in (tmp_path / "cross").iterdir()}
    assert names == {path.name for path in written.iterdir()}
    assert seen == [names - {"reranker.json"}]
    assert {"head.safetensors", "model.safetensors", "config.json"} < names


def test_an_error_leaves_what_was_there(
    model: CrossEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cross, "write_manifest", fail)
    with pytest.raises(KeyboardInterrupt):
        write_cross_encoder(folder, model, {})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["cross"]


def test_a_reranker_is_replaced_and_nothing_else_is(
    model: CrossEncoder, folder: Path, tmp_path: Path
) -> None:
    write_cross_encoder(folder, model, {"again": True})
    assert read_training(folder) == {"again": True}
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("Dear")
    with pytest.raises(ConfigError, match=r"letters: expected .* found letter\.txt in it"):
        write_cross_encoder(foreign, model, {})
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]


def test_a_folder_without_a_reranker_says_what_would_make_one(
    models: Models, tmp_path: Path
) -> None:
    for other in (tmp_path, models("bert")):
        assert "train one with `retriever train" in refused(other)


EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda value: value.update(extra=1), "an unknown key 'extra'"),
    (lambda value: value.pop("max_length"), "no key 'max_length'"),
    (lambda value: value.pop("kind"), "of the kind cross-encoder, found 'None'"),
    (lambda value: value.update(kind="head"), "of the kind cross-encoder, found 'head'"),
    (lambda value: value.update(format=2), "expected format 1 or older, found 2; upgrade"),
    (lambda value: value.update(format=2, extra=1), "expected format 1 or older, found 2"),
    (lambda value: value.update(format="1"), "found '1' as format"),
    (lambda value: value.update(max_length="64"), "found '64' as max_length"),
    (lambda value: value.update(max_length=True), "found True as max_length"),
    (lambda value: value.update(training=[]), r"found [] as training"),
    (lambda value: value.update(weights="00"), "weights of another SHA-256"),
]


@pytest.mark.parametrize(("edit", "message"), EDITS)
def test_an_altered_manifest_is_refused(
    folder: Path, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = folder / "reranker.json"
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))
    assert message in refused(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", '{"format": 1', "\x00"])
def test_a_manifest_that_is_no_json_object_is_refused(folder: Path, content: str) -> None:
    (folder / "reranker.json").write_text(content)
    assert "reranker.json" in refused(folder)


@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
@pytest.mark.parametrize(
    "name", ["head.safetensors", "model.safetensors", "tokenizer.json", "config.json"]
)
def test_a_damaged_file_is_refused(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        if damage == "cut":
            del content[-5:]
        else:
            # Of JSON the first byte; of weights one of the last number.
            content[0 if name.endswith(".json") else -2] ^= 0x41
        path.write_bytes(content)
    refused(folder)


def test_the_transformer_keeps_the_dropout_that_training_left_out(
    written: Path, models: Models
) -> None:
    before, after = (
        json.loads((one / "config.json").read_text()) for one in (models("bert"), written)
    )
    name = "attention_probs_dropout_prob"
    assert after[name] == before[name] > 0
