"""The state of a training on disk: whole, of the same training, or refused in one line."""

from __future__ import annotations

import pytest
import torch

from retriever.errors import ConfigError, ModelError
from retriever.training import Checkpoint, require_same
from retriever.training import checkpoint as module

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
    return tensors, {"done": 3, "losses": [0.1, 1 / 3], "curve": []}


def saved(folder):
    Checkpoint(folder, IDENTITY).write(*state())
    return folder


def refusal_of(folder, error, identity=IDENTITY):
    with pytest.raises(error) as caught:
        Checkpoint(folder, identity).read()
    message = str(caught.value)
    assert message.startswith(f"{folder}: ")
    assert len(message.splitlines()) == 1
    return message


def test_checkpoint_is_read_bit_for_bit(tmp_path):
    # Tuples are the same settings as the lists that they are written as.
    one = Checkpoint(tmp_path / "state", {"a": (1, 2)})
    table = torch.arange(6.0).reshape(2, 3)
    # Tensors may share memory, or be views.
    tensors, values = state()
    tensors |= {"a": table, "b": table, "turned": table.T, "row": table[1]}
    one.write(tensors, values)
    found = Checkpoint(tmp_path / "state", {"a": (1, 2)}).read()
    assert found is not None
    assert found[1] == values
    assert found[0].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[0][name].dtype == tensor.dtype
        assert torch.equal(found[0][name], tensor)


def test_missing_checkpoint_reads_as_none(tmp_path):
    one = Checkpoint(tmp_path / "state", IDENTITY)
    assert one.read() is None
    one.remove()
    one.write(*state())
    one.remove()
    assert one.read() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("finish", ["write", "remove"])
def test_remains_of_killed_checkpoint_write_are_removed(tmp_path, finish):
    one = Checkpoint(saved(tmp_path / "state"), IDENTITY)
    left = tmp_path / ".state.4711-0123abcd.tmp"
    left.mkdir()
    (left / "state.json").write_text("{}")
    one.write(*state()) if finish == "write" else one.remove()
    assert [path.name for path in tmp_path.iterdir()] == (["state"] if finish == "write" else [])


def test_checkpoint_replaces_previous_unless_write_fails(tmp_path):
    one = Checkpoint(saved(tmp_path / "state"), IDENTITY)
    one.write(*state(2.0))
    with pytest.raises(TypeError):
        one.write(state(3.0)[0], {"done": object()})
    found = one.read()
    assert found is not None
    assert found[0]["weights/a"][0] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_checkpoint_is_due_after_its_interval(tmp_path, monkeypatch):
    now = iter([100.0, 109.0, 110.0, 110.0, 119.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    one = Checkpoint(tmp_path / "state", IDENTITY, seconds=10)
    assert [one.due(), one.due()] == [False, True]
    one.write(*state())
    assert not one.due()


SAMPLING = {"count": 12, "positives": None}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"data": "cd34"}, "data 'cd34', found 'ab12'"),
        # Settings come first.
        (
            {"data": "cd34", "settings": {"margin": 0.5, "sampling": SAMPLING}},
            "settings.margin 0.5, found 1.0",
        ),
        (
            {"settings": {"margin": 1.0, "sampling": {"count": 12}}},
            "settings.sampling.positives None, found None",
        ),
        ({"model": "x"}, "model 'x', found None"),
    ],
)
def test_checkpoint_of_another_training_is_refused_and_kept(tmp_path, changed, expected):
    folder = saved(tmp_path / "state")
    message = refusal_of(folder, ConfigError, IDENTITY | changed)
    assert f"expected the checkpoint of a run with {expected}; " in message
    assert "--restart" in message
    assert Checkpoint(folder, IDENTITY).read() is not None
    require_same(folder, IDENTITY, IDENTITY)
    for found in (None, IDENTITY | changed):
        with pytest.raises(ConfigError, match=r"expected the result of a run with .*--restart"):
            require_same(folder, IDENTITY, found)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state.json", lambda content: content[:-4]),
        ("state.json", lambda content: b"[]"),
        ("state.json", lambda content: b'{"done": 3}'),
        ("state.json", lambda content: b'{"identity": [1]}'),
        ("state.json", lambda content: b"\xff" + content),
        ("state.safetensors", lambda content: content[:-1]),
        ("state.safetensors", None),
    ],
)
def test_damaged_checkpoint_is_refused(tmp_path, name, damage):
    folder = saved(tmp_path / "state")
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(damage((folder / name).read_bytes()))
    message = refusal_of(folder, ModelError)
    assert "cannot be read (" in message
    assert message.endswith("; remove the folder to start over")
