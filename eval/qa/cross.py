"""Fine-tuning a cross-encoder on a question set, and finding again what was fine-tuned before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.qa.training import DevScore, TrainingSet
from retriever.encoders.models import DEFAULT_MODEL, ModelFolder, find_model
from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ConfigError
from retriever.rerankers.cross.folder import read_training, write_cross_encoder
from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.cross.settings import CrossEpoch, CrossTrainingSettings, Step
from retriever.rerankers.cross.training import train_cross_encoder
from retriever.rerankers.manifest import is_reranker
from retriever.rerankers.training.checkpoint import Checkpoint

SHORTEST_PAIR = 16


@dataclass(frozen=True, slots=True)
class CrossPlan:
    """What to fine-tune, and how.

    Attributes:
        model: a transformer's folder, bundled name or hub id.
        max_length: the window in word pieces of question and passage together.
        settings: of the training.
        device: a torch device; None takes a GPU where there is one.
        download: allow the network for a hub id that is not in the cache.

    Raises:
        ConfigError: the window is too short for a pair.
    """

    model: str = DEFAULT_MODEL
    max_length: int = 160
    settings: CrossTrainingSettings = field(default_factory=CrossTrainingSettings)
    device: str | None = None
    download: bool = False

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST_PAIR:
            raise ConfigError(
                f"max-length: expected {SHORTEST_PAIR} or more, found {self.max_length}"
            )


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of a training.

    Attributes:
        step: after each step.
        dev: before the pairs of dev are scored, with their number; gives what is told of pairs.
        epoch: after each epoch, those before a checkpoint first.
    """

    step: Callable[[Step], object] = lambda step: None
    dev: Callable[[int], Callable[[int], None]] = lambda pairs: lambda done: None
    epoch: Callable[[CrossEpoch], object] = lambda epoch: None


def fit_cross_encoder(
    train: TrainingSet,
    dev: DevScore,
    plan: CrossPlan,
    folder: Path,
    *,
    restart: bool = False,
    watch: Watch | None = None,
) -> tuple[CrossEpoch, ...]:
    """Fine-tune a cross-encoder and write it to a folder.

    What is done is saved beside the folder every few minutes, and removed at the end: the same call
    goes on from there. A folder that the same call has written already is left as it is.

    Args:
        train: what to train on.
        dev: what epochs are chosen on.
        plan: what and how.
        folder: where the cross-encoder is written to.
        restart: forget what is there and begin anew.
        watch: who is told.

    Returns:
        The learning curve.

    Raises:
        ConfigError: the folder holds something else, a checkpoint is of another training, or the
            model has no positions for such a window.
        What `find_model` raises.
    """
    from retriever.rerankers.cross.head import CrossHead

    watch = watch or Watch()
    base = find_model(plan.model, download=plan.download)
    identity = _identity(train, dev, plan, base)
    if not restart and is_reranker(folder):
        training = read_training(folder)
        if training.get("identity") == identity:
            return tuple(CrossEpoch(**one) for one in training["curve"])
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    backbone = Backbone(base, plan.device, training=True)
    if plan.max_length > backbone.max_length:
        raise ConfigError(
            f"max-length: the model {base.name} reads at most {backbone.max_length} pieces, found "
            f"{plan.max_length}"
        )
    model = CrossEncoder(backbone, CrossHead(backbone.width).to(backbone.device), plan.max_length)

    def dev_score(model: CrossEncoder) -> float:
        return dev(model.score(dev.left, dev.right, watch.dev(len(dev.left))))

    curve = train_cross_encoder(
        model,
        train.questions,
        train.passages,
        train.pools,
        plan.settings,
        dev_score,
        checkpoint=checkpoint,
        on_step=watch.step,
        on_epoch=watch.epoch,
    )
    training = {
        "identity": identity,
        "curve": [asdict(one) for one in curve],
        "bfloat16": model.autocast,
    }
    write_cross_encoder(folder, model, training)
    checkpoint.remove()
    return curve


def _identity(
    train: TrainingSet, dev: DevScore, plan: CrossPlan, base: ModelFolder
) -> dict[str, Any]:
    """Everything that decides the weights."""
    return {
        "model": base.name,
        "weights": base.weights,
        "max_length": plan.max_length,
        "settings": asdict(plan.settings),
        "train": train.digest(),
        "dev": dev.digest(),
    }
