"""Ranking a question set with one system after the other, and comparing them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import QuestionSet
from eval.metrics.measures import PoolMeasures, canonical_measures
from eval.metrics.trec import read_run
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.corpus import open_corpus, ranked
from eval.qa.fits import fit_cross_encoder, fit_head, head_scores, training_vectors
from eval.qa.resources import Questions, Resources, check_index, split_reader
from eval.qa.result import QAResult, SystemResult
from eval.qa.scores import Components, Floats, best_weight, fixed_weight
from eval.qa.settings import ANSWER_MEASURES, MEASURES, QASettings
from eval.qa.systems import INTERACTIONS, System, parse_systems
from eval.qa.training import DEV_MEASURE, DevScore
from retriever import Mode
from retriever.encoders.loading.choice import ModelChoice
from retriever.encoders.models.finding import find_model
from retriever.encoders.remote.address import is_url, require_asked
from retriever.errors import ConfigError
from retriever.rerankers.cross.folder import KIND as CROSS_ENCODER
from retriever.rerankers.head.folder import HeadReranker
from retriever.rerankers.manifest import kind_of
from retriever.search.fusion import FusionSettings

# Systems that rank a whole corpus, and the component of the index that does it.
_COMPONENTS: dict[str, Mode] = {"bm25": "bm25", "cosine": "dense"}
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

    Args:
        questions: a folder in any form that `read_question_set` reads; or the split to rank, or
            several splits by their names.
        systems: names, see `eval.qa.systems`; a single text may hold several separated by commas.
        settings: how they are ranked; None takes the defaults.
        progress: of long stages.
        notify: is called with lines that a person should read.
        command: reproduces the result, for its report.

    Raises:
        ConfigError: a system, a measure or the baseline is unknown, or the set needs an index, or
            the index holds other documents.
        SourceError: a split or a run cannot be read.
        ModelError: an encoder or a saved reranker cannot be loaded.
        BadInputError: there is nothing to rank, to train on or to choose on.
        MissingExtraError: a system needs a package that is not installed.
    """
    settings = settings or QASettings()
    asked = parse_systems([systems] if isinstance(systems, str) else systems)
    asked_measures = canonical_measures(settings.measures or ())
    names = [system.text for system in asked]
    for system in asked:
        if system.ensemble and settings.cross_seeds == 1:
            raise ConfigError(
                f"system {system.text!r}: an ensemble averages the scores of several seeds; "
                "expected --cross-seeds 2 or more, found 1"
            )
    if settings.baseline is not None and settings.baseline not in names:
        raise ConfigError(
            f"baseline: expected one of the systems ({', '.join(names)}), found "
            f"{settings.baseline!r}"
        )
    for system in asked:
        if system.kind == "cross-encoder":
            # Before anything is computed that a wrong name would lose.
            find_model(system.encoder or settings.cross.model, download=settings.loading.download)
    with open_resources(questions, settings, progress, notify) as resources:
        asked = [replace(one, encoder=resources.form(one.encoder)) for one in asked]
        resources.share(one.encoder for one in asked if one.kind in _EMBEDDED)
        found = [_rank(system, resources, settings) for system in asked]
        ranked_questions, cuts = resources.questions, tuple(resources.cuts)
    usual = ANSWER_MEASURES if ranked_questions.answers_in_text else MEASURES
    return QAResult.of(
        ranked_questions,
        found,
        asked_measures or usual,
        settings,
        command=command,
        remarks=cuts,
    )


@contextmanager
def open_resources(
    questions: Questions,
    settings: QASettings,
    progress: Progress,
    notify: Notify,
) -> Iterator[Resources]:
    """What the systems share; the index of a set without pools is open meanwhile.

    Raises:
        ConfigError: the set needs an index, or has no use for one.
        What `open_corpus` raises.
    """
    read = split_reader(questions, settings.data)
    split = questions.split if isinstance(questions, QuestionSet) else settings.split
    first = read(split)
    check_index(first, settings.data)
    with ExitStack() as stack:
        corpus = None
        if settings.data.index is not None:
            loading = settings.loading
            corpus = stack.enter_context(
                open_corpus(
                    settings.data.index,
                    first,
                    ModelChoice(settings.encoder, loading.device, loading.download),
                    settings.data.depth,
                    settings.bm25,
                    progress,
                    notify,
                )
            )
        models = settings.models or Path(stack.enter_context(TemporaryDirectory()))
        yield Resources(
            read,
            split,
            settings.data,
            settings.encoder,
            settings.loading,
            settings.bm25,
            progress,
            notify,
            corpus,
            models=models,
            dtype=settings.dtype,
        )


def _rank(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    """The rankings of a system, which is trained or tuned first if necessary."""
    begin = time.perf_counter()
    if resources.corpus is not None and system.kind in _CORPUS_RANKERS:
        if system.encoder:
            raise ConfigError(
                f"system {system.text!r}: the corpus is ranked with the encoder of its index; "
                "leave out what follows @, or name an index made with that encoder"
            )
        result = _CORPUS_RANKERS[system.kind](system, resources, settings)
    else:
        result = _RANKERS.get(system.kind, _heads)(system, resources, settings)
    return replace(result, seconds=time.perf_counter() - begin)


def _run(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    assert system.path is not None
    run = read_run(system.path)
    asked = resources.questions.questions
    found = ranked(asked, [list(run.get(one.id, {}).items()) for one in asked])
    return SystemResult(system.text, found[0], (found[1],))


def _pooled(
    system: System,
    questions: QuestionSet,
    scores: Sequence[NDArray[np.floating]],
    note: str = "",
    curves: tuple[tuple[float, ...], ...] = (),
) -> SystemResult:
    exact = tuple(one.astype(np.float64) for one in scores)
    return SystemResult(system.text, questions.questions, exact, note, curves)


def _bm25(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    pools = resources.pools(resources.questions)
    return _pooled(system, pools, [resources.lexical(pools)[0]])


def _rank_bm25(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    bm25 = resources.rank_bm25
    scores = bm25.scores(resources.questions.questions)
    return _pooled(system, resources.questions, [scores], bm25.note)


def _cosine(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    pools = resources.pools(resources.questions)
    return _pooled(system, pools, [resources.pairs(pools, system.encoder).cosines()])


def _hybrid(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    fusion, note = settings.fusion, ""
    if system.tuned:
        dev = resources.dev
        fusion = _tuned(resources.components(dev.questions, system.encoder), dev, fusion)
        note = f"alpha {fusion.alpha:g}, chosen on {dev.questions.split}"
    elif system.variant:
        fusion = fixed_weight(fusion, system.variant)
    pools = resources.pools(resources.questions)
    return _pooled(system, pools, [resources.components(pools, system.encoder).fused(fusion)], note)


def _tuned(components: Components, dev: DevScore, fusion: FusionSettings) -> FusionSettings:
    """The convex fusion of the components of dev whose weight is the best one there."""
    return fusion.convex(best_weight(lambda weight: dev(components.fused(fusion.convex(weight)))))


def _corpus_component(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    assert resources.corpus is not None
    pools, scores = resources.corpus.ranked(resources.questions, _COMPONENTS[system.kind])
    return SystemResult(system.text, pools, (scores,))


def _corpus_rank_bm25(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    assert resources.corpus is not None
    bm25, asked = resources.rank_bm25, resources.questions.questions
    best = (bm25.best(one.text, resources.corpus.depth) for one in asked)
    pools, scores = ranked(
        asked, [list(zip(ids, found.tolist(), strict=True)) for ids, found in best]
    )
    return SystemResult(system.text, pools, (scores,), bm25.note)


def _corpus_hybrid(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    corpus = resources.corpus
    assert corpus is not None
    fusion, note = settings.fusion, ""
    if system.tuned:
        dev = resources.dev_questions

        def quality(weight: float) -> float:
            pools, scores = corpus.fused(dev, fusion.convex(weight))
            return float(PoolMeasures(pools, [DEV_MEASURE])(scores)[DEV_MEASURE].mean())

        fusion = fusion.convex(best_weight(quality))
        note = f"alpha {fusion.alpha:g}, chosen on {dev.split}"
    elif system.variant:
        fusion = fixed_weight(fusion, system.variant)
    pools, scores = corpus.fused(resources.questions, fusion)
    return SystemResult(system.text, pools, (scores,), note)


def _heads(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    plan = settings.head.of(system.kind, system.variant or "linear")
    if system.random_start:
        plan = replace(plan, head=replace(plan.head, initial="random"))
    encoder = resources.encoder(system.encoder)
    train = resources.training_set(plan.training.sampling.negatives)
    vectors = training_vectors(encoder, train, settings.loading.cache, resources.progress)
    dev = resources.pairs(resources.dev.questions, system.encoder)
    pools = resources.pools(resources.questions)
    pairs = resources.pairs(pools, system.encoder)
    advance = resources.progress(f"training {system.text}", settings.seeds)
    scores, curves, chosen = [], [], []
    for seed in range(settings.seeds):
        trained = fit_head(plan.seeded(seed), vectors, train.pools, dev, resources.dev)
        scores.append(head_scores(trained.head.score, pairs))
        curves.append(tuple(epoch.dev for epoch in trained.curve))
        chosen.append((trained.best, trained.curve[trained.best].dev))
        advance(1)
    return _pooled(system, pools, scores, _chosen(chosen), tuple(curves))


def _cross_encoders(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    plan = replace(settings.cross, model=system.encoder or settings.cross.model)
    if system.variant:
        plan = plan.of(system.variant)
    train = resources.training_set(
        plan.training.sampling.negatives, unanswered=plan.training.pointwise
    )
    pools, dev = resources.pools(resources.questions), resources.dev
    resources.models.mkdir(parents=True, exist_ok=True)
    scores, dev_scores, curves, chosen = [], [], [], []
    for seed in range(settings.cross_seeds):
        name = f"{system.trained}-seed-{seed}"
        folder = resources.models / _UNSAFE.sub("-", name)
        seeded = plan.seeded(seed)
        # Systems that share a cross-encoder find the folder that the first of them wrote.
        curve, kept = fit_cross_encoder(
            train,
            dev,
            seeded,
            folder,
            settings.loading,
            name=f"fine-tuning {system.trained}, seed {seed}",
            progress=resources.progress,
            notify=resources.notify,
        )
        scores.append(resources.cross_scores(name, folder, pools).astype(np.float64))
        if system.fused:
            on_dev = resources.cross_scores(name, folder, dev.questions)
            dev_scores.append(on_dev.astype(np.float64))
        curves.append(curve)
        chosen.append((kept.epoch, kept.dev))
    notes = [f"fine-tuned from {plan.model}", _chosen(chosen)]
    if system.ensemble:
        notes.append(f"mean of the scores of {len(scores)} seeds")
        scores, dev_scores = _mean(scores), _mean(dev_scores)
    if system.fused:
        scores, weights = _with_hybrid(scores, dev_scores, resources, settings)
        notes.append(weights)
    # Folders of earlier releases have no epoch 0.
    first = max(curve[0].epoch for curve in curves)
    shown = tuple(tuple(one.dev for one in curve if one.epoch >= first) for curve in curves)
    found = _pooled(system, pools, scores, "; ".join(notes), shown)
    return replace(found, first_epoch=first)


def _mean(scores: Sequence[Floats]) -> list[Floats]:
    """The mean over the seeds, as one; nothing of nothing.

    Scores are not standardized: the loss gives those of all seeds the same unit, and what a seed
    adds to all passages of a question does not change the ranking.
    """
    return [np.mean(scores, axis=0)] if scores else []


def _with_hybrid(
    scores: Sequence[Floats],
    dev_scores: Sequence[Floats],
    resources: Resources,
    settings: QASettings,
) -> tuple[list[Floats], str]:
    """Scores fused with the hybrid of cosine and BM25, both weights chosen on dev; the weights."""
    dev = resources.dev
    tried = resources.components(dev.questions, "")
    below = _tuned(tried, dev, settings.fusion)
    components = resources.components(resources.pools(resources.questions), "")
    on_dev, on_split = tried.fused(below), components.fused(below)
    fused, weights = [], []
    for ours, ours_dev in zip(scores, dev_scores, strict=True):
        # The cross-encoder in place of the cosine, the hybrid in place of BM25.
        fusion = _tuned(replace(tried, dense=ours_dev, bm25=on_dev), dev, settings.fusion)
        fused.append(replace(components, dense=ours, bm25=on_split).fused(fusion))
        weights.append(f"{fusion.alpha:g}")
    return fused, (
        f"weight of the cross-encoder {', '.join(weights)}, alpha of the hybrid {below.alpha:g}, "
        f"chosen on {dev.questions.split}"
    )


def _saved(system: System, resources: Resources, settings: QASettings) -> SystemResult:
    assert system.path is not None
    pools = resources.pools(resources.questions)
    if kind_of(system.path) == CROSS_ENCODER:
        return _pooled(system, pools, [resources.cross_scores(system.text, system.path, pools)])
    reranker = HeadReranker.load(system.path)
    encoder = str(reranker.spec)
    if is_url(reranker.spec.model):
        require_asked(reranker.spec.model, resources.model)
    reranker.check_encoder(resources.encoder(encoder).spec)
    return _pooled(system, pools, [head_scores(reranker.score, resources.pairs(pools, encoder))])


def _chosen(epochs: Sequence[tuple[int, float]]) -> str:
    """The dev score over the seeds, and the epoch that each kept."""
    scores = [100 * dev for _, dev in epochs]
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    numbers = ", ".join(str(epoch) for epoch, _ in epochs)
    return f"dev AP {fmean(scores):.2f}{spread}, after epoch {numbers}"


_Ranker = Callable[[System, Resources, QASettings], SystemResult]
_RANKERS: Mapping[str, _Ranker] = {
    "run": _run,
    "bm25": _bm25,
    "rank-bm25": _rank_bm25,
    "cosine": _cosine,
    "hybrid": _hybrid,
    "cross-encoder": _cross_encoders,
    "saved reranker": _saved,
}
# Systems that rank the whole corpus where there are no pools.
_CORPUS_RANKERS: Mapping[str, _Ranker] = {
    "bm25": _corpus_component,
    "rank-bm25": _corpus_rank_bm25,
    "cosine": _corpus_component,
    "hybrid": _corpus_hybrid,
}
