"""The settings of an evaluation on a question set, and of training on one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from eval.metrics.significance import Resampling
from eval.vectors import Loading
from retriever import Store
from retriever.encoders.models.finding import DEFAULT_MODEL
from retriever.encoders.settings import Dtype
from retriever.errors import ConfigError
from retriever.rerankers.cross.settings import CrossTrainingSettings
from retriever.rerankers.head.settings import HeadSettings
from retriever.rerankers.head.training import HeadTrainingSettings
from retriever.search import BM25Settings
from retriever.search.fusion import FusionSettings

SHORTEST_PAIR = 16


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """How a question set is read and divided.

    Attributes:
        form: of the files; None detects it.
        variant: of a set that has several; None takes the default.
        train_split: the split to train on.
        dev_split: the split to choose epochs and weights on.
        dev_share: hold out this share of the training questions instead of reading `dev_split`.
        index: for a set without pools of candidates: an index of its corpus, which is
            created or completed where necessary.
        depth: for such a set: the number of hits per question.
        without: other sets; what overlaps with their dev and test splits is not trained on.

    Raises:
        ConfigError: a depth below 1.
    """

    form: str | None = None
    variant: str | None = None
    train_split: str = "train"
    dev_split: str = "dev"
    dev_share: float | None = None
    index: Path | Store | None = None
    depth: int = 100
    without: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"depth: expected 1 or more, found {self.depth}")


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head to train on frozen vectors, and how.

    Attributes:
        head: interaction, and linear or MLP.
        training: loss, optimizer, epochs, seed.
    """

    head: HeadSettings = field(default_factory=HeadSettings)
    training: HeadTrainingSettings = field(default_factory=HeadTrainingSettings)

    def of(self, interaction: str, head: str) -> HeadPlan:
        """The same training of another head, by the names in `HeadSettings`."""
        changed = replace(self.head, interaction=interaction, head=head)  # type: ignore[arg-type]
        return replace(self, head=changed)

    def seeded(self, seed: int) -> HeadPlan:
        """The same with another seed."""
        return replace(self, training=replace(self.training, seed=seed))


@dataclass(frozen=True, slots=True)
class CrossPlan:
    """A cross-encoder to fine-tune, and how.

    Attributes:
        model: a transformer's folder, bundled name or hub id.
        max_length: window in word pieces, of question and passage together.
        training: loss, optimizer, epochs, seed.

    Raises:
        ConfigError: the window is too short for a pair.
    """

    model: str = DEFAULT_MODEL
    max_length: int = 160
    training: CrossTrainingSettings = field(default_factory=CrossTrainingSettings)

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST_PAIR:
            raise ConfigError(
                f"max-length: expected {SHORTEST_PAIR} or more, found {self.max_length}"
            )

    def of(self, loss: str) -> CrossPlan:
        """The same training with a loss by its name; only the hinge loss keeps the margin."""
        margin = self.training.margin if loss == "hinge" else 1.0
        changed = replace(self.training, loss=loss, margin=margin)  # type: ignore[arg-type]
        return replace(self, training=changed)

    def seeded(self, seed: int) -> CrossPlan:
        """The same with another seed."""
        return replace(self, training=replace(self.training, seed=seed))


MEASURES = ("AP", "RR", "P@1", "P@5", "P@10", "R@1", "R@5", "R@10", "R@100", "nDCG@10")
# What Ma et al. (2019, Table 3) call R@k on Quasar-T and SearchQA, first.
ANSWER_MEASURES = ("Success@1", "Success@5", "Success@10", "AP", "RR", "P@1")


@dataclass(frozen=True, slots=True)
class QASettings:
    """How systems are ranked on a question set.

    Attributes:
        encoder: text form of the encoder of systems that name none; empty for the bundled model, or
            for the encoder of an index.
        loading: where models come from, and where vectors are cached.
        data: how the set is read and divided.
        split: the split to rank.
        measures: names, see `eval.metrics.measures`; None takes `MEASURES`, or `ANSWER_MEASURES`
            where passages are relevant because they contain an answer.
        baseline: the system that the others are compared with; None takes the first.
        without_positive: whether questions without a relevant passage are left out or count as
            zero.
        resampling: of tests.
        seeds: number of times that each head is trained, with seeds 0, 1, ...
        cross_seeds: number of times that each cross-encoder is fine-tuned.
        models: a folder that keeps cross-encoders; None keeps none.
        head: training of heads; interaction, head and seed are the system's.
        cross: training of cross-encoders; the seed is the system's.
        dtype: number format that cross-encoders score in.
        fusion: of ``hybrid``.
        bm25: of ``bm25`` and ``hybrid``.
        top: number of questions in the report for each system on which it differs most from the
            baseline by the first measure.

    Raises:
        ConfigError: fewer than 1 seed.
    """

    encoder: str = ""
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    split: str = "test"
    measures: tuple[str, ...] | None = None
    baseline: str | None = None
    without_positive: Literal["exclude", "count"] = "exclude"
    resampling: Resampling = field(default_factory=Resampling)
    seeds: int = 3
    cross_seeds: int = 1
    models: Path | None = None
    head: HeadPlan = field(default_factory=HeadPlan)
    cross: CrossPlan = field(default_factory=CrossPlan)
    dtype: Dtype = "float32"
    fusion: FusionSettings = field(default_factory=FusionSettings)
    bm25: BM25Settings = field(default_factory=BM25Settings)
    top: int = 3

    def __post_init__(self) -> None:
        for name in ("seeds", "cross_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {getattr(self, name)}")
