"""A trained head on disk: whole, of its encoder, and refused with one line where it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, ModelError
from retriever.rerankers import check_target, write_manifest
from retriever.rerankers.head import Epoch, HeadReranker, TrainedHead
from retriever.rerankers.scorers import InteractionHead
from retriever.rerankers.settings import HeadSettings, HeadTrainingSettings

D = 6
SPEC = EncoderSpec(EncoderSettings(model="made-up", max_length=128), "ab" * 32, D)


def reranker(interaction: str = "uv", head: str = "mlp") -> HeadReranker:
    torch.manual_seed(1)
    settings = HeadSettings(interaction, head, 4, initial="random")  # type: ignore[arg-type]
    curve = (Epoch(0, None, None, 0.5), Epoch(1, 0.25, 0.75, 0.6))
    trained = TrainedHead(InteractionHead(settings, D), HeadTrainingSettings(), curve, 1)
    return HeadReranker.of(SPEC, trained, {"data": "WikiQA"})


def edited(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "reranker.json"
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("interaction", "head"), list(product(("bilinear", "concat", "uv"), ("linear", "mlp")))
)
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path, interaction: str, head: str) -> None:
    saved = reranker(interaction, head)
    saved.save(tmp_path / "head")
    loaded = HeadReranker.load(tmp_path / "head")
    assert loaded.spec == SPEC
    assert loaded.settings == saved.settings
    assert loaded.training == saved.training
    chance = np.random.default_rng(0)
    u, v = chance.standard_normal((2, 30, D)).astype(np.float32)
    np.testing.assert_array_equal(loaded.head.score(u, v), saved.head.score(u, v))
    rows = np.array([3, 3, 0])
    np.testing.assert_allclose(
        loaded.head.score(u, v, rows, rows), saved.head.score(u, v)[rows], atol=2e-6
    )


def test_the_folder_says_what_it_is(tmp_path: Path) -> None:
    reranker().save(tmp_path / "head")
    names = {path.name for path in (tmp_path / "head").iterdir()}
    assert names == {"reranker.json", "head.safetensors"}
    value = json.loads((tmp_path / "head" / "reranker.json").read_text())
    assert (value["kind"], value["format"]) == ("head", 1)
    assert EncoderSpec.from_json(value["encoder"]) == SPEC
    assert value["head"]["interaction"] == "uv"
    assert value["training"]["data"] == "WikiQA"
    assert value["training"]["best_epoch"] == 1
    assert value["training"]["curve"][1] == {"epoch": 1, "loss": 0.25, "active": 0.75, "dev": 0.6}
    assert value["training"]["settings"]["sampling"]["negatives"] == "pool"
    assert not list(tmp_path.glob(".*"))


def test_another_encoder_is_refused_and_the_same_under_another_name_is_not() -> None:
    model = reranker()
    model.check_encoder(SPEC)
    model.check_encoder(replace(SPEC, settings=replace(SPEC.settings, model="elsewhere")))
    for other in (
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, settings=replace(SPEC.settings, max_length=64)),
    ):
        with pytest.raises(EncoderMismatchError) as caught:
            model.check_encoder(other)
        message = str(caught.value)
        for one in (SPEC, other):
            assert f"{one} ({one.fingerprint})" in message
        assert "\n" not in message


def test_a_reranker_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "head"
    reranker("uv").save(folder)
    reranker("bilinear").save(folder)
    assert HeadReranker.load(folder).settings.interaction == "bilinear"
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("Dear")
    with pytest.raises(ConfigError, match=r"letters: expected .* found letter\.txt in it"):
        reranker().save(foreign)
    assert (foreign / "letter.txt").read_text() == "Dear"
    with pytest.raises(ConfigError, match="found a file"):
        reranker().save(foreign / "letter.txt")
    with pytest.raises(ConfigError, match="a folder that exists"):
        reranker().save(tmp_path / "no" / "head")


def test_a_failure_on_the_way_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "head"
    reranker("uv").save(folder)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("retriever.rerankers.head.write_manifest", fail)
    other = reranker("bilinear")
    with pytest.raises(KeyboardInterrupt):
        other.save(folder)
    assert HeadReranker.load(folder).settings.interaction == "uv"
    assert [path.name for path in tmp_path.iterdir()] == ["head"]


EDITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda value: value.update(extra=1), "an unknown key 'extra'"),
    (lambda value: value.pop("encoder"), "no key 'encoder'"),
    (lambda value: value.update(kind="cross-encoder"), "of the kind head, found 'cross-encoder'"),
    (lambda value: value.update(format=2), "expected format 1 or older, found 2; upgrade"),
    (lambda value: value.update(head=[]), r"\[\] as head"),
    (lambda value: value["head"].update(depth=3), "head: unknown setting 'depth'"),
    (lambda value: value["head"].pop("hidden"), "head: missing setting 'hidden'"),
    (lambda value: value["head"].update(hidden="4"), "found .*'<'"),
    (lambda value: value["head"].update(hidden=5), "size mismatch"),
    (lambda value: value["head"].update(interaction="concat"), "Unexpected key"),
    (lambda value: value["encoder"].update(dimensions=7), "size mismatch"),
    (lambda value: value["encoder"].update(encoder="::nothing:1"), "reranker.json: expected what"),
    (lambda value: value["encoder"].update(encoder=3), "reranker.json: expected what"),
    (lambda value: value.update(weights="00"), "head.safetensors: .* another SHA-256"),
]


@pytest.mark.parametrize(("edit", "message"), EDITS)
def test_an_altered_manifest_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    reranker().save(tmp_path / "head")
    edited(tmp_path / "head", edit)
    with pytest.raises(ModelError, match=message) as caught:
        HeadReranker.load(tmp_path / "head")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
@pytest.mark.parametrize("name", ["reranker.json", "head.safetensors"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "head"
    reranker().save(folder)
    path = folder / name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        if damage == "cut":
            del content[-5:]
        else:
            content[-1] ^= 0x40
        path.write_bytes(content)
    if name == "reranker.json" and damage == "bit":
        # The file's last byte ends its line; JSON ends before it.
        path.write_bytes(bytes(content[:-3]) + b"\xff}\n")
    with pytest.raises(ModelError, match=f"{name}|found none") as caught:
        HeadReranker.load(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_reranker_says_what_would_make_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expected a reranker's folder .* train one with"):
        HeadReranker.load(tmp_path)


def test_a_reranker_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "cross"
    folder.mkdir()
    write_manifest(folder, "cross-encoder", "0" * 64, {})
    with pytest.raises(ConfigError, match="found one of the kind cross-encoder; name another"):
        check_target(folder, "head")
    check_target(folder, "cross-encoder")
