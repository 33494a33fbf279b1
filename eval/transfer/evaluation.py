"""Scores of encoders, or of layers chosen for a task, by a classifier on their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

from eval.datasets.classification import ClassificationTask, read_classification, read_probing
from eval.layers.search import load_head
from eval.layers.subsets import count_subsets
from eval.metrics.comparison import check_baseline
from eval.progress import Done, Progress, silent
from eval.sentences.experiment import (
    ACCURACY,
    ScoredSet,
    VectorScore,
    compare_accuracies,
    encoder_scores,
    load_sets,
    score_sets,
)
from eval.sentences.result import LayerGrid, SentenceResult, SetScores
from eval.settings import ClassifierName, LayerTransferSettings, TransferSettings
from eval.transfer.classifiers import Classifier, LogisticRegressions, MLPs
from eval.transfer.layer_search import layer_divisions, search_transfer
from eval.transfer.protocols import (
    classification_data,
    effective_seeds,
    layer_data,
    score_classification,
    task_classes,
    task_facts,
    task_texts,
    tested_columns,
)
from eval.vectors import LayerEncoders, TextVectors, fitted_remark, named_encoders
from retriever.encoders import parse_encoder
from retriever.errors import require_classifiers, require_torch

CLASSIFIERS: dict[ClassifierName, str] = {
    "lr": "logistic regression on scaled features",
    "lr-senteval": "logistic regression on features as they are, with SentEval's strengths",
    "mlp": "an MLP with 50 sigmoid units, 4 epochs of Adam (SBERT-WK)",
}
_TITLES = {"transfer": "Transfer: ", "probe": "Probing: "}


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
        tasks: folders or files, see `read_classification`, or loaded tasks; at least one.
        encoders: text forms. Encoders that need a fit are fitted on all texts of each task, without
            labels.
        settings: classifier, protocol and resampling.
        progress: shows the progress of each stage.
        command: reproduces the result, for the report.

    Raises:
        ConfigError: an encoder or the baseline is unknown, or two tasks have the same name.
        SourceError: a task cannot be read.
        BadInputError: a task lacks a split, or has only one class or too few examples.
        MissingExtraError: scikit-learn, or torch for ``mlp``, is not installed.
        TypeError: one string instead of several.
        Exception: see `Encoder.load`.
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

    Tasks are files, see `read_probing`, or loaded. The other arguments are as in `score_transfer`.
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
    if settings.classifier == "mlp":
        require_torch("the classifier mlp")
    for task in tasks:
        # Refuses an incomplete task before anything is encoded.
        task_classes(task)
    if settings.layer_search is not None:
        sets, grids, baseline = _search_tasks(
            tasks, names, settings, settings.layer_search, progress
        )
    else:
        scored_sets = [_task_set(task, settings) for task in tasks]
        sets, grids, baseline = score_sets(scored_sets, names, settings, progress)
    facts, remarks = _describe(settings)
    return SentenceResult(
        kind=kind,
        title=_TITLES[kind] + ", ".join(task.name for task in tasks),
        settings=facts | (settings.resampling_fact() if sets else {}),
        remarks=(*remarks, *fitted_remark(names, "all of its texts, without labels")),
        measures=(ACCURACY,),
        sets=sets,
        grids=grids,
        baseline=baseline,
        device=settings.loading.device,
        command=command,
    )


def _describe(settings: TransferSettings) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the facts and the remarks of a report on these settings."""
    search = settings.layer_search
    shares = settings.train_shares
    if search is not None:
        division = f"{_count_divisions(search.outer)} into 85% to learn from and 15% to test on"
        facts = {"protocol": f"bert-lc: {division}"}
        if shares != (1,):
            facts["training"] = f"{', '.join(f'{share:g}' for share in shares)} of the 85%"
        facts["choice"] = (
            f"sets of up to {search.max_layers or 'all'} layers, on "
            f"{_count_divisions(search.inner)} of the 85%, by a ridge classifier"
        )
        return facts, (
            "accuracies of BERT-LC's logistic regression on layers that were chosen without the "
            "tested examples, on the last layer, on the last four, and on as many random layers as "
            "were chosen",
            "error reduction: (A - B) / (1 - B) for accuracies A, and B of the model's last layer",
        )
    classifier = CLASSIFIERS[settings.classifier]
    protocol = settings.protocol
    protocol_text = f"senteval: the splits of each set, or {protocol.folds} nested folds"
    if protocol.name == "bert-lc":
        classifier = "logistic regression by SAGA with C = 10 (BERT-LC)"
        protocol_text = (
            f"bert-lc: {_count_divisions(protocol.outer)} into 85% to train on and 15% to test on"
        )
    return {
        "classifier": f"{settings.classifier}: {classifier}",
        "protocol": protocol_text,
        "seeds": "1" if settings.seeds == 1 else f"{settings.seeds}, or 1 where nothing is random",
    }, (f"accuracies of {classifier}; {protocol_text}",)


def _make_classifier(settings: TransferSettings) -> Classifier:
    if settings.classifier == "mlp":
        return MLPs()
    if settings.classifier == "lr-senteval":
        return LogisticRegressions("senteval")
    return LogisticRegressions("bert-lc" if settings.protocol.name == "bert-lc" else "scaled")


def _count_divisions(number: int) -> str:
    return "1 division" if number == 1 else f"{number} divisions"


def _task_set(task: ClassificationTask, settings: TransferSettings) -> ScoredSet:
    protocol = settings.protocol
    texts = task_texts(task)

    def score(vectors: TextVectors, done: Done) -> VectorScore:
        data = classification_data(task, vectors)
        return score_classification(
            data, _make_classifier(settings), protocol, settings.seeds, done
        )

    seeds = effective_seeds(
        task_classes(task), _make_classifier(settings), protocol, settings.seeds
    )
    return ScoredSet(
        name=task.name,
        measures=(ACCURACY,),
        texts=texts,
        fit_on=texts,
        stage=("seeds", seeds),
        score=score,
        compare=lambda scores, baseline, _: {
            ACCURACY: compare_accuracies(scores, baseline, settings.resampling)
        },
        describe=lambda tested: (task_facts(task, tested), tested_columns(task, tested)),
    )


def _search_tasks(
    tasks: Sequence[ClassificationTask],
    names: Sequence[str],
    settings: TransferSettings,
    search: LayerTransferSettings,
    progress: Progress,
) -> tuple[tuple[SetScores, ...], tuple[LayerGrid, ...], str | None]:
    """Choose and test layers: a set for each task and share of its training examples.

    Returns sets, grids (none) and the baseline, as `score_sets` does.
    """
    requested = [parse_encoder(name) for name in names]
    # A head is applied after the choice of layers.
    plain = [
        str(replace(encoder, head=None)) if encoder.head else name
        for name, encoder in zip(names, requested, strict=True)
    ]
    encoders = LayerEncoders(plain, ("mean",), settings.loading)
    heads = [load_head(encoder, settings.loading) for encoder in requested]
    labels = [label for name in names for label in _system_labels(name)]
    baseline = check_baseline(settings.baseline, labels, "encoders")
    shares = settings.train_shares
    for task, share in product(tasks, shares):
        # Refuses divisions that cannot be learned before anything is encoded.
        list(layer_divisions(task_classes(task), search, share))
    sets = []
    for task in tasks:
        texts = task_texts(task)
        done = progress(f"{task.name}: vectors", len(texts) * len(names))
        scores_by_share: list[dict[str, VectorScore]] = [{} for _ in shares]
        vectors = encoders.vectors(texts, done=done)
        for name, head, text_vectors in zip(names, heads, vectors, strict=True):
            data = layer_data(task, text_vectors, head)
            max_layers = min(search.max_layers or data.hidden_states, data.hidden_states)
            subsets = count_subsets(data.hidden_states, max_layers)
            steps = subsets * search.outer * search.inner * len(shares)
            done_sets = progress(f"{task.name}: sets of layers", steps)
            for share, scores in zip(shares, scores_by_share, strict=True):
                division_scores = search_transfer(data, search, done_sets, train_share=share)
                with_cut = (
                    score._replace(cut=text_vectors.cut) for score in division_scores.values()
                )
                scores |= dict(zip(_system_labels(name), with_cut, strict=True))
        for share, scores in zip(shares, scores_by_share, strict=True):
            count = len(next(layer_divisions(task_classes(task), search, share)).train)
            sets.append(_share_scores(task, scores, count, baseline, settings))
    return tuple(sets), (), baseline


def _share_scores(
    task: ClassificationTask,
    scores: Mapping[str, VectorScore],
    train_count: int,
    baseline: str,
    settings: TransferSettings,
) -> SetScores:
    """Return the scores of a task whose layers were chosen on `train_count` examples."""
    values = {ACCURACY: compare_accuracies(scores, baseline, settings.resampling)}
    tested = scores[baseline].tested
    assert tested is not None
    train_size = f"{train_count:,} examples"
    has_shares = len(settings.train_shares) > 1
    return SetScores(
        name=f"{task.name}, {train_size}" if has_shares else task.name,
        facts={**task_facts(task, tested), "learned from": train_size},
        texts=len(task_texts(task)),
        examples=tested_columns(task, tested),
        scores=encoder_scores(scores, values),
        curve=(task.name, train_count) if has_shares else None,
    )


def _system_labels(name: str) -> tuple[str, ...]:
    """Return the names of the baselines and the chosen layers of a model in a report."""
    return f"{name}::last", f"{name}::last4", f"{name}, random layers", f"{name}, layers chosen"
