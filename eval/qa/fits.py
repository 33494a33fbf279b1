"""Training heads and fine-tuning cross-encoders on a question set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.progress import Notify, Progress, ignore, silent
from eval.qa.scores import EmbeddedPairs
from eval.qa.settings import CrossPlan, HeadPlan
from eval.qa.training import DevScore
from eval.vectors import Loading, embed
from retriever.encoders.models.finding import ModelFolder, find_model
from retriever.encoders.protocol import LoadedEncoder
from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ConfigError
from retriever.rerankers.cross.folder import (
    head_digest,
    is_cross_encoder,
    read_head,
    read_training,
    write_cross_encoder,
)
from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.cross.training import train_cross_encoder
from retriever.rerankers.head.training import Scorer, TrainedHead, train_head
from retriever.rerankers.manifest import is_reranker
from retriever.training.checkpoint import Checkpoint, require_same
from retriever.training.sampling import JudgedPools, TrainingSet
from retriever.training.settings import Epoch, Step, kept_epoch


@dataclass(frozen=True, slots=True, eq=False)
class TrainingVectors:
    """The texts of a `TrainingSet` as vectors.

    Attributes:
        questions: (n, d) float32.
        passages: (m, d) float32.
    """

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]


def training_vectors(
    encoder: LoadedEncoder, train: TrainingSet, cache: Path | None, progress: Progress = silent
) -> TrainingVectors:
    """Encode what a head is trained on.

    Args:
        encoder: of questions and passages.
        train: the texts.
        cache: a folder that keeps vectors; None keeps none.
        progress: of encoding.
    """
    done = progress("encoding the training split", len(train.questions) + len(train.passages))
    return TrainingVectors(
        embed(encoder, train.questions, cache, query=True, done=done).vectors,
        embed(encoder, train.passages, cache, done=done).vectors,
    )


def fit_head(
    plan: HeadPlan,
    vectors: TrainingVectors,
    pools: JudgedPools,
    dev_pairs: EmbeddedPairs,
    dev: DevScore,
) -> TrainedHead:
    """Train a head, and keep the epoch with the best AP on dev, the untrained head included.

    Args:
        plan: what to train, and how.
        vectors: of the training set.
        pools: of the training set.
        dev_pairs: the vectors of `dev.questions`.
        dev: chooses the epoch.
    """

    def dev_score(score: Scorer) -> float:
        return dev(head_scores(score, dev_pairs))

    return train_head(
        plan.training, plan.head, vectors.questions, vectors.passages, pools, dev_score
    )


def head_scores(score: Scorer, pairs: EmbeddedPairs) -> NDArray[np.float32]:
    """(pairs,) scores, in the order of `QuestionSet.pairs`."""
    return score(pairs.questions, pairs.passages, pairs.question_rows, pairs.passage_rows)


def fit_cross_encoder(
    train: TrainingSet,
    dev: DevScore,
    plan: CrossPlan,
    folder: Path,
    loading: Loading,
    *,
    restart: bool = False,
    name: str = "fine-tuning",
    progress: Progress = silent,
    notify: Notify = ignore,
) -> tuple[tuple[Epoch, ...], Epoch]:
    """Fine-tune a cross-encoder and write it to a folder.

    If the model is a cross-encoder's folder, training starts from its MLP too.

    A checkpoint beside the folder is written every few minutes and removed at the end: the same
    call resumes from it. A folder that the same call has written before is left as it is.

    Args:
        train: the texts to train on.
        dev: chooses the epoch.
        plan: what to fine-tune, and how.
        folder: where the cross-encoder is written.
        loading: of the transformer.
        restart: ignore the checkpoint and the folder.
        name: of the stage.
        progress: of the steps.
        notify: is called with a line for each epoch.

    Returns:
        The learning curve, and the epoch that was kept.

    Raises:
        ConfigError: the folder holds something else or the result of another training, a checkpoint
            is of another training, or the model has no positions for such a window.
        What `find_model` raises.
    """
    from retriever.rerankers.cross.head import CrossHead

    base = find_model(plan.model, download=loading.download)
    keep_head = is_cross_encoder(plan.model)
    identity = _identity(train, dev, plan, base)
    if not restart and is_reranker(folder):
        training = read_training(folder)
        require_same(folder, identity, _completed(training.get("identity")))
        return _with_kept(tuple(Epoch(**one) for one in training["curve"]), plan, keep_head)
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    backbone = Backbone(base, loading.device, training=True)
    if plan.max_length > backbone.max_length:
        raise ConfigError(
            f"max-length: the model {base.name} reads at most {backbone.max_length} pieces, found "
            f"{plan.max_length}"
        )
    head = read_head(Path(plan.model), backbone.width) if keep_head else CrossHead(backbone.width)
    model = CrossEncoder(backbone, head.to(backbone.device), plan.max_length)
    curve = train_cross_encoder(
        model,
        train.questions,
        train.passages,
        train.pools,
        plan.training,
        lambda model: dev(model.score(dev.left, dev.right, lambda done: None)),
        keep_head=keep_head,
        checkpoint=checkpoint,
        on_step=steps_shown(name, progress),
        on_epoch=lambda one: notify(f"{name}: {_line(one)}"),
    )
    training = {
        "identity": identity,
        "curve": [asdict(one) for one in curve],
        "bfloat16": model.autocast,
    }
    write_cross_encoder(folder, model, training)
    checkpoint.remove()
    return _with_kept(curve, plan, keep_head)


def _with_kept(
    curve: tuple[Epoch, ...], plan: CrossPlan, keep_head: bool
) -> tuple[tuple[Epoch, ...], Epoch]:
    kept = kept_epoch(curve, plan.training.tolerance, untrained=keep_head)
    assert kept is not None
    return curve, kept


def _line(epoch: Epoch) -> str:
    dev = f"dev AP {100 * epoch.dev:.2f}"
    if epoch.epoch == 0:
        return f"before training, {dev}"
    return f"epoch {epoch.epoch}, loss {epoch.loss:.4f}, {dev}"


def steps_shown(name: str, progress: Progress) -> Callable[[Step], object]:
    """Shows the steps of a training as a stage."""
    advance: list[Callable[[int], object]] = []

    def step(done: Step) -> None:
        if not advance:
            advance.append(progress(name, done.total))
            # Steps before a checkpoint.
            advance[0](done.number - 1)
        advance[0](1)

    return step


def _completed(identity: Any) -> Any:
    """The identity of a saved cross-encoder, with the settings that its release did not have."""
    if not isinstance(identity, dict) or not isinstance(identity.get("settings"), dict):
        return identity
    first = {"loss": "hinge", "layer_decay": 1.0, "trained": {"part": "full", "size": 0}}
    return identity | {"settings": first | identity["settings"]}


def _identity(
    train: TrainingSet, dev: DevScore, plan: CrossPlan, base: ModelFolder
) -> dict[str, Any]:
    """Everything that decides the weights."""
    # Identities of earlier releases stay what they are.
    head = {"head": head_digest(Path(plan.model))} if is_cross_encoder(plan.model) else {}
    return head | {
        "model": base.name,
        "weights": base.weights,
        "max_length": plan.max_length,
        "settings": asdict(plan.training),
        "train": train.digest(),
        "dev": dev.digest(),
    }
