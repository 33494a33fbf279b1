"""Ranking the pools of a question set with one system after the other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from eval.metrics.comparison import Run
from eval.metrics.ranking import evaluate
from eval.metrics.trec import read_run
from eval.qa.corpus import CorpusSearch
from eval.qa.cross import CrossPlan, Watch, fit_cross_encoder
from eval.qa.heads import fit_head, head_scores, training_vectors
from eval.qa.hybrid import Components, best_weight, fixed_weight
from eval.qa.pairs import as_run
from eval.qa.resources import Resources
from eval.qa.result import SystemResult
from eval.qa.systems import System
from eval.qa.training import DEV_MEASURE
from retriever.errors import ConfigError
from retriever.rerankers.cross.folder import KIND as CROSS_ENCODER
from retriever.rerankers.cross.folder import read_cross_encoder
from retriever.rerankers.cross.settings import Step, kept_epoch
from retriever.rerankers.head.folder import HeadReranker
from retriever.rerankers.manifest import kind_of
from retriever.search.settings import Mode, SearchSettings

# Systems that need no pools, and how an index ranks as they do.
_SEARCHES: dict[str, Mode] = {"bm25": "bm25", "cosine": "dense", "hybrid": "hybrid"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def rank(system: System, resources: Resources) -> SystemResult:
    """What a system ranks; it is trained or tuned first where it needs that.

    Raises:
        SourceError: a split or a run cannot be read.
        ModelError: an encoder or a saved reranker cannot be loaded.
        BadInputError: there is nothing to train or to choose on.
    """
    begin = time.perf_counter()
    if resources.corpus is not None and system.kind in _SEARCHES:
        result = _search(system, resources, resources.corpus)
    else:
        result = _RANKERS.get(system.kind, _heads)(system, resources)
    return replace(result, seconds=time.perf_counter() - begin)


def _run(system: System, resources: Resources) -> SystemResult:
    assert system.path is not None
    return SystemResult(system.text, (read_run(system.path),))


def _bm25(system: System, resources: Resources) -> SystemResult:
    questions = resources.questions
    return SystemResult(system.text, (as_run(questions, resources.lexical(questions)[0]),))


def _cosine(system: System, resources: Resources) -> SystemResult:
    questions = resources.questions
    cosines = resources.pairs(questions, system.encoder).cosines()
    return SystemResult(system.text, (as_run(questions, cosines),))


def _hybrid(system: System, resources: Resources) -> SystemResult:
    def components(questions: QuestionSet) -> Components:
        dense = resources.pairs(questions, system.encoder).cosines()
        return Components.of(questions, dense, resources.lexical(questions))

    fusion, note = resources.settings.fusion, ""
    if system.tuned:
        dev = resources.dev
        tried = components(dev.questions)

        def quality(weight: float) -> float:
            return dev(tried.fused(replace(fusion, method="convex", alpha=weight)))

        fusion = replace(fusion, method="convex", alpha=best_weight(quality))
        note = f"alpha {fusion.alpha:g}, chosen on {dev.questions.split}"
    elif system.variant:
        fusion = fixed_weight(fusion, system.variant)
    scores = components(resources.questions).fused(fusion)
    return SystemResult(system.text, (as_run(resources.questions, scores),), note)


def _search(system: System, resources: Resources, corpus: CorpusSearch) -> SystemResult:
    """BM25, cosine and hybrid rank the whole corpus where there are no pools."""
    if system.encoder:
        raise ConfigError(
            f"system {system.text!r}: the corpus is ranked with the encoder of its index; leave "
            "out what follows @, or give an index made with that encoder"
        )
    settings = SearchSettings(
        mode=_SEARCHES[system.kind], bm25=resources.settings.bm25, depth=corpus.depth
    )
    fusion, note = resources.settings.fusion, ""
    if system.tuned:
        dev = resources.dev.questions

        def quality(weight: float) -> float:
            fused = replace(settings, fusion=replace(fusion, method="convex", alpha=weight))
            qrels = {one.id: one.grades for one in dev.questions}
            return evaluate(corpus.run(dev, fused), qrels, [DEV_MEASURE]).means[DEV_MEASURE]

        fusion = replace(fusion, method="convex", alpha=best_weight(quality))
        note = f"alpha {fusion.alpha:g}, chosen on {dev.split}"
    elif system.variant:
        fusion = fixed_weight(fusion, system.variant)
    run = corpus.run(resources.questions, replace(settings, fusion=fusion))
    return SystemResult(system.text, (run,), note)


def _heads(system: System, resources: Resources) -> SystemResult:
    settings = resources.settings
    plan = settings.head.of(system.kind, system.variant or "linear")
    encoder = resources.encoder(system.encoder)
    train = resources.training_set(plan.training.sampling.negatives)
    vectors = training_vectors(
        encoder, train, settings.cache, lambda total: resources.stage("encoding train", total)
    )
    dev = resources.pairs(resources.dev.questions, system.encoder)
    pairs = resources.pairs(resources.questions, system.encoder)
    advance = resources.stage(f"training {system.text}", settings.seeds)
    runs, curves, chosen = [], [], []
    for seed in range(settings.seeds):
        trained = fit_head(plan.seeded(seed), vectors, train.pools, dev, resources.dev)
        runs.append(as_run(resources.questions, head_scores(trained.head.score, pairs)))
        curves.append(tuple(epoch.dev for epoch in trained.curve))
        chosen.append((trained.best, trained.curve[trained.best].dev))
        advance(1)
    return SystemResult(system.text, tuple(runs), _chosen(chosen), tuple(curves))


def _cross_encoders(system: System, resources: Resources) -> SystemResult:
    settings = resources.settings
    plan = replace(settings.cross, model=system.encoder or settings.cross.model)
    train = resources.training_set(plan.settings.sampling.negatives)
    runs, curves, chosen = [], [], []
    with ExitStack() as stack:
        models = settings.models or Path(stack.enter_context(TemporaryDirectory()))
        models.mkdir(parents=True, exist_ok=True)
        for seed in range(settings.cross_seeds):
            folder = models / f"{_UNSAFE.sub('-', system.text)}-seed-{seed}"
            seeded: CrossPlan = replace(plan, settings=replace(plan.settings, seed=seed))
            name = f"fine-tuning {system.text}, seed {seed}"
            curve = fit_cross_encoder(
                train, resources.dev, seeded, folder, watch=watch(name, resources)
            )
            runs.append(_cross_run(folder, resources))
            curves.append(tuple(epoch.dev for epoch in curve))
            kept = kept_epoch(curve, seeded.settings.tolerance)
            assert kept is not None
            chosen.append((kept.epoch, kept.dev))
    return SystemResult(system.text, tuple(runs), _chosen(chosen), tuple(curves))


def watch(name: str, resources: Resources) -> Watch:
    """Shows the steps of a fine-tuning as a stage, and says what each epoch came to."""
    advances: list[Callable[[int], None]] = []

    def step(done: Step) -> None:
        if not advances:
            advances.append(resources.stage(name, done.total))
            # Steps before a checkpoint.
            advances[0](done.number - 1)
        advances[0](1)

    return Watch(
        step=step,
        epoch=lambda one: resources.warn(
            f"{name}: epoch {one.epoch}, loss {one.loss:.4f}, dev MAP {100 * one.dev:.2f}"
        ),
    )


def _saved(system: System, resources: Resources) -> SystemResult:
    assert system.path is not None
    if kind_of(system.path) == CROSS_ENCODER:
        return SystemResult(system.text, (_cross_run(system.path, resources),))
    reranker = HeadReranker.load(system.path)
    encoder = str(reranker.spec)
    reranker.check_encoder(resources.encoder(encoder).spec)
    scores = head_scores(reranker.score, resources.pairs(resources.questions, encoder))
    return SystemResult(system.text, (as_run(resources.questions, scores),))


def _cross_run(folder: Path, resources: Resources) -> Run:
    settings = resources.settings
    model = read_cross_encoder(folder, device=settings.device, dtype=settings.dtype)
    left, right = resources.questions.pairs()
    advance = resources.stage(f"scoring with {folder.name}", len(left))
    scores: NDArray[np.float32] = model.score(left, right, advance)
    if model.cut:
        resources.warn(
            f"{folder.name}: the end of {model.cut:,} of {len(left):,} pairs was not read: they "
            f"are longer than the window of {model.max_length} word pieces"
        )
    return as_run(resources.questions, scores)


def _chosen(epochs: Sequence[tuple[int, float]]) -> str:
    """What dev said, over the seeds: of each the epoch that was kept, and its score."""
    scores = [100 * dev for _, dev in epochs]
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    numbers = ", ".join(str(epoch) for epoch, _ in epochs)
    return f"dev MAP {fmean(scores):.2f}{spread}, after epoch {numbers}"


_RANKERS: dict[str, Callable[[System, Resources], SystemResult]] = {
    "run": _run,
    "bm25": _bm25,
    "cosine": _cosine,
    "hybrid": _hybrid,
    "cross-encoder": _cross_encoders,
    "saved reranker": _saved,
}
