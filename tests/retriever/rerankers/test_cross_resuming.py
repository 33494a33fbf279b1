"""A training that was stopped resumes and ends with the same weights, bit for bit."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from retriever.rerankers.cross.settings import (
    CrossEpoch,
    Step,
)
from tests.retriever.rerankers.cross_samples import (
    SETTINGS,
    STEPS,
    Training,
    same,
    share_right,
)

pytestmark = pytest.mark.usefixtures("one_thread")
Models = Callable[[str], Path]
Weights = dict[str, torch.Tensor]


class StopError(Exception):
    """What stops a training."""


@pytest.mark.parametrize("place", [1, 2, 3, 4, 6, STEPS])
def test_interrupted_at_a_step_it_goes_on_to_the_same_end(
    tmp_path: Path,
    models: Models,
    undisturbed: tuple[Weights, tuple[CrossEpoch, ...]],
    place: int,
) -> None:
    training = Training(models("bert"), tmp_path / "checkpoint")

    def stop(step: Step) -> None:
        if step.number == place:
            raise StopError

    with pytest.raises(StopError):
        training(on_step=stop)
    steps: list[int] = []
    found, curve = training(on_step=lambda step: steps.append(step.number))
    # The step at which it stopped was not saved.
    assert steps == list(range(place, STEPS + 1))
    assert same(found, undisturbed[0])
    assert curve == undisturbed[1]


@pytest.mark.parametrize("where", ["on_epoch", "dev"])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_interrupted_about_the_end_of_an_epoch_it_goes_on_to_the_same_end(
    tmp_path: Path,
    models: Models,
    undisturbed: tuple[Weights, tuple[CrossEpoch, ...]],
    where: str,
    epoch: int,
) -> None:
    training = Training(models("bert"), tmp_path / "checkpoint")
    calls = count(1)

    def stop(given: Any) -> float:
        if next(calls) == epoch:
            raise StopError
        return share_right(given) if where == "dev" else 0.0

    with pytest.raises(StopError):
        training(**{where: stop})
    told: list[CrossEpoch] = []
    found, curve = training(on_epoch=told.append)
    assert same(found, undisturbed[0])
    assert curve == tuple(told) == undisturbed[1]


def test_interrupted_again_and_again_it_comes_to_the_same_end(
    tmp_path: Path, models: Models, undisturbed: tuple[Weights, tuple[CrossEpoch, ...]]
) -> None:
    training = Training(models("bert"), tmp_path / "checkpoint")
    for life in range(STEPS - 1):
        calls = count(1)

        def stop(_: Step, calls: Any = calls) -> None:
            if next(calls) == 2:
                raise StopError

        with pytest.raises(StopError):
            training(on_step=stop)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"], life
    found, curve = training()
    assert same(found, undisturbed[0])
    assert curve == undisturbed[1]


def test_a_training_that_is_complete_is_not_done_again(
    tmp_path: Path, models: Models, undisturbed: tuple[Weights, tuple[CrossEpoch, ...]]
) -> None:
    training = Training(models("bert"), tmp_path / "checkpoint")
    training()
    steps: list[Step] = []
    told: list[CrossEpoch] = []
    found, curve = training(on_step=steps.append, on_epoch=told.append)
    assert steps == []
    assert same(found, undisturbed[0])
    assert curve == tuple(told) == undisturbed[1]


def test_stopped_early_it_is_complete_too(tmp_path: Path, models: Models) -> None:
    settings = replace(SETTINGS, epochs=4, patience=1)
    training = Training(models("bert"), tmp_path / "checkpoint", settings)
    scripted = iter([0.5, 0.1])
    found, _ = training(dev=lambda _: next(scripted))
    again, curve = training(dev=lambda _: pytest.fail("nothing is left to do"))
    assert same(found, again)
    assert len(curve) == 2


def test_killed_it_goes_on_to_the_same_end(
    tmp_path: Path, models: Models, undisturbed: tuple[Weights, tuple[CrossEpoch, ...]]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    receive, send = os.pipe()
    with warnings.catch_warnings():
        # Python warns about forking with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            Training(models("bert"), checkpoint)(
                on_step=lambda one: os.write(send, f"{one.number}\n".encode())
            )
        finally:
            os._exit(1)
    os.close(send)
    with os.fdopen(receive) as told:
        while told.readline().strip() not in ("5", ""):
            pass
        os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    steps: list[int] = []
    found, curve = Training(models("bert"), checkpoint)(
        on_step=lambda one: steps.append(one.number)
    )
    # The first four were saved before the fifth began.
    assert 5 <= steps[0] <= STEPS
    assert same(found, undisturbed[0])
    assert curve == undisturbed[1]
