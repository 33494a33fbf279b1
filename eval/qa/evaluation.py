"""Ranking a question set with several systems."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import QuestionSet
from eval.metrics.comparison import check_baseline, mean_and_spread, percent
from eval.metrics.measures import PoolMeasures, canonical_measures
from eval.metrics.trec import read_run
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.pools import DEV_MEASURE, Floats, best_fusion, relevant_ids
from eval.qa.rerankers import HeadTrainer, fine_tune, fit_heads, head_scores
from eval.qa.resources import (
    Questions,
    Resources,
    open_resources,
    pool_hits,
)
from eval.qa.result import QAResult, SystemResult
from eval.qa.systems import (
    ANSWER_MEASURES,
    INTERACTIONS,
    MEASURES,
    QASettings,
    System,
    parse_systems,
)
from retriever import Mode
from retriever.encoders import find_model, require_trusted
from retriever.errors import BadInputError, ConfigError
from retriever.rerankers import HeadReranker, reranker_kind
from retriever.rerankers.cross import KIND as CROSS_ENCODER
from retriever.search import FusionSettings

# Systems that rank by vectors.
_EMBEDDED = ("cosine", "hybrid", *INTERACTIONS)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def rank_systems(
    questions: Questions,
    systems: str | Sequence[str],
    settings: QASettings | None = None,
    *,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> QAResult:
    """Rank the candidates of questions with several systems, and compare the rankings.

    Systems that are trained or tuned are trained on the training split, and choose epochs and
    weights on the dev split. A set without pools of candidates is ranked as a whole, through
    `settings.data.index`.

    Questions are a folder in any form that `read_question_set` reads, the split to rank, or several
    splits by their names. docs/reference/question-answering.md names the systems; a single text
    may hold several with commas.

    Raises:
        ConfigError: a system, a measure or the baseline is unknown, or the set needs an index, or
            the index holds other documents.
        SourceError: a split or a run cannot be read.
        ModelError: an encoder or a saved reranker cannot be loaded.
        BadInputError: there is nothing to rank, to train on or to choose on, or the corpus has no
            relevant document.
        MissingExtraError: a system needs a package that is not installed.
    """
    settings = settings or QASettings()
    parsed_systems = parse_systems([systems] if isinstance(systems, str) else systems)
    measures = canonical_measures(settings.measures or ())
    names = [system.text for system in parsed_systems]
    check_baseline(settings.baseline, names, "systems")
    for system in parsed_systems:
        if system.kind == "cross-encoder":
            # A wrong name fails before anything is computed.
            find_model(system.encoder or settings.cross.model, download=settings.loading.download)
    with open_resources(questions, settings, progress, notify) as resources:
        _check_judgments(resources)
        if resources.corpus is not None:
            _check_corpus_systems(parsed_systems)
        parsed_systems = _load_encoders(parsed_systems, resources)
        results = [_rank(system, resources) for system in parsed_systems]
        split = resources.questions
        remarks = tuple(resources.remarks)
    usual = ANSWER_MEASURES if split.answers_in_text else MEASURES
    return QAResult.of(split, results, measures or usual, settings, command, remarks)


def _load_encoders(systems: Sequence[System], resources: Resources) -> list[System]:
    """Load each system's encoder, so that a wrong name fails first; return systems in full form."""
    complete = [replace(system, encoder=resources.form(system.encoder)) for system in systems]
    embedded = [system for system in complete if system.kind in _EMBEDDED]
    resources.share(system.encoder for system in embedded)
    for system in embedded:
        if system.encoder:
            resources.encoder(system.encoder)
    return complete


def _check_corpus_systems(systems: Sequence[System]) -> None:
    """Refuse systems that rank the whole corpus with another encoder than that of its index."""
    for system in systems:
        if system.kind in _CORPUS_KINDS and system.encoder:
            raise ConfigError(
                f"system {system.text!r}: the corpus is ranked with the encoder of its index; "
                f"rank {system.kind!r} in a second run, with --model {system.encoder} and an "
                "--index of its own, and compare both with `retriever eval compare`"
            )


def _check_judgments(resources: Resources) -> None:
    """Remark on judgments of documents that the set lacks; refuse them if no document is there."""
    questions = resources.questions
    corpus = resources.corpus
    documents: Container[str] = questions.passages if corpus is None else corpus.index
    judged = [id_ for question in questions.questions for id_ in relevant_ids(question)]
    lacking = [id_ for id_ in judged if id_ not in documents]
    if lacking:
        problem = (
            f"{len(lacking):,} of {len(judged):,} relevant judgments are of documents that the "
            f"corpus lacks, such as {lacking[0]!r}"
        )
        if len(lacking) == len(judged):
            split = f"{questions.name} {questions.split}"
            raise BadInputError(f"{split}: {problem}; check that both have the same ids")
        resources.remarks.append(problem)


def _rank(system: System, resources: Resources) -> SystemResult:
    begin = time.perf_counter()
    result = _RANKERS.get(system.kind, _heads)(system, resources)
    return replace(result, seconds=time.perf_counter() - begin)


def _run(system: System, resources: Resources) -> SystemResult:
    run = read_run(system.path)
    questions = resources.questions.questions
    pools, scores = pool_hits(
        questions, [list(run.get(question.id, {}).items()) for question in questions]
    )
    return SystemResult(system.text, pools, (scores,))


def _pooled(
    system: System, questions: QuestionSet, scores: Sequence[NDArray[np.floating]], note: str = ""
) -> SystemResult:
    exact = tuple(seed_scores.astype(np.float64) for seed_scores in scores)
    return SystemResult(system.text, questions.questions, exact, note)


def _component(system: System, resources: Resources) -> SystemResult:
    questions = resources.questions
    if resources.corpus is not None:
        mode: Mode = "bm25" if system.kind == "bm25" else "dense"
        pools, scores = resources.corpus.rank(questions, mode)
        return SystemResult(system.text, pools, (scores,))
    if system.kind == "bm25":
        return _pooled(system, questions, [resources.lexical(questions)[0]])
    return _pooled(system, questions, [resources.cosines(questions, system.encoder)])


def _rank_bm25(system: System, resources: Resources) -> SystemResult:
    bm25 = resources.rank_bm25
    questions = resources.questions.questions
    corpus = resources.corpus
    if corpus is None:
        pools = questions
        scores = bm25.scores(questions)
    else:
        pools, scores = pool_hits(
            questions, [bm25.best(question.text, corpus.depth) for question in questions]
        )
    return SystemResult(system.text, pools, (scores,), bm25.note)


def _hybrid(system: System, resources: Resources) -> SystemResult:
    corpus = resources.corpus
    questions = resources.questions
    fusion = FusionSettings()
    note = ""
    if system.variant == "tuned":
        fusion = _tuned_on_dev(system, resources)
        note = f"alpha {fusion.alpha:g}, chosen on {resources.dev_questions.split}"
    elif system.variant == "rrf":
        fusion = FusionSettings("rrf")
    elif system.variant:
        fusion = FusionSettings(alpha=float(system.variant))
    if corpus is not None:
        pools, scores = corpus.rank_fused(questions, fusion)
        return SystemResult(system.text, pools, (scores,), note)
    components = resources.components(questions, system.encoder)
    return _pooled(system, questions, [components.fused(fusion)], note)


def _tuned_on_dev(system: System, resources: Resources) -> FusionSettings:
    corpus = resources.corpus
    if corpus is None:
        components = resources.components(resources.dev.questions, system.encoder)
        return resources.dev.best_fusion(components)

    def quality(fusion: FusionSettings) -> float:
        pools, scores = corpus.rank_fused(resources.dev_questions, fusion)
        return float(PoolMeasures(pools, [DEV_MEASURE])(scores)[DEV_MEASURE].mean())

    return best_fusion(quality)


def _heads(system: System, resources: Resources) -> SystemResult:
    settings = resources.settings
    plan = settings.head.of(system.kind, system.variant or "linear")
    if system.random_start:
        plan = replace(plan, head=replace(plan.head, initial="random"))
    trainer = HeadTrainer(plan, resources, system.encoder)
    trained = fit_heads(trainer, settings.seeds, system.text)
    pools = resources.pools(resources.questions)
    pairs = resources.pairs(pools, system.encoder)
    scores = [head_scores(head.head.score, pairs) for head in trained]
    note = _epochs_note([(head.best, head.curve[head.best].dev) for head in trained])
    curves = tuple(tuple(epoch.dev for epoch in head.curve) for head in trained)
    return replace(_pooled(system, pools, scores, note), curves=curves)


def _cross_encoders(system: System, resources: Resources) -> SystemResult:
    settings = resources.settings
    plan = replace(settings.cross, model=system.encoder or settings.cross.model)
    train = resources.training_set(plan.training.sampling.negatives)
    pools = resources.pools(resources.questions)
    dev = resources.dev
    resources.models.mkdir(parents=True, exist_ok=True)
    scores = []
    dev_scores = []
    curves = []
    kept_epochs = []
    for seed in range(settings.cross_seeds):
        name = f"{system.trained}-seed-{seed}"
        folder = resources.models / _UNSAFE.sub("-", name)
        # The first system that uses a cross-encoder writes its folder, others read it.
        fitted = fine_tune(
            train,
            dev,
            replace(plan, training=replace(plan.training, seed=seed)),
            folder,
            settings.loading,
            name=f"fine-tuning {system.trained}, seed {seed}",
            progress=resources.progress,
            notify=resources.notify,
        )
        scores.append(resources.cross_scores(name, folder, pools))
        if system.fused:
            dev_scores.append(resources.cross_scores(name, folder, dev.questions))
        curves.append(fitted.curve)
        kept_epochs.append((fitted.best_epoch.epoch, fitted.best_epoch.dev))
    notes = [f"fine-tuned from {plan.model}", _epochs_note(kept_epochs)]
    if system.ensemble:
        notes.append(f"mean of the scores of {len(scores)} seeds")
        # Scores are not standardized. The loss gives all seeds the same unit, and a constant that a
        # seed adds to all passages of a question does not change the ranking.
        scores = [np.mean(scores, axis=0)]
        dev_scores = [np.mean(dev_scores, axis=0)] if dev_scores else []
    if system.fused:
        scores, weights = _with_hybrid(scores, dev_scores, resources)
        notes.append(weights)
    result = _pooled(system, pools, scores, "; ".join(notes))
    return replace(result, curves=tuple(tuple(epoch.dev for epoch in curve) for curve in curves))


def _with_hybrid(
    scores: Sequence[Floats], dev_scores: Sequence[Floats], resources: Resources
) -> tuple[list[Floats], str]:
    """Fuse scores with the hybrid of cosine and BM25; return them and a note on the weights.

    Both weights are chosen on dev.
    """
    dev = resources.dev
    dev_components = resources.components(dev.questions, "")
    hybrid = dev.best_fusion(dev_components)
    components = resources.components(resources.pools(resources.questions), "")
    hybrid_dev = dev_components.fused(hybrid)
    hybrid_scores = components.fused(hybrid)
    fused = []
    weights = []
    for cross_scores, cross_dev in zip(scores, dev_scores, strict=True):
        # The cross-encoder in place of the cosine, the hybrid in place of BM25.
        best = dev.best_fusion(dev_components._replace(dense=cross_dev, bm25=hybrid_dev))
        fused.append(components._replace(dense=cross_scores, bm25=hybrid_scores).fused(best))
        weights.append(f"{best.alpha:g}")
    return fused, (
        f"weight of the cross-encoder {', '.join(weights)}, alpha of the hybrid {hybrid.alpha:g}, "
        f"chosen on {dev.questions.split}"
    )


def _saved(system: System, resources: Resources) -> SystemResult:
    pools = resources.pools(resources.questions)
    if reranker_kind(system.path) == CROSS_ENCODER:
        return _pooled(system, pools, [resources.cross_scores(system.text, system.path, pools)])
    reranker = HeadReranker.load(system.path)
    encoder = str(reranker.spec)
    require_trusted(reranker.spec.model, resources.model)
    reranker.check(resources.encoder(encoder).spec)
    return _pooled(
        system, pools, [head_scores(reranker.head.score, resources.pairs(pools, encoder))]
    )


def _epochs_note(epochs: Sequence[tuple[int, float]]) -> str:
    """Describe the dev scores of the seeds, and the epoch that each kept."""
    scores = percent(*mean_and_spread([dev for _, dev in epochs]))
    numbers = ", ".join(str(epoch) for epoch, _ in epochs)
    return f"dev AP {scores}, after epoch {numbers}"


# Kinds of systems that rank the whole corpus where there are no pools.
_CORPUS_KINDS = ("bm25", "rank-bm25", "cosine", "hybrid")
_RANKERS: Mapping[str, Callable[[System, Resources], SystemResult]] = {
    "run": _run,
    "bm25": _component,
    "rank-bm25": _rank_bm25,
    "cosine": _component,
    "hybrid": _hybrid,
    "cross-encoder": _cross_encoders,
    "saved reranker": _saved,
}
