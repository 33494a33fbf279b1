"""The layers that BERT-LC chooses for a task, scored beside the last ones and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.datasets.classification import ClassificationTask
from eval.layers.search import layer_fusion
from eval.layers.subsets import count_subsets
from eval.metrics.significance import Resampling
from eval.progress import Progress
from eval.sentences.comparison import compare_accuracies
from eval.sentences.result import EncoderScore, SetScores
from eval.transfer.data import layer_data, task_facts, task_texts, tested_columns
from eval.transfer.layer_search import LayerTransferScore, LayerTransferSettings, search_transfer
from eval.transfer.scores import ACCURACY, unseen_notes
from eval.vectors import LayerEncoders, Loading
from retriever.encoders.settings import parse_encoder


class SearchedModels:
    """Models whose layers are searched, each with what a set of layers becomes.

    Args:
        names: text forms as `LayerEncoders` takes them, also with ``fusion=max`` and ``head=yes``.
        loading: where they come from.
    """

    def __init__(self, names: Sequence[str], loading: Loading) -> None:
        asked = [parse_encoder(name) for name in names]
        kept = [
            str(replace(one, fusion=None, head=None)) if one.head or one.fusion == "max" else name
            for name, one in zip(names, asked, strict=True)
        ]
        self.names = tuple(names)
        self.encoders = LayerEncoders(kept, ("mean",), loading)
        self.fusions = [layer_fusion(one, loading) for one in asked]

    @staticmethod
    def labels(name: str) -> dict[str, str]:
        """What a report calls the baselines and the chosen layers of a model."""
        return {
            "last": f"{name}::last",
            "last4": f"{name}::last4",
            "random": f"{name}, random layers",
            "chosen": f"{name}, layers chosen",
        }


def searched_sets(
    task: ClassificationTask,
    searched: SearchedModels,
    search: LayerTransferSettings,
    shares: Sequence[float],
    baseline: str,
    resampling: Resampling,
    progress: Progress,
) -> list[SetScores]:
    """The layers that BERT-LC chooses from every model beside the last ones, on one task: a set of
    scores for each share of its training examples.

    Args:
        task: it.
        searched: the models.
        search: how sets of layers are tried.
        shares: of the training examples, see `layer_divisions`; different, at least one.
        baseline: label of what the others are compared with.
        resampling: of p-values.
        progress: of encoding and of the search.

    Raises:
        What `search_transfer` raises.
    """
    texts = task_texts(task)
    done = progress(f"{task.name}: vectors", len(texts) * len(searched.names))
    found: list[dict[str, LayerTransferScore]] = [{} for _ in shares]
    cut: dict[str, int] = {}
    vectors = searched.encoders.vectors(texts, done)
    for name, fusion, (_, one) in zip(searched.names, searched.fusions, vectors, strict=True):
        data = layer_data(task, one.vectors, fusion)
        most = min(search.max_layers or data.hidden_states, data.hidden_states)
        sets = count_subsets(data.hidden_states, most)
        steps = sets * search.outer * search.inner * len(shares)
        tried = progress(f"{task.name}: sets of layers", steps)
        for share, scores in zip(shares, found, strict=True):
            scores[name] = search_transfer(data, search, done=tried, train_share=share)
        cut[name] = one.cut
    varied = len(shares) > 1
    return [
        _searched_set(task, searched, scores, cut, baseline, resampling, varied=varied)
        for scores in found
    ]


def _searched_set(
    task: ClassificationTask,
    searched: SearchedModels,
    found: Mapping[str, LayerTransferScore],
    cut: Mapping[str, int],
    baseline: str,
    resampling: Resampling,
    *,
    varied: bool,
) -> SetScores:
    """The search of every model on one task with one share of the training examples.

    Args:
        task: it.
        searched: the models.
        found: of each of them.
        cut: number of texts that each of them cut.
        baseline: label of what the others are compared with.
        resampling: of p-values.
        varied: whether there are other shares.
    """
    rows = [
        (label, name, score, tested)
        for name, score in found.items()
        for label, tested in zip(
            searched.labels(name).values(), (*score.baselines, score.chosen), strict=True
        )
    ]
    values = compare_accuracies(
        {label: (one.accuracy, one.spread) for label, _, _, one in rows},
        {label: one.correct for label, _, _, one in rows},
        baseline,
        resampling,
    )
    scores = []
    for label, name, score, tested in rows:
        chosen = tested is score.chosen
        scores.append(
            EncoderScore(
                encoder=label,
                cut=cut[name],
                values={ACCURACY: values[label]},
                extra={"error reduction": tested.error_reduction(score.baselines[0])},
                note="; ".join(([_wins(score)] if chosen else []) + unseen_notes(score.unseen)),
                details=_divisions(score) if chosen else {"accuracies": list(tested.accuracies)},
                examples=tested.correct,
            )
        )
    any_score = next(iter(found.values()))
    learned = f"{any_score.learned:,}"
    return SetScores(
        name=f"{task.name}, {learned} examples" if varied else task.name,
        facts={**task_facts(task, any_score.tested), "learned from": f"{learned} examples"},
        texts=len(task_texts(task)),
        examples=tested_columns(task, any_score.tested),
        scores=tuple(scores),
        curve=(task.name, any_score.learned) if varied else None,
    )


def _wins(score: LayerTransferScore) -> str:
    won = "; ".join(f"{','.join(map(str, layers))} ({times})" for layers, times in score.wins)
    return f"layers chosen (divisions): {won}"


def _divisions(score: LayerTransferScore) -> dict[str, object]:
    return {
        "divisions": [
            {"layers": list(layers), "inner": inner, "accuracy": accuracy, "baseline": last}
            for layers, inner, accuracy, last in zip(
                score.chosen.layers,
                score.choice,
                score.chosen.accuracies,
                score.baselines[0].accuracies,
                strict=True,
            )
        ],
        "wins": [{"layers": list(layers), "divisions": times} for layers, times in score.wins],
    }
