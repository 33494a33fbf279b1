"""Training rerankers on a question set: heads on frozen vectors, and cross-encoders.

A head that is a map of the query vector is also tried as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import QuestionSet
from eval.figures import learning_figure
from eval.metrics.comparison import compare_values, interval, mean_and_spread, percent
from eval.metrics.correlation import RANKED_DECIMALS
from eval.metrics.measures import PoolMeasures
from eval.progress import Done, Notify, Progress, ignore, silent
from eval.qa.pools import DEV_MEASURE, DevScore, EmbeddedPairs
from eval.qa.resources import Questions, Ranked, Resources, open_resources, pool_hits
from eval.qa.systems import HeadPlan, QASettings
from eval.reports import Table, table_lines
from eval.settings import CrossPlan, Loading, Resampling
from eval.vectors import embed
from retriever.encoders import find_model
from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ConfigError, require_torch
from retriever.rerankers import (
    CrossEncoder,
    HeadReranker,
    QueryMap,
    Scorer,
    TrainedHead,
    check_target,
    is_cross_encoder,
    is_reranker,
    train_cross_encoder,
    train_head,
    write_cross_encoder,
)
from retriever.rerankers.cross import KIND as CROSS_ENCODER
from retriever.rerankers.cross import head_digest, read_head, read_training
from retriever.rerankers.head import KIND as HEAD
from retriever.rerankers.head import QUERY_MAP, is_query_map
from retriever.training import Checkpoint, Epoch, Step, TrainingSet, require_same, select_epoch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from retriever.encoders.model_folders import ModelFolder

Floats = NDArray[np.float32]
# Ranks a whole corpus for questions with their vectors, which a map may change.
_Search = Callable[[QuestionSet, Floats, QueryMap | None], Ranked]

_FOLDS = 5
_QUESTIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class FittedReranker:
    """Heads of several seeds; the head of seed `best` was saved to `folder`.

    `trial` is the test of a head as a query map; see `try_query_map`.
    """

    folder: Path
    trained: tuple[TrainedHead, ...]
    best: int
    trial: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return ({} if self.trial is None else {QUERY_MAP: self.trial}) | {
            "output": str(self.folder),
            "saved_seed": self.best,
            "seeds": [
                {
                    "best_epoch": head.best,
                    "dev_map": head.curve[head.best].dev,
                    "curve": [asdict(epoch) for epoch in head.curve],
                }
                for head in self.trained
            ],
        }

    def text(self) -> str:
        """Return the learning curve and the best epochs.

        Each epoch has the mean of the seeds that reached it.
        """
        rows = []
        for number in range(max(len(head.curve) for head in self.trained)):
            epochs = [head.curve[number] for head in self.trained if number < len(head.curve)]
            loss = f"{fmean(epoch.loss for epoch in epochs):.4f}" if number else ""
            dev = percent(*mean_and_spread([epoch.dev for epoch in epochs]))
            rows.append((str(number), str(len(epochs)), loss, dev))
        table = Table(("epoch", "seeds", "loss", "dev AP"), tuple(rows))
        best = percent(*mean_and_spread([head.curve[head.best].dev for head in self.trained]))
        before = self.trained[0].curve[0].dev
        lines = [
            *table_lines(table),
            f"dev AP {best} at the best epochs; {percent(before)} before training",
            f"{self.folder}: seed {self.best}, after epoch {self.trained[self.best].best}",
        ]
        if (trial := self.trial) is not None:
            difference = trial["difference"]
            note = "and --query-map takes it" if trial["better"] else "so --query-map refuses it"
            limits = interval(difference["low"], difference["high"], sign="+")
            lines.append(
                f"as a query map: {DEV_MEASURE} {percent(trial['mapped'])}, without "
                f"{percent(trial['plain'])}, over the whole corpus on {trial['questions']:,} "
                f"held-out questions; {100 * difference['value']:+.2f} ({limits}), "
                f"p = {difference['p']:.4f}, {note}"
            )
        return "\n".join(lines)

    def figure(self) -> Figure:
        """Plot the learning curves."""
        curves = [tuple(epoch.dev for epoch in head.curve) for head in self.trained]
        return learning_figure({self.folder.name: curves})


@dataclass(frozen=True, slots=True)
class FittedTransformer:
    """A transformer that was fine-tuned, and saved with the weights of the `best_epoch`.

    The curve has the dev measure of all epochs; epoch 0 is before training.
    """

    # Columns of the table of epochs, with their formats.
    epoch_columns: ClassVar[Mapping[str, str]] = {"loss": ".4f"}

    folder: Path
    measure: str
    curve: tuple[Epoch, ...]
    best_epoch: Epoch

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {
            "output": str(self.folder),
            "kept_epoch": self.best_epoch.epoch,
            "curve": [asdict(epoch) for epoch in self.curve],
        }

    def text(self) -> str:
        """Return the learning curve, and which epoch was saved."""
        rows = []
        for epoch in self.curve:
            values = [f"{getattr(epoch, name):{form}}" for name, form in self.epoch_columns.items()]
            # There are none before training.
            values = values if epoch.epoch else [""] * len(values)
            rows.append((str(epoch.epoch), *values, percent(epoch.dev)))
        table = Table(("epoch", *self.epoch_columns, f"dev {self.measure}"), tuple(rows))
        before = f"{percent(self.curve[0].dev)} before training"
        return "\n".join([*table_lines(table), f"{self.folder}: {self.saved()}{before}"])

    def saved(self) -> str:
        """Describe the saved epoch, up to the dev measure before training."""
        dev = f"dev {self.measure} {percent(self.best_epoch.dev)}"
        return f"{dev} after epoch {self.best_epoch.epoch}; "

    def figure(self) -> Figure:
        """Plot the learning curve."""
        curve = tuple(epoch.dev for epoch in self.curve)
        return learning_figure({self.folder.name: (curve,)}, measure=self.measure)


@dataclass(frozen=True, slots=True)
class FittedCrossEncoder(FittedTransformer):
    """A cross-encoder that was fine-tuned and saved."""

    epoch_columns: ClassVar[Mapping[str, str]] = {"loss": ".4f", "active": ".3f"}

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {**FittedTransformer.to_json(self), "dev_map": self.best_epoch.dev}


def fit_reranker(
    questions: Questions,
    folder: Path,
    settings: QASettings | None = None,
    *,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> FittedReranker:
    """Train a head on the vectors of training questions and their passages, and save the best one.

    Each seed keeps the epoch with the best AP on dev; epoch 0 is the untrained head. A head that is
    a map of the query vector is tried as one, see `try_query_map`, and its folder says whether it
    may be used so. The settings `head`, `encoder`, `loading`, `data` and `seeds` apply.

    Raises:
        ConfigError: the folder holds something else.
        BadInputError: there is nothing to train on or to choose on.
        What `rank_systems` raises of reading and loading.
    """
    require_torch("training a reranker")
    settings = settings or QASettings()
    check_target(folder, HEAD)
    head = settings.head.head
    name = f"{head.interaction}:{head.head}"
    with open_resources(questions, settings.on_training_split(), progress, notify) as resources:
        trainer = HeadTrainer(settings.head, resources)
        trained = fit_heads(trainer, settings.seeds, name)
        trial = try_query_map(trainer) if is_query_map(asdict(head)) else None
        encoder = resources.encoder().spec
        data = resources.questions.name
    scores = [fitted.curve[fitted.best].dev for fitted in trained]
    best = scores.index(max(scores))
    provenance = {"data": data, "system": name} | ({} if trial is None else {QUERY_MAP: trial})
    HeadReranker.of(encoder, trained[best], provenance).save(folder)
    return FittedReranker(folder, tuple(trained), best, trial)


class HeadTrainer:
    """Trains heads of one plan on the questions of a training split, or on a part of them."""

    def __init__(self, plan: HeadPlan, resources: Resources, encoder: str = "") -> None:
        self.resources = resources
        self.encoder = encoder
        self._plan = plan
        train = resources.training_set(plan.training.sampling.negatives)
        model = resources.encoder(encoder)
        cache = resources.settings.loading.cache
        texts = len(train.questions) + len(train.passages)
        done = resources.progress("encoding the training split", texts)
        self.questions = embed(model, train.questions, cache, query=True, done=done).vectors
        self._passages = embed(model, train.passages, cache, done=done).vectors
        self._pools = train.pools
        self.trainable = len(train.pools.trainable(plan.training.sampling.negatives))
        self._dev = resources.pairs(resources.dev.questions, encoder)

    def __call__(self, seed: int, rows: NDArray[np.int64] | None = None) -> TrainedHead:
        """Train a head on all questions, or on those at `rows`; keep the epoch with the best AP."""
        training = replace(self._plan.training, seed=seed)
        questions = self.questions
        pools = self._pools
        if rows is not None:
            questions = questions[rows]
            pools = pools.part(rows)
        return train_head(
            training,
            self._plan.head,
            questions,
            self._passages,
            pools,
            lambda score: self.resources.dev(head_scores(score, self._dev)),
        )


def fit_heads(trainer: HeadTrainer, seeds: int, name: str) -> list[TrainedHead]:
    """Train a head with each seed, and keep the epoch with the best AP on dev."""
    advance = trainer.resources.progress(f"training {name}", seeds)
    trained = []
    for seed in range(seeds):
        trained.append(trainer(seed))
        advance(1)
    return trained


def head_scores(score: Scorer, pairs: EmbeddedPairs) -> Floats:
    """Return (pairs,) scores of a head."""
    return score(pairs.questions, pairs.passages, pairs.question_rows, pairs.passage_rows)


def try_query_map(trainer: HeadTrainer) -> Mapping[str, Any] | None:
    """Search the whole corpus for each training question with a map that was not trained on it.

    The questions are divided into five parts, always in the same way. A head that is trained on
    four of them, with its epoch chosen on dev, maps the questions of the fifth.

    Returns:
        JSON values: mean AP without and with a map, the difference, and whether it is better. None
        if there are too few questions.
    """
    if trainer.trainable < 2 * _FOLDS:
        return None
    questions = trainer.resources.train_questions.answered()
    folds = np.random.default_rng(0).permutation(len(questions)) % _FOLDS
    search = _first_stage(trainer, questions)
    advance = trainer.resources.progress("trying the query map", _FOLDS)
    values = {name: np.zeros(len(questions)) for name in ("mapped", "plain")}
    for fold in range(_FOLDS):
        rest = np.flatnonzero(folds != fold)
        rows = np.flatnonzero(folds == fold)
        part = replace(questions, questions=tuple(questions.questions[row] for row in rows))
        query_map = QueryMap(trainer(0, rest).head.matrix.detach().numpy())
        # Without a map last, so that the index is left as it was.
        for name, used in (("mapped", query_map), ("plain", None)):
            pools, scores = search(part, trainer.questions[rows], used)
            values[name][rows] = PoolMeasures(pools, [DEV_MEASURE])(scores)[DEV_MEASURE]
        advance(1)
    comparison = compare_values(values, "plain", Resampling())
    difference = comparison["mapped"].difference
    assert difference is not None
    return {
        "better": difference.significant and difference.value > 0,
        "measure": DEV_MEASURE,
        "questions": len(questions),
        "difference": asdict(difference),
        **{name: score.value for name, score in comparison.items()},
    }


def _first_stage(trainer: HeadTrainer, questions: QuestionSet) -> _Search:
    resources = trainer.resources
    if (corpus := resources.corpus) is not None:

        def ask(part: QuestionSet, vectors: Floats, query_map: QueryMap | None) -> Ranked:
            corpus.index.query_map = query_map
            return corpus.rank(part, "dense")

        return ask
    ids = list(questions.passages)
    texts = list(questions.passages.values())
    done = resources.progress("encoding all passages", len(set(texts)))
    model = resources.encoder(trainer.encoder)
    cache = resources.settings.loading.cache
    passages = embed(model, texts, cache, done=done).vectors
    depth = min(resources.settings.data.depth, len(ids))

    def search(part: QuestionSet, vectors: Floats, query_map: QueryMap | None) -> Ranked:
        query_vectors = vectors if query_map is None else query_map(vectors)
        hits = []
        for start in range(0, len(query_vectors), _QUESTIONS_AT_ONCE):
            products = query_vectors[start : start + _QUESTIONS_AT_ONCE] @ passages.T
            for scores in np.round(products, RANKED_DECIMALS):
                best = np.argpartition(-scores, depth - 1)[:depth].tolist()
                hits.append([(ids[place], float(scores[place])) for place in best])
        return pool_hits(part.questions, hits)

    return search


def fit_cross_encoder(
    questions: Questions,
    folder: Path,
    settings: QASettings | None = None,
    *,
    restart: bool = False,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> FittedCrossEncoder:
    """Fine-tune a cross-encoder on training questions and their passages, and save it.

    The same call resumes an interrupted training from its last checkpoint, unless `restart` is
    set. The settings `cross`, `loading` and `data` apply.

    Raises:
        ConfigError: the folder or a checkpoint belongs to another training or holds something else.
        BadInputError: there is nothing to train on or to choose on.
        What `rank_systems` raises of reading and loading.
    """
    require_torch("training a cross-encoder")
    settings = settings or QASettings()
    check_target(folder, CROSS_ENCODER)
    with open_resources(questions, settings.on_training_split(), progress, notify) as resources:
        return fine_tune(
            resources.training_set(settings.cross.training.sampling.negatives),
            resources.dev,
            settings.cross,
            folder,
            settings.loading,
            restart=restart,
            progress=progress,
            notify=notify,
        )


def fine_tune(
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
) -> FittedCrossEncoder:
    """Fine-tune a cross-encoder, and write it to a folder."""
    base = find_model(plan.model, download=loading.download)
    keep_head = is_cross_encoder(plan.model)
    identity = _training_identity(base, plan, train, dev)

    def fitted(curve: tuple[Epoch, ...]) -> FittedCrossEncoder:
        kept_epoch = best_of_curve(curve, plan.training.tolerance, untrained=keep_head)
        return FittedCrossEncoder(folder, DEV_MEASURE, curve, kept_epoch)

    if not restart and is_reranker(folder):
        training = read_training(folder)
        require_same(folder, identity, training.get("identity"))
        return fitted(tuple(Epoch(**epoch) for epoch in training["curve"]))
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    model = _load_cross_encoder(base, plan, loading.device)
    curve = train_cross_encoder(
        model,
        train,
        plan.training,
        lambda model: dev(model.score(dev.left, dev.right, lambda done: None)),
        keep_head=keep_head,
        checkpoint=checkpoint,
        on_step=steps_shown(name, progress),
        on_epoch=lambda epoch: notify(f"{name}: {epoch_line(epoch)}"),
    )
    training = {
        "identity": identity,
        "curve": [asdict(epoch) for epoch in curve],
        "bfloat16": model.autocast,
    }
    write_cross_encoder(folder, model, training)
    checkpoint.remove()
    return fitted(curve)


def _training_identity(
    base: ModelFolder, plan: CrossPlan, train: TrainingSet, dev: DevScore
) -> dict[str, object]:
    """Return the values that a checkpoint must have to be resumed, and a folder to be reused."""
    head = {"head": head_digest(Path(plan.model))} if is_cross_encoder(plan.model) else {}
    # The loss and the decay are constants that earlier releases stored.
    return head | {
        "model": base.name,
        "weights": base.weights,
        "max_length": plan.max_length,
        "settings": asdict(plan.training) | {"loss": "hinge", "layer_decay": 1.0},
        "train": train.digest(),
        "dev": dev.digest(),
    }


def _load_cross_encoder(base: ModelFolder, plan: CrossPlan, device: str | None) -> CrossEncoder:
    """Load a cross-encoder to train: with its own head, or a new head over a transformer."""
    from retriever.rerankers import CrossHead

    has_head = is_cross_encoder(plan.model)
    backbone = Backbone(base, device, training=True)
    # The tokenizer of a cross-encoder reports the window of its training, not of the model.
    longest = backbone.positions if has_head else backbone.max_length
    if plan.max_length > longest:
        raise ConfigError(
            f"max-length: the model {base.name} reads at most {longest} pieces, found "
            f"{plan.max_length}"
        )
    head = read_head(Path(plan.model), backbone.width) if has_head else CrossHead(backbone.width)
    return CrossEncoder(backbone, head.to(backbone.device), plan.max_length)


def best_of_curve(curve: Sequence[Epoch], tolerance: float, *, untrained: bool) -> Epoch:
    """Return the epoch of a finished training whose weights are kept."""
    epoch = select_epoch(curve, tolerance, untrained=untrained)
    assert epoch is not None
    return epoch


def epoch_line(epoch: Epoch, measure: str = DEV_MEASURE) -> str:
    """Describe an epoch of a training."""
    dev = f"dev {measure} {percent(epoch.dev)}"
    if epoch.epoch == 0:
        return f"before training, {dev}"
    return f"epoch {epoch.epoch}, loss {epoch.loss:.4f}, {dev}"


def steps_shown(name: str, progress: Progress) -> Callable[[Step], object]:
    """Return a callback that shows the steps of a training as a stage."""
    advance: Done | None = None

    def step(done: Step) -> None:
        nonlocal advance
        if advance is None:
            advance = progress(name, done.total)
            # Steps before a checkpoint are done.
            advance(done.number - 1)
        advance(1)

    return step
