"""Probabilities that a query has an answer, learned from questions and tested.

Each question is ranked twice: as it is, and with its relevant documents left out, so that it has no
answer. Logistic regression on the features of `retriever.search.calibration`
is fitted on a random half of the questions. The other half sets the threshold of answers by split
conformal prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.metrics.comparison import interval, percent
from eval.metrics.significance import mean_interval, percentile_interval, resampling_weights
from eval.progress import Progress, silent
from eval.reports import Report, ReportedResult, Section, Table, environment
from eval.settings import CalibrationSettings
from retriever import Index, QueryVectors, SearchSettings
from retriever.errors import BadInputError, ConfigError, require_extra
from retriever.search import search_settings
from retriever.search.calibration import (
    HITS,
    Calibration,
    exclude_ids,
    feature_names,
    probabilities,
    query_features,
    ranking_of,
)

if TYPE_CHECKING:
    from eval.questions import MadeQuestions
    from retriever import Hit, Mode

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# With fewer questions, seven coefficients are unreliable.
_LEAST_QUESTIONS = 100
# Shares of false answers to test, besides the requested share.
_PROMISED_SHARES = (0.05, 0.1, 0.2)
_BINS = 10
_MADE_REMARK = (
    "People's questions differ from made ones: on three judged sets, false answers by made "
    "questions were 2.5%, 5.9% and 25.1% where 5% were promised. Judge a hundred questions to "
    "have a promise that holds."
)
_SIMULATION_REMARK = (
    "The error is measured with relevant documents left out of the ranking, for half of the "
    "queries. Where documents were really deleted, fewer queries had an answer, and the error was "
    "two to five times as large (docs/measurements/ranking.md)."
)
# Number of random draws for the calibration error by chance, and of questions encoded together.
_CHANCE_DRAWS = 200
_ENCODED_QUESTIONS = 256


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationResult(ReportedResult):
    """Learned probabilities, and their test on questions that they were not learned from.

    Attributes:
        calibration: the argument of `Index.keep_calibration`.
        figures: figures of the report as JSON values; shares, errors and areas are in [0, 1].
        command: the command that reproduces the result; may be empty.
    """

    calibration: Calibration
    figures: Mapping[str, Any]
    command: str = ""

    def report(self) -> Report:
        """Return the report."""
        calibration = self.calibration
        figures = self.figures
        origin = " made from documents" if calibration.made else ""
        share = calibration.false_answers
        facts = {
            "answers withheld": self._describe_cost(),
            "mode": calibration.mode,
            "questions": f"{calibration.questions:,}{origin}",
            "tested with a relevant document among ten hits": percent(figures["found"]) + "%",
            "threshold": f"{calibration.threshold:.4f} for {share:.1%} false answers",
        }
        rows = {
            name: [(key, *map(_cell, cells.values())) for key, cells in figures[name].items()]
            for name in ("promises", "calibration_error", "area")
        }
        tables = (
            Table(
                ("promised", "false answers", "95% interval", "answered", "95% interval"),
                tuple((percent(float(key)), *cells) for key, *cells in rows["promises"]),
                "Questions without an answer that get one, and those with one that get it, %",
            ),
            Table(
                ("probability of", "error", "by chance"),
                tuple(rows["calibration_error"]),
                "Expected calibration error, and that of probabilities that are right, %",
            ),
            Table(
                ("confidence", "area", "below the first by", "95% interval"),
                tuple(rows["area"]),
                "Area under accuracy against abstention, %",
            ),
        )
        remarks = (
            "All figures are of questions that were not learned from, each of them also without "
            "its relevant documents.",
            _SIMULATION_REMARK,
            *([_MADE_REMARK] if calibration.made else []),
        )
        return Report(
            "calibration",
            "Probability of an answer",
            (Section("", facts, tables, remarks, brief=True),),
            {"calibration": asdict(calibration), **figures},
            self.command,
            environment(None),
        )

    def _describe_cost(self) -> str:
        """Describe the cost of the promise: how many answers are withheld."""
        share = self.calibration.false_answers
        promise = self.figures["promises"][f"{share:g}"]
        answered = promise["answered"]
        limits = promise["answered_interval"]
        count = round(self.figures["found"] * self.figures["tested"])
        answers = f"{percent(answered)}% ({interval(*limits)}) of the {count:,} questions"
        return (
            f"with at most {share:.1%} false answers, {answers} with a relevant hit are answered; "
            "the others get the note that perhaps nothing relevant was found"
        )


class _Rankings(NamedTuple):
    """n questions with their hits; row 1 of (2, n) is without the relevant documents."""

    # (2, n, features)
    query: Floats
    # (2, n) whether one of the hits is relevant
    relevant: Flags
    # simple measures of confidence: name to (2, n) values
    confidences: Mapping[str, Floats]
    # (hits, features) of all hits of all questions
    hits: Floats
    # (hits,) whether the hit is relevant
    hit_relevant: Flags
    # (hits,) number of the question
    hit_questions: NDArray[np.int64]


class _TestedProbabilities(NamedTuple):
    """Probabilities of n test questions and of their hits."""

    # (2, n) of an answer
    answer: Floats
    # (hits,) of relevance
    hit: Floats
    # for each permitted share of false answers: (2, n) whether the question gets an answer
    is_answered: Mapping[float, Flags]


def calibrate(
    index: Index,
    queries: Mapping[str, str] | None = None,
    qrels: Mapping[str, Mapping[str, int]] | None = None,
    settings: CalibrationSettings | None = None,
    *,
    search: SearchSettings | None = None,
    made: MadeQuestions | None = None,
    progress: Progress = silent,
    command: str = "",
) -> CalibrationResult:
    """Learn probabilities that hits of an index are relevant; `Index.keep_calibration` stores them.

    Args:
        index: holds the documents; it is not changed.
        queries: id to text; None with `made` only.
        qrels: query to document to grade; 1 and more is relevant. Queries without a relevant
            document in the index are left out.
        settings: how to learn; None takes the defaults.
        search: how to rank; `k`, `raw` and `collapse` do not count.
        made: questions that were made from the documents of the index, to learn from; `queries`,
            if there are any, then test.
        progress: see `Progress`.
        command: the command that reproduces the result.

    Raises:
        BadInputError: too few questions have a relevant document, or none of them is found.
        ConfigError: there are no questions; or questions are made, and the index is no folder.
        MissingExtraError: scikit-learn is not installed.
        What `Index.search` and, with made questions, `Index.add` raise.
    """
    require_extra("sentences", "calibration", "sklearn")
    settings = settings or CalibrationSettings()
    search = search_settings(search, {"k": HITS, "raw": True, "collapse": False})
    judged = made_rankings = None
    if queries is not None:
        judged = _rank_questions(index, queries, qrels or {}, settings, search, progress)
    if made is not None:
        made_rankings = _rank_made_questions(index, made, settings, search, progress)
    training, test = _training_and_test(judged, made_rankings)
    random = np.random.default_rng(settings.seed)
    rows = random.permutation(training.relevant.shape[1])
    tested = _test_probabilities(training, test, rows, search.mode, settings, random)
    hit, query, unanswered = _fit_regressions(training, rows, search.mode, random)
    calibration = Calibration(
        mode=search.mode,
        hit=hit,
        query=query,
        threshold=conformal_threshold(unanswered, settings.false_answers),
        false_answers=settings.false_answers,
        questions=len(rows),
        made=made is not None,
        passages=int(index.info()["passages"]),
        ranking=ranking_of(search, index.default_weight),
    )
    return CalibrationResult(calibration, _compute_figures(test, tested, settings, random), command)


def _training_and_test(
    judged: _Rankings | None, generated: _Rankings | None
) -> tuple[_Rankings, _Rankings]:
    """Return the questions to learn from (made if any), and to test on (judged if any)."""
    training = generated or judged
    test = judged or generated
    if training is None or test is None:
        raise ConfigError("queries: expected judged or made questions, found neither")
    if not test.relevant[0].any():
        raise _no_relevant_hit()
    return training, test


def _rank_made_questions(
    index: Index,
    questions: MadeQuestions,
    settings: CalibrationSettings,
    search: SearchSettings,
    progress: Progress,
) -> _Rankings:
    """Rank made questions on a copy of the index without the text that became questions."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "index"
        index.snapshot(copy)
        with Index.open(copy, encoder=index.encoder) as changed:
            changed.add(questions.documents, prune=True)
            return _rank_questions(
                changed, questions.queries, questions.qrels, settings, search, progress
            )


def _test_probabilities(
    training: _Rankings,
    test: _Rankings,
    rows: NDArray[np.int64],
    mode: Mode,
    settings: CalibrationSettings,
    random: np.random.Generator,
) -> _TestedProbabilities:
    """Return probabilities of test questions, which were not learned from.

    If the test questions are also the training questions, they are divided into folds.
    """
    uses_folds = test is training
    if uses_folds:
        parts = np.array_split(rows, settings.folds)
    else:
        parts = [np.arange(test.relevant.shape[1])]
    answer = np.zeros(test.relevant.shape)
    hit = np.zeros(len(test.hit_relevant))
    shares = sorted({*_PROMISED_SHARES, settings.false_answers})
    is_answered = {share: np.zeros(test.relevant.shape, np.bool_) for share in shares}
    for part in parts:
        training_rows = np.setdiff1d(rows, part) if uses_folds else rows
        hit_weights, query_weights, unanswered = _fit_regressions(
            training, training_rows, mode, random
        )
        answer[:, part] = probabilities(query_weights, test.query[:, part])
        of_part = np.isin(test.hit_questions, part)
        hit[of_part] = probabilities(hit_weights, test.hits[of_part])
        for share, flags in is_answered.items():
            flags[:, part] = answer[:, part] >= conformal_threshold(unanswered, share)
    return _TestedProbabilities(answer, hit, is_answered)


def _compute_figures(
    test: _Rankings,
    tested: _TestedProbabilities,
    settings: CalibrationSettings,
    random: np.random.Generator,
) -> dict[str, Any]:
    relevant = test.relevant
    return {
        "tested": relevant.shape[1],
        "found": float(relevant[0].mean()),
        "promises": {
            f"{share:g}": {
                **_share_with_interval("false_answers", without_answer),
                **_share_with_interval("answered", with_answer[relevant[0]]),
            }
            for share, (with_answer, without_answer) in tested.is_answered.items()
        },
        "calibration_error": {
            "an answer": _error_and_chance(relevant.ravel(), tested.answer.ravel(), random),
            "a relevant hit": _error_and_chance(test.hit_relevant, tested.hit, random),
        },
        "area": _compare_areas(
            relevant, {"probability": tested.answer, **test.confidences}, settings
        ),
    }


def conformal_threshold(scores: Floats, share: float) -> float:
    """Return a threshold that at most this share of scores like (n,) scores reach.

    The threshold is just above the ceil((n + 1)(1 - share))-th smallest score. A further score from
    the same distribution reaches it with a probability of at most `share`, if all are exchangeable
    (Papadopoulos et al. 2002; Vovk, Gammerman and Shafer 2005).
    """
    rank = math.ceil((len(scores) + 1) * (1 - share) - 1e-9)
    if rank > len(scores):
        raise ConfigError(
            f"false answers: expected at least {math.ceil(1 / share - 1)} questions for a share of "
            f"{share:g}, found {len(scores)}"
        )
    return float(np.nextafter(np.sort(scores)[rank - 1], np.inf))


def calibration_error(relevant: Flags, probability: Floats) -> float:
    """Return the expected calibration error of (n,) probabilities, in [0, 1].

    It is the mean absolute difference between mean probability and relevant share over ten bins of
    equal width, weighted by their sizes (Naeini et al. 2015).
    """
    bins = np.minimum((probability * _BINS).astype(np.int64), _BINS - 1)
    return float(np.abs(np.bincount(bins, probability - relevant, _BINS)).sum() / len(relevant))


def abstention_area(relevant: Flags, confidence: Floats, weights: Floats) -> Floats:
    """Return (resamples,) areas under accuracy against abstention, in [0, 1].

    An area is the mean, over j = 1 to n, of the accuracy of the j most confident of n queries
    (Gisserot-Boukhlef et al. 2024). Accuracy is the share of queries with a relevant hit. Equally
    confident queries keep their order.

    Args:
        relevant: (n,) whether a query has a relevant hit.
        confidence: (n,).
        weights: (resamples, n).
    """
    order = np.argsort(-confidence, kind="stable")
    ordered = weights[:, order]
    sums = np.cumsum(ordered, axis=1)
    accuracy = np.cumsum(ordered * relevant[order], axis=1) / np.maximum(sums, 1e-300)
    area: Floats = (ordered * accuracy).sum(axis=1) / sums[:, -1]
    return area


def _rank_questions(
    index: Index,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    settings: CalibrationSettings,
    search: SearchSettings,
    progress: Progress,
) -> _Rankings:
    """Rank questions with and without their relevant documents; refuse too few."""
    relevant_ids = _draw_questions(index, queries, qrels, settings)
    texts = [queries[id_] for id_ in relevant_ids]
    vectors = None
    if search.mode != "bm25":
        vectors = _encode_questions(index, texts, progress)
    done = progress("ranking questions", len(texts))
    shape = (2, len(texts))
    names = feature_names(search.mode)
    query = np.zeros((*shape, len(names) - 1))
    relevant = np.zeros(shape, np.bool_)
    confidences: dict[str, Floats] = {}
    features = [np.zeros((0, len(names)))]
    hit_relevant = list[bool]()
    hit_questions = list[int]()
    for number, (text, ids) in enumerate(zip(texts, relevant_ids.values(), strict=True)):
        vector = vectors and vectors._replace(vectors=vectors.vectors[number : number + 1])
        for row, filter_text in enumerate((None, exclude_ids(sorted(ids)))):
            (hits,) = index.search_many([text], search, where=filter_text, ready=vector)
            for name, value in _plain_confidences(hits, search.mode):
                confidences.setdefault(name, np.zeros(shape))[row, number] = value
            if hits:
                features.append(index.hit_features(text, hits, search.mode))
                query[row, number] = query_features(features[-1])
                hit_relevant += [hit.id in ids for hit in hits]
                hit_questions += [number] * len(hits)
                relevant[row, number] = any(hit_relevant[-len(hits) :])
        done(1)
    return _Rankings(
        query,
        relevant,
        confidences,
        np.concatenate(features),
        np.array(hit_relevant),
        np.array(hit_questions),
    )


def _draw_questions(
    index: Index,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    settings: CalibrationSettings,
) -> dict[str, set[str]]:
    """Draw random questions; return their ids with their relevant documents in the index."""
    relevant_ids = {
        id_: {
            document
            for document, grade in qrels.get(id_, {}).items()
            if grade >= 1 and document in index
        }
        for id_ in queries
    }
    relevant_ids = {id_: ids for id_, ids in relevant_ids.items() if ids}
    # Half of the questions outside a fold set the threshold.
    share = 2 * settings.folds / (settings.folds - 1)
    needed = max(
        _LEAST_QUESTIONS, math.ceil(share / min(settings.false_answers, *_PROMISED_SHARES))
    )
    if len(relevant_ids) < needed:
        remedy = "give more questions, or more documents to make them from"
        if needed > _LEAST_QUESTIONS:
            remedy += ", or allow more false answers"
        raise BadInputError(
            f"questions: expected at least {needed} with a relevant document in the index, for at "
            f"most {settings.false_answers:.1%} false answers, found {len(relevant_ids):,} among "
            f"{len(queries):,}; {remedy}"
        )
    random = np.random.default_rng(settings.seed)
    drawn_ids = random.permutation(list(relevant_ids))[: settings.questions]
    return {id_: relevant_ids[id_] for id_ in drawn_ids.tolist()}


def _encode_questions(index: Index, texts: Sequence[str], progress: Progress) -> QueryVectors:
    done = progress("encoding questions", len(texts))
    encoder = index.query_encoder
    vectors = []
    for start in range(0, len(texts), _ENCODED_QUESTIONS):
        vectors.append(encoder.encode(texts[start : start + _ENCODED_QUESTIONS], query=True))
        done(len(vectors[-1]))
    return QueryVectors(np.concatenate(vectors), encoder.spec)


def _plain_confidences(hits: Sequence[Hit], mode: Mode) -> Iterator[tuple[str, float]]:
    """Yield simple measures of confidence from the ranking score and, in hybrid, its components."""
    for kind in ("score", *(("dense", "bm25") if mode == "hybrid" else ())):
        scores = np.sort([getattr(hit, kind) for hit in hits] or [0.0])[::-1]
        yield f"maximum of {kind}", float(scores[0])
        yield f"standard deviation of {kind}", float(scores.std())
        yield f"first minus second of {kind}", float(scores[0] - scores[1:2].sum())


def _fit_regressions(
    rankings: _Rankings, rows: NDArray[np.int64], mode: Mode, random: np.random.Generator
) -> tuple[dict[str, float], dict[str, float], Floats]:
    """Fit coefficients for hits and for queries on a random half of the questions at `rows`.

    Returns:
        Both coefficients, and the probabilities of the other half without relevant documents.
    """
    fit_rows, threshold_rows = np.array_split(random.permutation(rows), 2)
    names = feature_names(mode)
    is_fit = np.isin(rankings.hit_questions, fit_rows)
    hit = _fit_logistic(rankings.hits[is_fit], rankings.hit_relevant[is_fit], names)
    features = np.concatenate(rankings.query[:, fit_rows])
    query = _fit_logistic(features, rankings.relevant[:, fit_rows].ravel(), names[:-1])
    return hit, query, probabilities(query, rankings.query[1, threshold_rows])


def _fit_logistic(features: Floats, relevant: Flags, names: Sequence[str]) -> dict[str, float]:
    """Return coefficients of a logistic regression, regularized on features of equal variance."""
    from sklearn.linear_model import LogisticRegression

    if not relevant.any():
        raise _no_relevant_hit()
    if relevant.all():
        raise BadInputError(
            f"questions: expected irrelevant documents among the first {HITS} hits, found none; "
            "leave out questions that every document answers, or check the grades"
        )
    mean = features.mean(axis=0)
    spread = features.std(axis=0)
    spread[spread == 0] = 1
    model = LogisticRegression(max_iter=1000).fit((features - mean) / spread, relevant)
    weights = model.coef_[0] / spread
    constant = float(model.intercept_[0] - weights @ mean)
    return {"constant": constant, **dict(zip(names, weights.tolist(), strict=True))}


def _no_relevant_hit() -> BadInputError:
    return BadInputError(
        f"questions: expected a relevant document among the first {HITS} hits of a question, "
        "found none; check that the judgments name documents of the index"
    )


def _share_with_interval(name: str, flags: Flags) -> dict[str, Any]:
    values = flags.astype(np.float64)
    return {name: float(values.mean()), f"{name}_interval": mean_interval(values, 0.0)}


def _error_and_chance(
    relevant: Flags, probability: Floats, random: np.random.Generator
) -> dict[str, float]:
    """Return the calibration error, and its mean if the probabilities were right."""
    drawn_relevance = (random.random(len(relevant)) < probability for _ in range(_CHANCE_DRAWS))
    chance = float(np.mean([calibration_error(flags, probability) for flags in drawn_relevance]))
    return {"error": calibration_error(relevant, probability), "by_chance": chance}


def _compare_areas(
    relevant: Flags, confidences: Mapping[str, Floats], settings: CalibrationSettings
) -> dict[str, dict[str, Any]]:
    """Return the area of each confidence, and its bootstrapped distance from the first."""
    random = np.random.default_rng(settings.seed)
    questions = relevant.shape[1]
    # Equal confidences are in random order.
    order = random.permutation(2 * questions)
    resamples = resampling_weights(questions, settings.resamples, random)
    weights = np.tile(np.concatenate([np.ones((1, questions)), *resamples]), 2)[:, order]
    areas = {
        name: abstention_area(relevant.ravel()[order], confidence.ravel()[order], weights)
        for name, confidence in confidences.items()
    }
    first_area = next(iter(areas.values()))
    return {
        name: {
            "area": float(area[0]),
            "difference": float(first_area[0] - area[0]),
            "interval": percentile_interval((first_area - area)[1:], questions),
        }
        for name, area in areas.items()
    }


def _cell(value: Any) -> str:
    return interval(*value) if isinstance(value, tuple) else percent(value)
