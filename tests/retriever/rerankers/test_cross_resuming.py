"""A training that was stopped goes on to the same end, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from retriever.rerankers.cross import CrossEncoder
from retriever.training.loop import Trained
from tests.retriever.rerankers import cross_samples
from tests.retriever.rerankers.cross_samples import (
    SETTINGS,
    STEPS,
    Training,
    same,
    share_right,
)

pytestmark = pytest.mark.usefixtures("one_thread")


class StopError(Exception):
    """What stops a training."""


def stop_at(number):
    """Stops when it is called for the so-manieth time."""
    calls = count(1)

    def stop(given):
        if next(calls) == number:
            raise StopError
        return share_right(given) if isinstance(given, CrossEncoder) else 0.0

    return stop


def is_undisturbed(found, curve, undisturbed):
    return same(found, undisturbed[0]) and curve == undisturbed[1]


@pytest.mark.parametrize("place", [1, 2, 3, 4, 6, STEPS])
def test_interrupted_at_a_step_it_goes_on_to_the_same_end(tmp_path, models, undisturbed, place):
    training = Training(models("bert"), tmp_path / "checkpoint")
    with pytest.raises(StopError):
        training(on_step=stop_at(place))
    steps = []
    resumed = training(on_step=lambda step: steps.append(step.number))
    # The step at which it stopped was not saved.
    assert steps == list(range(place, STEPS + 1))
    assert is_undisturbed(*resumed, undisturbed)


@pytest.mark.parametrize("trained", ["last:1", "lora:2"])
def test_a_training_of_some_weights_goes_on_to_the_same_end(tmp_path, models, trained):
    settings = replace(SETTINGS, epochs=2, trained=Trained.parse(trained))
    expected = Training(models("bert"), settings=settings)()
    training = Training(models("bert"), tmp_path / "checkpoint", settings)
    with pytest.raises(StopError):
        training(on_step=stop_at(4))
    assert is_undisturbed(*training(), expected)


@pytest.mark.parametrize("where", ["on_epoch", "dev"])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_interrupted_about_the_end_of_an_epoch_it_goes_on_to_the_same_end(
    tmp_path, models, undisturbed, where, epoch
):
    training = Training(models("bert"), tmp_path / "checkpoint")
    with pytest.raises(StopError):
        training(**{where: stop_at(epoch)})
    told = []
    found, curve = training(on_epoch=told.append)
    assert is_undisturbed(found, curve, undisturbed)
    assert curve == tuple(told)


def test_interrupted_again_and_again_it_comes_to_the_same_end(tmp_path, models, undisturbed):
    training = Training(models("bert"), tmp_path / "checkpoint")
    for life in range(STEPS - 1):
        with pytest.raises(StopError):
            training(on_step=stop_at(2))
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"], life
    assert is_undisturbed(*training(), undisturbed)


def test_a_training_that_is_complete_is_not_done_again(tmp_path, models, undisturbed):
    training = Training(models("bert"), tmp_path / "checkpoint")
    training()
    steps, told = [], []
    found, curve = training(on_step=steps.append, on_epoch=told.append)
    assert steps == []
    assert is_undisturbed(found, curve, undisturbed)
    assert curve == tuple(told)


def test_stopped_early_it_is_complete_too(tmp_path, models):
    settings = replace(SETTINGS, epochs=4, patience=1)
    training = Training(models("bert"), tmp_path / "checkpoint", settings)
    scripted = iter([0.2, 0.5, 0.1])
    found, _ = training(dev=lambda _: next(scripted))
    again, curve = training(dev=lambda _: pytest.fail("nothing is left to do"))
    assert same(found, again)
    assert len(curve) == 3


def test_a_checkpoint_without_the_untrained_model_is_resumed_without_it(
    tmp_path, models, undisturbed
):
    training = Training(models("bert"), tmp_path / "checkpoint")
    with pytest.raises(StopError):
        training(on_step=stop_at(2))
    path = tmp_path / "checkpoint" / "state.json"
    values = json.loads(path.read_text())
    assert [one["epoch"] for one in values["curve"]] == [0]
    path.write_text(json.dumps(values | {"curve": []}))
    found, curve = training()
    assert same(found, undisturbed[0])
    assert curve == undisturbed[1][1:]


@pytest.mark.soak
def test_killed_it_goes_on_to_the_same_end(tmp_path, models, undisturbed):
    root = Path(__file__).parents[3]
    checkpoint = tmp_path / "checkpoint"
    with subprocess.Popen(
        [sys.executable, cross_samples.__file__, str(models("bert")), str(checkpoint)],
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
    steps = []
    found, curve = Training(models("bert"), checkpoint)(
        on_step=lambda one: steps.append(one.number)
    )
    # The first four were saved before the fifth was begun.
    assert 5 <= steps[0] <= STEPS
    assert is_undisturbed(found, curve, undisturbed)
