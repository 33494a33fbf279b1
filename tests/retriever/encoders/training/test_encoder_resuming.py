"""A training that was stopped comes to the same end, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from retriever.training.loop import Epoch, Step, Trained
from tests.retriever.encoders.training import encoder_samples
from tests.retriever.encoders.training.encoder_samples import (
    LABELED,
    RANKED,
    SCORED,
    STEPS,
    Training,
    gap,
    same,
    settings,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")
Folders = Callable[[str], Path]


class StopError(Exception):
    """What stops a training."""


def _stopping_after(calls: int) -> Callable[[Any], float]:
    left = iter(range(calls))

    def dev(encoder: Any) -> float:
        if next(left, None) is None:
            raise StopError
        return gap(encoder)

    return dev


@pytest.fixture(scope="module")
def undisturbed(folders: Folders) -> tuple[dict[str, torch.Tensor], tuple[Epoch, ...]]:
    encoder, curve = Training(folders("bert"))()
    return weights(encoder), curve


@pytest.mark.parametrize("place", [1, 3, 4, STEPS])
def test_interrupted_at_a_step(
    tmp_path: Path, folders: Folders, undisturbed: Any, place: int
) -> None:
    training = Training(folders("bert"), tmp_path / "checkpoint")

    def stop(step: Step) -> None:
        if step.number == place:
            raise StopError

    with pytest.raises(StopError):
        training(on_step=stop)
    steps: list[int] = []
    encoder, curve = training(on_step=lambda step: steps.append(step.number))
    # The step at which it stopped was not saved.
    assert steps == list(range(place, STEPS + 1))
    assert same(weights(encoder), undisturbed[0])
    assert curve == undisturbed[1]


@pytest.mark.parametrize(
    ("objective", "examples", "trained"),
    [("mnr", RANKED, "lora:2"), ("hinge", RANKED, "last:1"), ("sts", SCORED, "full"),
     ("nli", LABELED, "lora:2")],
)  # fmt: skip
def test_every_objective_and_part_resumes(
    tmp_path: Path, folders: Folders, objective: Any, examples: Any, trained: str
) -> None:
    asked = settings(objective=objective, trained=Trained.parse(trained), epochs=2)
    expected, expected_curve = Training(folders("bert"), None, examples, asked)()
    training = Training(folders("bert"), tmp_path / "checkpoint", examples, asked)

    def stop(step: Step) -> None:
        if step.number == 3:
            raise StopError

    with pytest.raises(StopError):
        training(on_step=stop)
    encoder, curve = training()
    assert same(weights(encoder), weights(expected))
    assert curve == expected_curve


def test_interrupted_while_dev_is_scored(
    tmp_path: Path, folders: Folders, undisturbed: Any
) -> None:
    training = Training(folders("bert"), tmp_path / "checkpoint")
    for stops in range(3):
        with pytest.raises(StopError):
            training(dev=_stopping_after(stops))
    encoder, curve = training()
    assert same(weights(encoder), undisturbed[0])
    assert curve == undisturbed[1]


@pytest.mark.soak
def test_killed(tmp_path: Path, folders: Folders, undisturbed: Any) -> None:
    root = Path(__file__).parents[4]
    checkpoint = tmp_path / "checkpoint"
    with subprocess.Popen(
        [sys.executable, encoder_samples.__file__, str(folders("bert")), str(checkpoint)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() not in ("5", ""):
            pass
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    steps: list[int] = []
    encoder, curve = Training(folders("bert"), checkpoint)(
        on_step=lambda one: steps.append(one.number)
    )
    # The first four were saved before the fifth was begun.
    assert 5 <= steps[0] <= STEPS
    assert same(weights(encoder), undisturbed[0])
    assert curve == undisturbed[1]
