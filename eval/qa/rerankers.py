"""Training a reranker on a question set and saving it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from eval.figures import learning_figure
from eval.metrics.comparison import percent
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.evaluation import open_resources
from eval.qa.fits import fit_cross_encoder as fit_and_write
from eval.qa.fits import fit_head, training_vectors
from eval.qa.resources import Questions
from eval.qa.settings import CrossPlan, HeadPlan, QASettings, QuestionSettings
from eval.tables import Table, table_lines
from eval.vectors import Loading
from retriever.errors import ConfigError
from retriever.rerankers.cross.folder import KIND as CROSS_ENCODER
from retriever.rerankers.head.folder import KIND as HEAD
from retriever.rerankers.head.folder import HeadReranker
from retriever.rerankers.head.training import TrainedHead
from retriever.rerankers.manifest import check_target
from retriever.training.settings import Epoch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class RerankerSettings:
    """How a head on frozen vectors is trained.

    Attributes:
        plan: the head, and its training.
        encoder: text form; empty for the bundled model, or for the encoder of an index.
        loading: where models come from, and where vectors are cached.
        data: how the set is read and divided.
        seeds: number of heads that are trained; the best one on dev is saved.

    Raises:
        ConfigError: fewer than 1 seed.
    """

    plan: HeadPlan = field(default_factory=HeadPlan)
    encoder: str = ""
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    seeds: int = 3

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ConfigError(f"seeds: expected 1 or more, found {self.seeds}")


@dataclass(frozen=True, slots=True, eq=False)
class FittedReranker:
    """A head that was trained with several seeds, of which the best one on dev was saved.

    Attributes:
        folder: where it was saved.
        trained: one for each seed.
        best: the number of the seed that was saved.
    """

    folder: Path
    trained: tuple[TrainedHead, ...]
    best: int

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "output": str(self.folder),
            "saved_seed": self.best,
            "seeds": [
                {
                    "best_epoch": one.best,
                    "dev_map": one.curve[one.best].dev,
                    "curve": [asdict(epoch) for epoch in one.curve],
                }
                for one in self.trained
            ],
        }

    def text(self) -> str:
        """The learning curves, averaged over the seeds that have as many epochs, and the best."""
        rows = []
        for number in range(max(len(one.curve) for one in self.trained)):
            epochs = [one.curve[number] for one in self.trained if number < len(one.curve)]
            losses = [epoch.loss for epoch in epochs if epoch.loss is not None]
            loss = f"{fmean(losses):.4f}" if losses else ""
            rows.append((str(number), str(len(epochs)), loss, _mean([one.dev for one in epochs])))
        table = Table(("epoch", "seeds", "loss", "dev AP"), tuple(rows))
        best = [one.curve[one.best].dev for one in self.trained]
        before = self.trained[0].curve[0].dev
        return "\n".join(
            [
                *table_lines(table),
                f"dev AP {_mean(best)} at the best epochs; {percent(before)} before training",
                f"{self.folder}: seed {self.best}, after epoch {self.trained[self.best].best}",
            ]
        )

    def figure(self) -> Figure:
        """The learning curves."""
        curves = [tuple(epoch.dev for epoch in one.curve) for one in self.trained]
        return learning_figure({self.folder.name: curves})


@dataclass(frozen=True, slots=True)
class CrossEncoderSettings:
    """How a cross-encoder is fine-tuned.

    Attributes:
        plan: the transformer, and its training.
        loading: where the transformer comes from.
        data: how the set is read and divided.
    """

    plan: CrossPlan = field(default_factory=CrossPlan)
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)


@dataclass(frozen=True, slots=True)
class FittedCrossEncoder:
    """A cross-encoder that was fine-tuned and saved.

    Attributes:
        folder: where it was saved.
        curve: all epochs.
        kept: the epoch whose weights were saved.
    """

    folder: Path
    curve: tuple[Epoch, ...]
    kept: Epoch

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "output": str(self.folder),
            "kept_epoch": self.kept.epoch,
            "dev_map": self.kept.dev,
            "curve": [asdict(one) for one in self.curve],
        }

    def text(self) -> str:
        """The learning curve, and the epoch that was saved."""
        rows = tuple(
            (
                str(one.epoch),
                f"{one.loss:.4f}" if one.epoch else "",
                f"{one.active:.3f}" if one.epoch else "",
                percent(one.dev),
            )
            for one in self.curve
        )
        table = Table(("epoch", "loss", "active", "dev AP"), rows)
        saved = f"{self.folder}: dev AP {percent(self.kept.dev)} after epoch {self.kept.epoch}"
        # Earlier releases did not score the untrained model.
        if self.curve[0].epoch == 0:
            saved += f"; {percent(self.curve[0].dev)} before training"
        return "\n".join([*table_lines(table), saved])

    def figure(self) -> Figure:
        """The learning curve."""
        curve = tuple(one.dev for one in self.curve)
        return learning_figure({self.folder.name: (curve,)}, first=self.curve[0].epoch)


def fit_reranker(
    questions: Questions,
    folder: Path,
    settings: RerankerSettings | None = None,
    *,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> FittedReranker:
    """Train a head on the vectors of training questions and their passages, and save the best one.

    Vectors stay as they are and are encoded once. Of each seed the epoch with the best AP on dev is
    kept, the untrained head included.

    Args:
        questions: a folder, or splits by their names.
        folder: where the reranker is saved.
        settings: how it is trained; None takes the defaults.
        progress: of long stages.
        notify: is called with lines that a person should read.

    Raises:
        ConfigError: the folder holds something else.
        BadInputError: there is nothing to train on or to choose on.
        What `rank_systems` raises of reading and loading.
    """
    settings = settings or RerankerSettings()
    check_target(folder, HEAD)
    plan = settings.plan
    # Only to open the data: the training split takes the place of the split to rank.
    opened = QASettings(
        encoder=settings.encoder,
        loading=settings.loading,
        data=settings.data,
        split=settings.data.train_split,
    )
    with open_resources(questions, opened, progress, notify) as resources:
        train = resources.training_set(plan.training.sampling.negatives)
        encoder = resources.encoder()
        vectors = training_vectors(encoder, train, settings.loading.cache, progress)
        dev = resources.pairs(resources.dev.questions)
        name = f"{plan.head.interaction}:{plan.head.head}"
        advance = progress(f"training {name}", settings.seeds)
        trained = []
        for seed in range(settings.seeds):
            trained.append(fit_head(plan.seeded(seed), vectors, train.pools, dev, resources.dev))
            advance(1)
    scores = [one.curve[one.best].dev for one in trained]
    best = scores.index(max(scores))
    data = {"data": resources.questions.name, "system": name}
    HeadReranker.of(encoder.spec, trained[best], data).save(folder)
    return FittedReranker(folder, tuple(trained), best)


def fit_cross_encoder(
    questions: Questions,
    folder: Path,
    settings: CrossEncoderSettings | None = None,
    *,
    restart: bool = False,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> FittedCrossEncoder:
    """Fine-tune a cross-encoder on training questions and their passages, and save it.

    Interrupted, the same call resumes from the last checkpoint.

    Args:
        questions: a folder, or splits by their names.
        folder: where the cross-encoder is saved.
        settings: how it is fine-tuned; None takes the defaults.
        restart: start over instead of resuming.
        progress: of long stages.
        notify: is called with lines that a person should read.

    Raises:
        ConfigError: the folder holds something else or the result of another training, or a
            checkpoint is of another one.
        BadInputError: there is nothing to train on or to choose on.
        What `rank_systems` raises of reading and loading.
    """
    settings = settings or CrossEncoderSettings()
    check_target(folder, CROSS_ENCODER)
    opened = QASettings(
        loading=settings.loading, data=settings.data, split=settings.data.train_split
    )
    with open_resources(questions, opened, progress, notify) as resources:
        curve, kept = fit_and_write(
            resources.training_set(
                settings.plan.training.sampling.negatives,
                unanswered=settings.plan.training.pointwise,
            ),
            resources.dev,
            settings.plan,
            folder,
            settings.loading,
            restart=restart,
            progress=progress,
            notify=notify,
        )
    return FittedCrossEncoder(folder, curve, kept)


def _mean(values: Sequence[float]) -> str:
    """Mean and standard deviation, times 100."""
    return percent(fmean(values), stdev(values) if len(values) > 1 else None)
