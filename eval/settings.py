"""Settings of experiments, each declared once: for the library and for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from retriever.encoders import DEFAULT_MODEL, EncoderSettings, Pooling, parse_encoder
from retriever.errors import ConfigError
from retriever.settings import Checked, check_settings, setting
from retriever.training import CrossTrainingSettings

if TYPE_CHECKING:
    from retriever import Store
    from retriever.encoders import Encoder
else:
    # Help pages read the types of fields; they import no stores for it.
    Store = Any

PROBING_TASKS = ("sentlen", "wc", "bshift")
QUESTION_KINDS = ("title", "heading", "sentence")
Aggregation = Literal["all", "mean", "wmean"]
ClassifierName = Literal["lr", "lr-senteval", "mlp"]
ProtocolName = Literal["senteval", "bert-lc"]
_BETWEEN_0_AND_1: dict[str, Any] = {"low": 0, "high": 1, "low_open": True, "high_open": True}


def _check_names(key: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = set(names) - set(allowed)
    if unknown or not names:
        rejected = ", ".join(sorted(unknown)) or "none"
        raise ConfigError(f"{key}: expected {', '.join(allowed)}, found {rejected}")


@dataclass(frozen=True, slots=True)
class Loading:
    """Where models come from, and where vectors are cached.

    Attributes:
        device: a torch device; None takes a GPU if there is one.
        download: download models that are not in the local hub cache.
        cache: a folder that keeps vectors, see `default_cache`; None keeps none.
    """

    device: str | None = None
    download: bool = False
    cache: Path | None = None

    def load(self, encoder: str | EncoderSettings) -> Encoder:
        """Load an encoder by its text form or settings; raises what `Encoder.load` raises."""
        from retriever.encoders import Encoder

        return Encoder.load(encoder, device=self.device, download=self.download)

    def load_together(self, encoders: Sequence[str]) -> list[Encoder]:
        """Load encoders; those of the same weights and number format share forward passes."""
        from retriever.encoders import Encoder, load_encoder
        from retriever.encoders.registry import LoadContext
        from retriever.encoders.transformer.sharing import BackboneSharing

        context = LoadContext(self.device, self.download, sharing=BackboneSharing())
        settings_of_encoders = map(parse_encoder, encoders)
        return [Encoder(*load_encoder(settings, context)) for settings in settings_of_encoders]


@dataclass(frozen=True, slots=True)
class Resampling(Checked):
    """Settings of p-values, and of intervals of correlations and of choices of layers."""

    resamples: int = setting(
        10_000,
        "Number of resamples for tests and for confidence intervals of correlations.",
        low=100,
    )
    seed: int = setting(0, "Random seed of the resamples.", low=0)


@dataclass(frozen=True, slots=True)
class QuestionSettings(Checked):
    """Settings of reading and dividing a question set.

    Attributes:
        index: an index of the corpus of a set without pools; it is created or completed.
        without: other sets; questions that overlap with their dev and test splits are not trained
            on.
    """

    form: str | None = setting(
        None, "Format of the data set.", default_text="detected from its files", section="Input"
    )
    variant: str | None = setting(
        None,
        "Variant of a data set that has several: clean or raw, or a pool size.",
        section="Input",
    )
    train_split: str = setting("train", "Split to train on.", section="Training")
    dev_split: str = setting("dev", "Split that chooses epochs and weights.")
    dev_share: float | None = setting(
        None,
        "Use this share of the training questions in place of the dev split.",
        section="Training",
        **_BETWEEN_0_AND_1,
    )
    index: Path | Store | None = None
    depth: int = setting(
        100,
        "Number of hits of --index per question, for a data set without candidate pools.",
        low=1,
    )
    without: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class GateSettings(Checked):
    """Settings of the gate: measures of a candidate, and accepted drops."""

    margin: float = setting(
        1.0,
        "Accepted drop of a mean, in points out of 100.",
        low=0,
        high=100,
        low_open=True,
        section="Ranking",
    )
    top: int = setting(
        5, "Number of questions with the largest loss to list per measure.", low=0, section="Output"
    )
    level: float = setting(
        0.05, "Maximum probability of a false alarm, and of a wrong pass.", low=0.001, high=0.5
    )
    measures: tuple[str, ...] = ("nDCG@10", "R@100")
    resampling: Resampling = field(default_factory=Resampling)


@dataclass(frozen=True, slots=True)
class CalibrationSettings(Checked):
    """Settings of learning and testing probabilities of relevance, see `calibrate`."""

    false_answers: float = setting(
        0.05,
        "Accepted share of questions without a relevant document that get an answer.",
        section="Training",
        **_BETWEEN_0_AND_1,
    )
    questions: int = setting(2_000, "Maximum number of questions, drawn at random.", low=100)
    folds: int = setting(5, "Number of cross-validation folds.", low=2)
    resamples: int = setting(
        1000, "Number of bootstrap resamples for confidence intervals of areas.", low=100
    )
    seed: int = setting(0, "Random seed of the folds and resamples.", low=0)


@dataclass(frozen=True, slots=True)
class CrossPlan:
    """A cross-encoder to fine-tune, and how.

    Attributes:
        model: a transformer's folder, bundled name or hub id.
        training: margin, optimizer, epochs, seed.
    """

    model: str = DEFAULT_MODEL
    max_length: int = setting(
        160, "Maximum number of tokens of question and passage together.", low=16
    )
    training: CrossTrainingSettings = field(default_factory=CrossTrainingSettings)

    def __post_init__(self) -> None:
        check_settings(self, keys=True)


@dataclass(frozen=True, slots=True)
class ProbingSettings:
    """Which probing sets are made, and how.

    Attributes:
        tasks: some of "sentlen", "wc" and "bshift".
    """

    tasks: tuple[str, ...] = PROBING_TASKS
    words: int = setting(
        1_000, "Number of words for wc; a small corpus needs fewer words.", low=2, section="Output"
    )
    seed: int = setting(0, "Random seed of all samples.", low=0, section="Output")

    def __post_init__(self) -> None:
        check_settings(self)
        _check_names("task", self.tasks, PROBING_TASKS)

    @property
    def passes(self) -> int:
        """Number of times that the corpus is read: once for sentlen, twice for each other set."""
        return sum(1 if task == "sentlen" else 2 for task in self.tasks)


@dataclass(frozen=True, slots=True)
class MadeQuestionSettings:
    """Which questions are made from a corpus, and how many.

    Attributes:
        kinds: some of "title", "heading" and "sentence", of which there are equally many questions
            as far as the corpus allows.
    """

    kinds: tuple[str, ...] = QUESTION_KINDS
    questions: int = setting(600, "Maximum number of questions.", low=2, section="Output")
    documents: int = setting(
        100_000, "Maximum number of documents, drawn at random.", low=20, section="Output"
    )
    seed: int = setting(0, "Random seed of all samples.", low=0, section="Output")

    def __post_init__(self) -> None:
        check_settings(self)
        _check_names("kind", self.kinds, QUESTION_KINDS)


@dataclass(frozen=True, slots=True)
class TuneSettings(Checked):
    """Settings of `tune`: budget, limits, choices and tests.

    Attributes:
        encoders: text forms of the encoders to choose from; the first is the default, the bundled
            model if there is none.
        measure: the measure that settings are chosen by; None takes nDCG@10, or AP where questions
            have pools.
        queries, qrels: files of questions and judgments of a corpus or index; None makes questions.
        rerank: a cross-encoder, as `load_reranker` takes it, which is tried too.
    """

    encoders: tuple[str, ...] = ()
    measure: str | None = None
    queries: Path | None = None
    qrels: Path | None = None
    rerank: str | None = None
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    resampling: Resampling = field(default_factory=Resampling)
    minutes: float = setting(
        30.0, "Maximum time in minutes.", low=0, low_open=True, section="Ranking"
    )
    max_latency: float | None = setting(
        None,
        "Maximum time of a question in milliseconds, in a running process.",
        low=0,
        low_open=True,
        default_text="no limit",
        section="Ranking",
    )
    max_size: float | None = setting(
        None,
        "Maximum size of the index in megabytes.",
        low=0,
        low_open=True,
        default_text="no limit",
        section="Ranking",
    )
    margin: float = setting(
        1.0, "Points that simpler settings may lose.", low=0, low_open=True, high=100
    )
    folds: int = setting(
        5, "Number of cross-validation folds for questions without a test split.", low=2
    )
    questions: int = setting(2_000, "Maximum number of questions of a split.", low=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceSettings:
    """Settings that all experiments on sentences have.

    Attributes:
        poolings: score every hidden state of each encoder's model with these poolings instead;
            empty scores the encoders.
        baseline: the encoder that the others are compared with; None takes the first. A layer
            search takes a model with ``::last``, the default, or ``::last4``.
    """

    poolings: tuple[Pooling, ...] = ()
    baseline: str | None = None
    resampling: Resampling = field(default_factory=Resampling)
    loading: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.poolings and self.baseline is not None:
            raise ConfigError(
                "baseline: it compares encoders, but every hidden state is scored; leave it out"
            )

    def resampling_fact(self) -> dict[str, str]:
        """Return the fact of a report on intervals and p-values."""
        return {"resamples": f"{self.resampling.resamples:,}, seed {self.resampling.seed}"}


@dataclass(frozen=True, slots=True)
class RelatednessSettings(Checked):
    """Settings of a softmax layer over the vectors of pairs, see `score_relatedness`."""

    seeds: int = setting(5, "Number of training runs of the --supervised layer.", low=1)


@dataclass(frozen=True, slots=True)
class STSSettings(SentenceSettings):
    """Settings of scoring tests of similarity.

    Gao et al. (2021) and Hosseini et al. (2023) take all pairs as one list, SentEval takes means.
    The three aggregations differ by several points.

    Attributes:
        supervised: how a softmax layer is trained over the vectors, with a test as one list; None
            correlates cosines.
    """

    aggregation: Aggregation = setting(
        "all",
        "How to combine the parts of a test: as a single list, by the mean, or by the mean "
        "weighted by pairs.",
        section="Scoring",
    )
    supervised: RelatednessSettings | None = None

    def __post_init__(self) -> None:
        SentenceSettings.__post_init__(self)
        if self.supervised is not None and self.aggregation != "all":
            raise ConfigError(
                f"aggregation: found {self.aggregation}, but the supervised protocol takes all "
                "pairs of a test as one list; leave it out"
            )


@dataclass(frozen=True, slots=True)
class TransferProtocol(Checked):
    """Settings of training and testing a classifier."""

    name: ProtocolName = setting(
        "senteval",
        "senteval: the splits of each set, or nested folds. bert-lc: divisions of the whole set "
        "into 85% and 15%.",
    )
    folds: int = setting(10, "Number of folds of each cross-validation.", low=2)
    outer: int = setting(10, "Number of divisions to test on, for bert-lc.", low=1)


@dataclass(frozen=True, slots=True)
class LayerTransferSettings(Checked):
    """Settings of the search for layers of a task; None tries sets of all sizes."""

    max_layers: int | None = setting(
        4, "Maximum number of layers in a set for --layers-search.", low=1, section="Training"
    )
    outer: int = setting(10, "Number of divisions to test on, for bert-lc.", low=1)
    inner: int = setting(10, "Number of divisions for --layers-search to choose layers on.", low=1)
    seed: int = setting(0, "Random seed of the divisions and of the random layers.", low=0)


@dataclass(frozen=True, slots=True)
class TransferSettings(SentenceSettings):
    """Settings of scoring classification tasks.

    Attributes:
        protocol: how the classifier is trained and tested.
        layer_search: choose layers for each task as BERT-LC does, and compare them with the last
            layer, the last four and random ones; None scores the encoders.
        train_shares: shares, in (0, 1], of the training examples to repeat the layer search with;
            each is a set of its own in the result.
    """

    classifier: ClassifierName = setting(
        "lr",
        "Logistic regression, the classifier of SentEval's code, or an MLP with 50 hidden units.",
        section="Training",
    )
    protocol: TransferProtocol = field(default_factory=TransferProtocol)
    seeds: int = setting(
        5,
        "Number of random seeds; each has its own divisions and training.",
        low=1,
        section="Training",
    )
    layer_search: LayerTransferSettings | None = None
    train_shares: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        SentenceSettings.__post_init__(self)
        if self.protocol.name == "bert-lc" and self.classifier != "lr":
            raise ConfigError(
                f"classifier: found {self.classifier}, but bert-lc always uses its own "
                "classifier; leave it out"
            )
        shares = {share for share in self.train_shares if 0 < share <= 1}
        if len(shares) < max(len(self.train_shares), 1):
            raise ConfigError(
                "train-share: expected one or several different shares above 0, up to 1, found "
                f"{', '.join(f'{share:g}' for share in self.train_shares) or 'none'}"
            )
        if self.layer_search is None:
            return
        if self.poolings:
            raise ConfigError(
                "layer search: it cannot also score every hidden state; leave out --layers-search "
                "or --by-layer"
            )
        if self.classifier != "lr":
            raise ConfigError(
                f"classifier: found {self.classifier}, but a layer search is scored by BERT-LC's "
                "logistic regression; leave it out"
            )


@dataclass(frozen=True, slots=True)
class LayerSearchSettings(Checked):
    """Settings of a layer search.

    Attributes:
        encoder: text form; model, pooling, special tokens, prompts, window and number format count.
            With ``head=yes`` vectors are made for each set. Layers, fusions and a static method are
            refused.
    """

    encoder: str = ""
    loading: Loading = field(default_factory=Loading)
    objective: str | None = setting(
        None,
        "Objective: spearman or pearson for pairs; a measure such as AP, RR or nDCG@10 for "
        "questions.",
        default_text="spearman or AP",
        section="Search",
    )
    protocol: Literal["given", "paper"] = setting(
        "given",
        "Search and test on the data as given, or shuffle and divide the pairs as in the paper.",
        source="Hosseini et al. 2023",
        section="Search",
    )
    split: str | None = setting(
        None, "Split of a folder to search on.", default_text="dev", section="Input"
    )
    test_split: str | None = setting(
        None, "Split of a folder to test the chosen set on.", section="Input"
    )
    shuffles: int = setting(5, "Number of shuffles of --protocol paper.", low=1)
    dev_size: int = setting(350, "Number of pairs that --protocol paper searches on.", low=2)
    max_layers: int | None = setting(
        None, "Maximum number of layers in a set.", low=1, default_text="all", section="Search"
    )
    top: int = setting(10, "Number of best sets to show.", low=1, section="Output")
    resamples: int = setting(
        1000, "Number of resamples for the confidence interval of the gain.", low=100
    )
    seed: int = setting(0, "Random seed of the resamples and shuffles.", low=0)
