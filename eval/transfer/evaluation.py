"""Scoring encoders by a classifier on their vectors: transfer tasks, probing tasks, and the choice
of layers for a task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal

from eval.datasets.classification import ClassificationTask, read_classification, read_probing
from eval.metrics.significance import Resampling
from eval.progress import Done, Progress, silent
from eval.sentences.comparison import compare_accuracies
from eval.sentences.experiment import Value, check_baseline, load_sets, score_states
from eval.sentences.result import EncoderScore, LayerGrid, SentenceResult, SetScores
from eval.transfer.batched_mlp import MLPs
from eval.transfer.classifiers import Classifier, LogisticRegressions
from eval.transfer.data import (
    classification_data,
    task_facts,
    task_texts,
    tested_columns,
    without_features,
)
from eval.transfer.layer_search import LayerTransferSettings, layer_divisions
from eval.transfer.protocols import TransferProtocol, trainings
from eval.transfer.scores import (
    ACCURACY,
    ClassificationScore,
    effective_seeds,
    score_classification,
    unseen_notes,
)
from eval.transfer.searched_layers import SearchedModels, searched_sets
from eval.vectors import (
    LayerEncoders,
    Loading,
    SentenceEncoders,
    TextVectors,
    fitted_remark,
    named_encoders,
)
from retriever.encoders.settings import Pooling
from retriever.errors import ConfigError, require_classifiers

ClassifierName = Literal["lr", "lr-senteval", "mlp"]
CLASSIFIERS: dict[ClassifierName, str] = {
    "lr": "logistic regression on scaled features",
    "lr-senteval": "logistic regression on features as they are, with SentEval's strengths",
    "mlp": "an MLP with 50 sigmoid units, 4 epochs of Adam (SBERT-WK)",
}


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """How classification tasks are scored.

    Attributes:
        classifier: ``lr``, the logistic regression of the protocol; ``lr-senteval``, that of
            SentEval's code; or ``mlp``.
        protocol: how it is trained and tested.
        seeds: number of random seeds.
        layer_search: choose layers for each task as BERT-LC does, and compare them with the last
            layer, the last four and random ones; None scores the encoders.
        train_shares: shares of the training examples to repeat the layer search with, see
            `layer_divisions`; each is a set of its own in the result.
        poolings: score every hidden state of each encoder's model with these poolings, instead of
            the encoder's own vectors; empty scores the encoders.
        baseline: the encoder that the others are compared with; None takes the first. Of a layer
            search it is a model with ``::last``, which is the default, or ``::last4``.
        resampling: of p-values.
        loading: where models come from, and where vectors are cached.

    Raises:
        ConfigError: settings that contradict each other.
    """

    classifier: ClassifierName = "lr"
    protocol: TransferProtocol = field(default_factory=TransferProtocol)
    seeds: int = 5
    layer_search: LayerTransferSettings | None = None
    train_shares: tuple[float, ...] = (1.0,)
    poolings: tuple[Pooling, ...] = ()
    baseline: str | None = None
    resampling: Resampling = field(default_factory=Resampling)
    loading: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        if self.classifier not in CLASSIFIERS:
            raise ConfigError(
                f"classifier: expected {', '.join(CLASSIFIERS)}, found {self.classifier!r}"
            )
        if self.protocol.name == "bert-lc" and self.classifier != "lr":
            raise ConfigError(
                f"classifier: found {self.classifier}, but bert-lc has a classifier of its own, "
                "for which no strength of regularization is chosen; leave it out"
            )
        if self.poolings and self.baseline is not None:
            raise ConfigError(
                "baseline: it compares encoders, but every hidden state is scored; leave it out"
            )
        if len(set(self.train_shares)) < max(len(self.train_shares), 1):
            raise ConfigError(
                "train-share: expected one or several different shares, found "
                f"{', '.join(f'{one:g}' for one in self.train_shares) or 'none'}"
            )
        if self.layer_search is None:
            return
        if self.poolings:
            raise ConfigError(
                "layer search: it chooses among the hidden states, so they are not scored one by "
                "one; leave out --layers-search or --by-layer"
            )
        if self.classifier != "lr":
            raise ConfigError(
                f"classifier: found {self.classifier}, but a layer search is scored by BERT-LC's "
                "logistic regression; leave it out"
            )

    def make(self) -> Classifier:
        """A new classifier; raises MissingExtraError if scikit-learn is not installed."""
        if self.classifier == "mlp":
            return MLPs()
        if self.classifier == "lr-senteval":
            return LogisticRegressions("senteval")
        return LogisticRegressions("bert-lc" if self.protocol.name == "bert-lc" else "scaled")


def score_transfer(
    tasks: Sequence[str | Path | ClassificationTask],
    encoders: Sequence[str],
    settings: TransferSettings | None = None,
    *,
    progress: Progress = silent,
    command: str = "",
) -> SentenceResult:
    """Train and test a classifier on the vectors of encoders.

    Args:
        tasks: folders or files, see `read_classification`, or tasks that are loaded; at least one.
        encoders: text forms; those that are fitted are fitted on all texts of each task, without
            labels.
        settings: how they are scored; None takes the defaults.
        progress: of long stages.
        command: reproduces the result, for its report.

    Raises:
        ConfigError: an encoder or the baseline is unknown, or two tasks have the same name.
        SourceError: a task cannot be read.
        BadInputError: a task lacks a split, or has only one class or too few examples.
        MissingExtraError: scikit-learn is not installed.
        TypeError: one string instead of several.
        What `Encoder.load` raises.
    """
    read = load_sets("tasks", tasks, read_classification)
    return _score_tasks("transfer", read, encoders, settings, progress, command)


def score_probing(
    tasks: Sequence[str | Path | ClassificationTask],
    encoders: Sequence[str],
    settings: TransferSettings | None = None,
    *,
    progress: Progress = silent,
    command: str = "",
) -> SentenceResult:
    """Train and test a classifier that predicts a linguistic property from the vectors of encoders.

    Args:
        tasks: files, see `read_probing`, or tasks that are loaded; at least one.
        encoders: see `score_transfer`, as the others.
        settings: see there.
        progress: see there.
        command: see there.

    Raises:
        What `score_transfer` raises.
    """
    read = load_sets("tasks", tasks, read_probing)
    return _score_tasks("probe", read, encoders, settings, progress, command)


def _score_tasks(
    kind: Literal["transfer", "probe"],
    tasks: Sequence[ClassificationTask],
    encoders: Sequence[str],
    settings: TransferSettings | None,
    progress: Progress,
    command: str,
) -> SentenceResult:
    settings = settings or TransferSettings()
    names = named_encoders(encoders)
    require_classifiers()
    for task in tasks:
        # Raises what it lacks before anything is encoded.
        without_features(task)
    sets: list[SetScores] = []
    grids: list[LayerGrid] = []
    baseline: str | None = None
    if settings.layer_search is not None:
        searched = SearchedModels(names, settings.loading)
        labels = [label for name in names for label in searched.labels(name).values()]
        baseline = check_baseline(settings.baseline, labels)
        for task, share in product(tasks, settings.train_shares):
            # Raises what a division lacks before anything is encoded.
            deque(layer_divisions(without_features(task), settings.layer_search, share), maxlen=0)
        sets = [
            one
            for task in tasks
            for one in searched_sets(
                task,
                searched,
                settings.layer_search,
                settings.train_shares,
                baseline,
                settings.resampling,
                progress,
            )
        ]
    elif settings.poolings:
        layers = LayerEncoders(names, settings.poolings, settings.loading)
        grids = [grid for task in tasks for grid in _grids(task, layers, settings, progress)]
    else:
        baseline = check_baseline(settings.baseline, names)
        loaded = SentenceEncoders(names, settings.loading)
        sets = [_set(task, loaded, settings, baseline, progress) for task in tasks]
    facts, remarks = _described(settings)
    if sets:
        resampling = settings.resampling
        facts["resamples"] = f"{resampling.resamples:,}, seed {resampling.seed}"
    title = "Transfer" if kind == "transfer" else "Probing"
    return SentenceResult(
        kind=kind,
        title=f"{title}: {', '.join(task.name for task in tasks)}",
        settings=facts,
        remarks=(*remarks, *fitted_remark(names, "all of its texts, without labels")),
        measures=(ACCURACY,),
        sets=tuple(sets),
        grids=tuple(grids),
        baseline=baseline,
        device=settings.loading.device,
        command=command,
    )


def _described(settings: TransferSettings) -> tuple[dict[str, str], tuple[str, ...]]:
    """The facts and the remarks of a report on these settings."""
    search, shares = settings.layer_search, settings.train_shares
    if search is not None:
        finalists = (
            f", then by the logistic regression of {search.finalists} finalists"
            if search.finalists > 1
            else ""
        )
        return {
            "protocol": f"bert-lc: {_counted(search.outer)} into 85% to learn from and 15% "
            "to test on",
            **(
                {"training": f"{', '.join(f'{one:g}' for one in shares)} of the 85%"}
                if shares != (1,)
                else {}
            ),
            "choice": f"sets of up to {search.max_layers or 'all'} layers, on "
            f"{_counted(search.inner)} of the 85%, by a ridge classifier{finalists}",
        }, (
            "accuracies of BERT-LC's logistic regression on layers that were chosen without the "
            "tested examples, on the last layer, on the last four, and on as many random layers as "
            "were chosen",
            "error reduction: (A - B) / (1 - B) for accuracies A, and B of the model's last layer",
        )
    classifier, protocol = CLASSIFIERS[settings.classifier], settings.protocol
    said = f"senteval: the splits of each set, or {protocol.folds} nested folds"
    if protocol.name == "bert-lc":
        classifier = "logistic regression by SAGA with C = 10 (BERT-LC)"
        said = f"bert-lc: {_counted(protocol.outer)} into 85% to train on and 15% to test on"
    return {
        "classifier": f"{settings.classifier}: {classifier}",
        "protocol": said,
        "seeds": "1" if settings.seeds == 1 else f"{settings.seeds}, or 1 where nothing is random",
    }, (f"accuracies of {classifier}; {said}",)


def _counted(number: int) -> str:
    return "1 division" if number == 1 else f"{number} divisions"


def _set(
    task: ClassificationTask,
    encoders: SentenceEncoders,
    settings: TransferSettings,
    baseline: str,
    progress: Progress,
) -> SetScores:
    """Every encoder on one task."""
    texts = task_texts(task)
    done = progress(f"{task.name}: vectors", len(texts) * len(encoders.names))
    trained: Done | None = None
    scores: dict[str, ClassificationScore] = {}
    notes: dict[str, str] = {}
    cut: dict[str, int] = {}
    for one in encoders.vectors(texts, texts, done):
        trained = trained or progress(
            f"{task.name}: classifiers", _steps(task, settings) * len(encoders.names)
        )
        classifier = settings.make()
        scores[one.name] = score_classification(
            classification_data(task, one.vectors),
            classifier,
            settings.protocol,
            settings.seeds,
            trained,
        )
        notes[one.name] = _note(scores[one.name], classifier)
        cut[one.name] = one.cut
    values = compare_accuracies(
        {name: (one.accuracy, one.spread) for name, one in scores.items()},
        {name: one.correct for name, one in scores.items()},
        baseline,
        settings.resampling,
    )
    tested = next(iter(scores.values())).tested
    return SetScores(
        name=task.name,
        facts=task_facts(task, tested),
        texts=len(texts),
        examples=tested_columns(task, tested),
        scores=tuple(
            EncoderScore(
                encoder=name,
                cut=cut[name],
                values={ACCURACY: values[name]},
                extra={} if one.f1 is None else {"F1": one.f1},
                note=notes[name],
                details={
                    "seeds": [asdict(seed) for seed in one.seeds],
                    "f1": one.f1,
                    "f1_spread": one.f1_spread,
                    "unseen": one.unseen,
                },
                examples=one.correct,
            )
            for name, one in scores.items()
        ),
    )


def _grids(
    task: ClassificationTask, layers: LayerEncoders, settings: TransferSettings, progress: Progress
) -> Iterator[LayerGrid]:
    """Every hidden state and pooling on one task."""

    def score(vectors: TextVectors, done: Done) -> list[Value]:
        data, protocol = classification_data(task, vectors), settings.protocol
        found = score_classification(data, settings.make(), protocol, settings.seeds, done)
        return [(found.accuracy, found.spread)]

    stage = ("classifiers", _steps(task, settings))
    return score_states(task.name, task_texts(task), layers, (ACCURACY,), score, stage, progress)


def _steps(task: ClassificationTask, settings: TransferSettings) -> int:
    """Number of classifiers that are trained for one encoder."""
    data, classifier = without_features(task), settings.make()
    seeds = effective_seeds(data, classifier, settings.protocol, settings.seeds)
    return seeds * trainings(data, classifier, settings.protocol)


def _note(score: ClassificationScore, classifier: Classifier) -> str:
    notes = []
    if isinstance(classifier, LogisticRegressions) and classifier.unconverged:
        notes.append(f"{classifier.unconverged:,} fits reached the maximum number of steps")
    return "; ".join([*notes, *unseen_notes(score.unseen)])
