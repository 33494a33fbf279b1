"""The state of a training on disk: whole, of the same training, or refused in one line."""

from __future__ import annotations

import json

import pytest
import torch

from retriever.errors import ConfigError, ModelError
from retriever.training import checkpoint as module
from retriever.training.checkpoint import Checkpoint, TrainingState

IDENTITY = {
    "data": "ab12",
    "settings": {"margin": 1.0, "sampling": {"count": 12, "positives": None}},
}


def state(value=1.0):
    tensors = {
        "weights/a": torch.tensor([value, 0.1]),
        "chance": torch.arange(5, dtype=torch.uint8),
        "of half width": torch.tensor([0.3], dtype=torch.bfloat16),
        "single": torch.tensor(3.0),
    }
    return TrainingState(tensors, {"done": 3, "losses": [0.1, 1 / 3], "curve": []})


def saved(folder):
    Checkpoint(folder, IDENTITY).write(state())
    return folder


def refused(folder, error, identity=IDENTITY):
    with pytest.raises(error) as caught:
        Checkpoint(folder, identity).read()
    message = str(caught.value)
    assert message.startswith(f"{folder}: ")
    assert len(message.splitlines()) == 1
    return message


def test_what_is_written_is_read_bit_for_bit(tmp_path):
    found = Checkpoint(saved(tmp_path / "state"), IDENTITY).read()
    assert found is not None
    assert found.values == state().values
    assert found.tensors.keys() == state().tensors.keys()
    for name, tensor in state().tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_tensors_that_share_memory_or_are_views_are_written(tmp_path):
    table = torch.arange(6.0).reshape(2, 3)
    tensors = {"a": table, "b": table, "turned": table.T, "row": table[1]}
    one = Checkpoint(tmp_path / "state", IDENTITY)
    one.write(TrainingState(tensors, {}))
    found = one.read()
    assert found is not None
    assert all(torch.equal(found.tensors[name], tensors[name]) for name in tensors)


def test_nothing_is_read_where_there_is_nothing(tmp_path):
    one = Checkpoint(tmp_path / "state", IDENTITY)
    assert one.read() is None
    one.remove()
    one.write(state())
    one.remove()
    assert one.read() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("finish", ["write", "remove"])
def test_what_a_killed_write_left_is_removed(tmp_path, finish):
    one = Checkpoint(saved(tmp_path / "state"), IDENTITY)
    left = tmp_path / ".state.4711-0123abcd.tmp"
    left.mkdir()
    (left / "state.json").write_text("{}")
    one.write(state()) if finish == "write" else one.remove()
    assert [path.name for path in tmp_path.iterdir()] == (["state"] if finish == "write" else [])


def test_a_state_takes_the_place_of_the_one_before(tmp_path):
    saved(tmp_path / "state")
    one = Checkpoint(tmp_path / "state", IDENTITY)
    one.write(state(2.0))
    found = one.read()
    assert found is not None
    assert found.tensors["weights/a"][0] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_write_that_fails_leaves_the_state_before(tmp_path):
    one = Checkpoint(saved(tmp_path / "state"), IDENTITY)
    with pytest.raises(TypeError):
        one.write(TrainingState(state(2.0).tensors, {"done": object()}))
    found = one.read()
    assert found is not None
    assert found.tensors["weights/a"][0] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_state_is_due_after_its_time(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    one = Checkpoint(tmp_path / "state", IDENTITY, seconds=10)
    now[0] = 109.0
    assert not one.due()
    now[0] = 110.0
    assert one.due()
    one.write(state())
    assert not one.due()
    now[0] = 120.0
    assert one.due()
    assert Checkpoint(tmp_path / "state", IDENTITY, seconds=0).due()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({**IDENTITY, "data": "cd34"}, "data 'cd34', found 'ab12'"),
        (
            {**IDENTITY, "settings": {**IDENTITY["settings"], "margin": 0.5}},
            "settings.margin 0.5, found 1.0",
        ),
        (
            {**IDENTITY, "settings": {"margin": 1.0, "sampling": {"count": 4, "positives": None}}},
            "settings.sampling.count 4, found 12",
        ),
        (
            {**IDENTITY, "settings": {"margin": 1.0, "sampling": {"count": 12}}},
            "settings.sampling.positives None, found None",
        ),
        ({**IDENTITY, "model": "x"}, "model 'x', found None"),
    ],
)
def test_the_state_of_another_training_is_refused_and_kept(tmp_path, other, expected):
    folder = saved(tmp_path / "state")
    message = refused(folder, ConfigError, other)
    assert f"expected the checkpoint of a run with {expected}; " in message
    assert "--restart" in message
    assert Checkpoint(folder, IDENTITY).read() is not None


def test_tuples_are_the_same_settings_as_the_lists_they_are_written_as(tmp_path):
    Checkpoint(tmp_path / "state", {"a": (1, 2)}).write(state())
    assert Checkpoint(tmp_path / "state", {"a": (1, 2)}).read() is not None


DAMAGES = [
    ("state.json", lambda content: None),
    ("state.json", lambda content: content[:-4]),
    ("state.json", lambda content: b""),
    ("state.json", lambda content: b"[]"),
    ("state.json", lambda content: b"3"),
    ("state.json", lambda content: b'{"done": 3}'),
    ("state.json", lambda content: b'{"identity": [1]}'),
    ("state.json", lambda content: b"\xff" + content),
    ("state.safetensors", lambda content: None),
    ("state.safetensors", lambda content: content[:-1]),
    ("state.safetensors", lambda content: b""),
    ("state.safetensors", lambda content: b"{" * 20),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_state_is_refused(tmp_path, name, damage):
    folder = saved(tmp_path / "state")
    content = damage((folder / name).read_bytes())
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    message = refused(folder, ModelError)
    assert "cannot be read (" in message
    assert message.endswith("; remove the folder to start over")


def test_an_identity_is_written_as_json(tmp_path):
    value = json.loads((saved(tmp_path / "state") / "state.json").read_text())
    assert value["identity"] == IDENTITY
