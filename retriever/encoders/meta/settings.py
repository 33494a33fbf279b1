"""Settings of meta-embeddings, each declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from retriever.errors import ConfigError
from retriever.settings import Checked, check_settings, setting

Method = Literal["conc", "avg", "svd", "gcca", "sup", "unsup"]
Level = Literal["word", "sentence"]
WordPooling = Literal["mean", "max"]
# Texts of a corpus that a method reads. Training keeps their words on disk.
SAMPLE = {"svd": 100_000, "gcca": 100_000, "unsup": 20_000}


@dataclass(frozen=True, slots=True)
class UnsupSettings(Checked):
    """Settings of training `sup` and `unsup`. A setting marked `unsup` has no effect on `sup`.

    Takahashi and Bollegala (2022, Sec. 4.4) use SGD and start all parameters between -1 and 1.
    There, projections are far from orthogonal and the first steps diverge. Here, projections start
    orthogonal at random, weights start equal, and the optimizer is AdamW, as in the authors' code.

    The margin decides whether weights measure quality. With equal weights, orthogonal vectors have
    a squared distance of 2. A margin up to 1 pushes hardly any pair. Weights then equalize the
    lengths of projections, and a noisy source with short projections gets more. A margin of 2
    pushes nearly all pairs, and any unequal weights increase distances. Between the two, the
    noisier of two copies of a signal gets less.

    Raises:
        ConfigError: a value is out of range.
    """

    weights: bool = setting(
        True,
        "sup and unsup: learn a weight for each source encoder, or weight all of them equally.",
        source="Eq. 2, Table 2",
        section="Training",
    )
    epochs: int = setting(50, "sup and unsup: maximum number of epochs.", low=1)
    patience: int = setting(
        5, "sup and unsup: stop after this many epochs without improvement.", low=1
    )
    learning_rate: float = setting(
        1e-3, "sup and unsup: learning rate of the optimizer.", low=0, low_open=True
    )
    weight_decay: float = setting(1e-4, "sup and unsup: weight decay of AdamW.", low=0)
    margin: float = setting(
        1.5, "unsup: squared distance from which on a pushed pair has no loss.", low=0
    )


@dataclass(frozen=True, slots=True)
class MetaSettings:
    """Settings of a meta-embedding.

    `conc` and `avg` need no corpus. `svd`, `gcca` and `unsup` are fitted on one. `sup` is trained
    on scored pairs.

    Raises:
        ConfigError: a value is impossible, or the method does not use it.
    """

    method: Method = setting("svd", "How the encoders are combined.")
    dimensions: int | None = setting(
        None,
        "Number of dimensions of the result; fixed for conc and avg.",
        low=1,
        default_text="those of the widest source",
        section="Training",
    )
    pooling: WordPooling | None = setting(
        None,
        "How word vectors become one vector.",
        default_text="max for sup and unsup, else mean",
        section="Training",
    )
    level: Level | None = setting(
        None,
        "Combine word vectors, or vectors of whole texts.",
        default_text="word if every source has word vectors",
        section="Training",
    )
    regularization: float | None = setting(
        None,
        "gcca: regularization of the covariance of each source encoder, as a multiple of its mean "
        "variance.",
        low=0,
        default_text="10",
    )
    sample: int | None = setting(
        None,
        "Maximum number of texts of CORPUS, drawn at random.",
        low=1,
        default_text="100000, for unsup 20000",
    )
    seed: int = setting(0, "Random seed of samples and initial weights.", low=0, section="Training")
    training: UnsupSettings = field(default_factory=UnsupSettings)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.method in ("conc", "avg") and self.dimensions is not None:
            whose = "the sum of" if self.method == "conc" else "the greatest of"
            raise ConfigError(f"dimensions: {self.method} has {whose} its sources'; leave it out")
        if self.method != "gcca" and self.regularization is not None:
            raise ConfigError("regularization: it belongs to gcca; leave it out")
        if self.method not in SAMPLE and self.sample is not None:
            raise ConfigError(f"sample: {self.method} reads no corpus; leave it out")

    @property
    def word_pooling(self) -> WordPooling:
        """The pooling of words, by default chosen by the method."""
        return self.pooling or ("max" if self.method in ("sup", "unsup") else "mean")
