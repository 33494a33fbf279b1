"""Many encoders on tasks of classification, transfer or probing, and how sure they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

from eval.datasets.sentences.tasks import ClassificationTask
from eval.sentences.comparison import Resampling, compare_accuracies
from eval.sentences.result import EncoderScore, LayerGrid, SetScores, layer_grid
from eval.transfer.batched_mlp import MLPs
from eval.transfer.classifiers import Classifier
from eval.transfer.data import classification_data, task_texts
from eval.transfer.evaluation import ClassificationScore, effective_seeds, score_classification
from eval.transfer.examples import task_facts, tested_columns, without_features
from eval.transfer.logistic_regression import LogisticRegressions
from eval.transfer.protocols import Protocol, trainings
from eval.vectors.embedding import TextVectors
from eval.vectors.encoders import LayerEncoders, SentenceEncoders

ClassifierName = Literal["lr", "lr-senteval", "mlp"]
Stage = Callable[[str, int], Callable[[int], object]]
ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """How tasks of classification are scored.

    Attributes:
        classifier: ``lr``, which is the logistic regression of the protocol; ``lr-senteval``, the
            one of SentEval's code; or ``mlp``.
        protocol: what is trained and tested.
        seeds: how many.
    """

    classifier: ClassifierName = "lr"
    protocol: Protocol = field(default_factory=Protocol)
    seeds: int = 5

    def make(self) -> Classifier:
        """A new classifier; raises MissingExtraError where scikit-learn is not installed."""
        if self.classifier == "mlp":
            return MLPs()
        if self.classifier == "lr-senteval":
            return LogisticRegressions("senteval")
        return LogisticRegressions("bert-lc" if self.protocol.name == "bert-lc" else "scaled")


def score_task(
    task: ClassificationTask,
    encoders: SentenceEncoders,
    settings: TransferSettings,
    baseline: str,
    resampling: Resampling,
    stage: Stage,
) -> SetScores:
    """Every encoder on one task.

    Args:
        task: what is classified.
        encoders: those that are to be fitted are fitted on all texts of the task, without labels.
        settings: how.
        baseline: the encoder that others are compared with.
        resampling: of intervals and tests.
        stage: begins a part of the work, of so many steps.

    Raises:
        BadInputError: there are fewer examples than folds, or one class alone to train on.
        ConfigError: a classifier that the protocol has no use for.
    """
    texts = task_texts(task)
    done = stage(f"{task.name}: vectors", len(texts) * len(encoders.names))
    trained: Callable[[int], object] | None = None
    scores: dict[str, ClassificationScore] = {}
    notes: dict[str, str] = {}
    cut: dict[str, int] = {}
    for one in encoders.vectors(texts, texts, done):
        trained = trained or stage(
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
        resampling,
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
                details=_details(one),
                examples=one.correct,
            )
            for name, one in scores.items()
        ),
    )


def task_grids(
    task: ClassificationTask, layers: LayerEncoders, settings: TransferSettings, stage: Stage
) -> Iterator[LayerGrid]:
    """Every hidden state and pooling on one task: a grid for each model."""
    texts = task_texts(task)
    done = stage(f"{task.name}: vectors", len(texts) * len(layers.names) * len(layers.poolings))
    columns: dict[str, list[list[tuple[float, float | None]]]] = {name: [] for name in layers.names}
    cut: dict[str, int] = {}
    states_in_all = sum(layers.depth(name) + 1 for name in layers.names) * len(layers.poolings)
    trained: Callable[[int], object] | None = None
    for _, found in layers.vectors(texts, done):
        trained = trained or stage(
            f"{task.name}: classifiers", _steps(task, settings) * states_in_all
        )
        states = found.vectors.of(texts)
        column = []
        for layer in range(states.shape[1]):
            data = classification_data(task, TextVectors(texts, states[:, layer]))
            score = score_classification(
                data, settings.make(), settings.protocol, settings.seeds, trained
            )
            column.append((score.accuracy, score.spread))
        columns[found.name].append(column)
        cut[found.name] = found.cut
    for name, cells in columns.items():
        yield layer_grid(task.name, name, ACCURACY, layers.poolings, cells, cut[name], len(texts))


def _steps(task: ClassificationTask, settings: TransferSettings) -> int:
    """Classifiers that are trained for one encoder."""
    data, classifier = without_features(task), settings.make()
    seeds = effective_seeds(data, classifier, settings.protocol, settings.seeds)
    return seeds * trainings(data, classifier, settings.protocol)


def _note(score: ClassificationScore, classifier: Classifier) -> str:
    notes = []
    if isinstance(classifier, LogisticRegressions) and classifier.unconverged:
        notes.append(f"{classifier.unconverged:,} fits ended at the most steps")
    if score.unseen:
        notes.append(f"{score.unseen:,} tests of a class that was not trained on")
    return "; ".join(notes)


def _details(score: ClassificationScore) -> dict[str, object]:
    return {
        "seeds": [asdict(one) for one in score.seeds],
        "f1": score.f1,
        "f1_spread": score.f1_spread,
        "unseen": score.unseen,
    }
