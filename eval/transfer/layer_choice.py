"""BERT-LC's choice of layers on tasks of classification, for many models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from eval.datasets.sentences.tasks import ClassificationTask
from eval.layers.subsets import count_subsets
from eval.sentences.comparison import Resampling, compare_accuracies
from eval.sentences.result import EncoderScore, SetScores
from eval.transfer.data import layer_data, task_texts
from eval.transfer.examples import task_facts, tested_columns
from eval.transfer.layer_transfer import LayerTransferScore, LayerTransferSettings, search_transfer
from eval.transfer.sets import ACCURACY
from eval.vectors.encoders import LayerEncoders

Stage = Callable[[str, int], Callable[[int], object]]


def search_task(
    task: ClassificationTask,
    layers: LayerEncoders,
    settings: LayerTransferSettings,
    resampling: Resampling,
    stage: Stage,
) -> SetScores:
    """The layers that BERT-LC chooses, of every model, beside its last layer.

    All are compared with the last layer of the first model.

    Args:
        task: what is classified.
        layers: the models, under one pooling.
        settings: how layers are tried.
        resampling: of intervals and tests.
        stage: begins a part of the work, of so many steps.

    Raises:
        BadInputError: there are too few examples to divide.
        ConfigError: a model has not so many layers.
    """
    texts = task_texts(task)
    done = stage(f"{task.name}: vectors", len(texts) * len(layers.names))
    found: dict[str, LayerTransferScore] = {}
    cut: dict[str, int] = {}
    for _, one in layers.vectors(texts, done):
        data = layer_data(task, one.vectors)
        sets = _search_size(data.hidden_states, settings)
        tried = stage(f"{task.name}: sets of layers", sets * settings.outer * settings.inner)
        found[one.name] = search_transfer(data, settings, done=tried)
        cut[one.name] = one.cut
    summary: dict[str, tuple[float, float | None]] = {}
    correct = {}
    for model, score in found.items():
        last, chosen = searched_names(model)
        summary[last] = (score.baseline, score.baseline_spread)
        summary[chosen] = (score.accuracy, score.spread)
        correct[last], correct[chosen] = score.baseline_correct, score.correct
    values = compare_accuracies(summary, correct, next(iter(summary)), resampling)

    def scored(model: str, name: str, *, chosen: bool) -> EncoderScore:
        return EncoderScore(
            encoder=name,
            cut=cut[model],
            values={ACCURACY: values[name]},
            extra={},
            note=_wins(found[model]) if chosen else "",
            details=_details(found[model]) if chosen else {},
            examples=correct[name],
        )

    tested = next(iter(found.values())).tested
    return SetScores(
        name=task.name,
        facts=task_facts(task, tested),
        texts=len(texts),
        examples=tested_columns(task, tested),
        scores=tuple(
            scored(model, name, chosen=chosen)
            for model in found
            for name, chosen in zip(searched_names(model), (False, True), strict=True)
        ),
    )


def searched_names(model: str) -> tuple[str, str]:
    """What the last layer of a model and its chosen layers are called."""
    return f"{model}::last", f"{model}, layers chosen"


def _search_size(hidden_states: int, settings: LayerTransferSettings) -> int:
    return count_subsets(hidden_states, min(settings.max_layers or hidden_states, hidden_states))


def _wins(score: LayerTransferScore) -> str:
    won = "; ".join(f"{','.join(map(str, layers))} ({times})" for layers, times in score.wins)
    return f"layers chosen (divisions): {won}"


def _details(score: LayerTransferScore) -> dict[str, object]:
    return {
        "divisions": [asdict(one) for one in score.divisions],
        "wins": [{"layers": list(layers), "divisions": times} for layers, times in score.wins],
    }
