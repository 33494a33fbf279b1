"""Whether a query has an answer: probabilities that are learned from questions, and tested.

Each question is ranked twice, as it is and with its relevant documents left out, which makes a
question without an answer. Logistic regression on the features of `retriever.search.calibration`
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
# With fewer questions, seven coefficients say little.
_LEAST = 100
# Shares of false answers that are tested beside the one that is asked for.
_PROMISES = (0.05, 0.1, 0.2)
_BINS = 10
_MADE = (
    "People's questions differ from made ones: on three judged sets, false answers by made "
    "questions were 2.5%, 5.9% and 25.1% where 5% were promised. Judge a hundred questions to "
    "have a promise that holds."
)
_SIMULATED = (
    "The error is measured with relevant documents left out of the ranking, for half of the "
    "queries. Where documents were really deleted, fewer queries had an answer, and the error was "
    "two to five times as large (docs/ranking.md)."
)
# Random draws of the calibration error by chance, and questions that are encoded together.
_DRAWS = 200
_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationResult(ReportedResult):
    """What was learned, and how well it holds for questions that it was not learned from.

    Attributes:
        calibration: what `Index.keep_calibration` takes.
        figures: of the report, as JSON values; shares, errors and areas are in [0, 1].
        command: reproduces it; may be empty.
    """

    calibration: Calibration
    figures: Mapping[str, Any]
    command: str = ""

    def report(self) -> Report:
        """The result for a reader."""
        learned = self.calibration
        figures = self.figures
        facts = {
            "answers withheld": self._cost(),
            "mode": learned.mode,
            "questions": f"{learned.questions:,}{' made from documents' if learned.made else ''}",
            "tested with a relevant document among ten hits": percent(figures["found"]) + "%",
            "threshold": f"{learned.threshold:.4f} for {learned.false_answers:.1%} false answers",
        }
        rows = {
            name: [(key, *map(_shown, one.values())) for key, one in figures[name].items()]
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
            _SIMULATED,
            *([_MADE] if learned.made else []),
        )
        return Report(
            "calibration",
            "Probability of an answer",
            (Section("", facts, tables, remarks, brief=True),),
            {"calibration": asdict(learned), **figures},
            self.command,
            environment(None),
        )

    def _cost(self) -> str:
        """Say what the promise costs: how many answers are withheld to keep it."""
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


class _Ranked(NamedTuple):
    """n questions with their hits; row 1 of (2, n) is without the relevant documents."""

    query: Floats  # (2, n, features)
    relevant: Flags  # (2, n) whether one of the hits is relevant
    plain: Mapping[str, Floats]  # plain measure of confidence to (2, n)
    hits: Floats  # (hits, features) of all hits of all questions
    of_hits: Flags  # (hits,) whether each is relevant
    owners: NDArray[np.int64]  # (hits,) the question of each


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
        queries: id to text; None with `made` alone.
        qrels: query to document to grade; 1 and more is relevant. Queries without a relevant
            document in the index are left out.
        settings: how to learn; None takes the defaults.
        search: how to rank; `k`, `raw` and `collapse` do not count.
        made: questions that were made from the documents of the index, to learn from; what was
            learned is then tested on `queries`, if they are given.
        progress: see `Progress`.
        command: what reproduces the result.

    Raises:
        BadInputError: too few questions have a relevant document, or none of them is found.
        ConfigError: there are no questions; or questions are made, and the index is no folder.
        MissingExtraError: scikit-learn is not installed.
        What `Index.search` and, with made questions, `Index.add` raise.
    """
    require_extra("sentences", "calibration", "sklearn")
    settings = settings or CalibrationSettings()
    asked = search_settings(search, {"k": HITS, "raw": True, "collapse": False})
    given = taught = None
    if queries is not None:
        given = _ranked(index, queries, qrels or {}, settings, asked, progress)
    if made is not None:
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "index"
            index.snapshot(copy)
            with Index.open(copy, encoder=index.encoder) as changed:
                changed.add(made.documents, prune=True)
                taught = _ranked(changed, made.queries, made.qrels, settings, asked, progress)
    taught, tested = taught or given, given or taught
    if taught is None or tested is None:
        raise ConfigError("queries: expected judged or made questions, found neither")
    if not tested.relevant[0].any():
        raise _none_found()
    random = np.random.default_rng(settings.seed)
    everyone = random.permutation(taught.relevant.shape[1])
    parts = np.array_split(everyone, settings.folds)
    if tested is not taught:
        parts = [np.arange(tested.relevant.shape[1])]
    probability = np.zeros(tested.relevant.shape)
    of_hits = np.zeros(len(tested.of_hits))
    shares = sorted({*_PROMISES, settings.false_answers})
    reached = {share: np.zeros(tested.relevant.shape, np.bool_) for share in shares}
    for part in parts:
        rows = np.setdiff1d(everyone, part) if tested is taught else everyone
        hit, query, others = _learned(taught, rows, asked.mode, random)
        probability[:, part] = probabilities(query, tested.query[:, part])
        of_part = np.isin(tested.owners, part)
        of_hits[of_part] = probabilities(hit, tested.hits[of_part])
        for share, flags in reached.items():
            flags[:, part] = probability[:, part] >= conformal_threshold(others, share)
    hit, query, others = _learned(taught, everyone, asked.mode, random)
    calibration = Calibration(
        asked.mode,
        hit,
        query,
        conformal_threshold(others, settings.false_answers),
        settings.false_answers,
        len(everyone),
        made is not None,
        int(index.info()["passages"]),
        ranking_of(asked, index.default_weight),
    )
    found = tested.relevant
    figures = {
        "tested": found.shape[1],
        "found": float(found[0].mean()),
        "promises": {
            f"{share:g}": {**_share("false_answers", no), **_share("answered", yes[found[0]])}
            for share, (yes, no) in reached.items()
        },
        "calibration_error": {
            "an answer": _errors(found.ravel(), probability.ravel(), random),
            "a relevant hit": _errors(tested.of_hits, of_hits, random),
        },
        "area": _areas(found, {"probability": probability, **tested.plain}, settings),
    }
    return CalibrationResult(calibration, figures, command)


def conformal_threshold(scores: Floats, share: float) -> float:
    """A threshold that at most this share of scores like (n,) scores reach.

    It is just above the ceil((n + 1)(1 - share))-th smallest. A further score that is exchangeable
    with them, whatever their distribution, reaches it with a probability of at most `share`
    (Papadopoulos et al. 2002; Vovk, Gammerman and Shafer 2005).
    """
    rank = math.ceil((len(scores) + 1) * (1 - share) - 1e-9)
    if rank > len(scores):
        raise ConfigError(
            f"false answers: expected at least {math.ceil(1 / share - 1)} questions for a share of "
            f"{share:g}, found {len(scores)}"
        )
    return float(np.nextafter(np.sort(scores)[rank - 1], np.inf))


def calibration_error(found: Flags, probability: Floats) -> float:
    """The expected calibration error of (n,) probabilities, in [0, 1] (Naeini et al. 2015).

    The mean over ten bins of equal width, weighted by their sizes, of the absolute difference
    between the mean probability and the share found.
    """
    bins = np.minimum((probability * _BINS).astype(np.int64), _BINS - 1)
    return float(np.abs(np.bincount(bins, probability - found, _BINS)).sum() / len(found))


def abstention_area(found: Flags, confidence: Floats, weights: Floats) -> Floats:
    """(resamples,) areas under accuracy against abstention, in [0, 1], of (resamples, n) weights.

    The mean accuracy of the j most confident of n queries over j = 1 to n (Gisserot-Boukhlef et
    al. 2024, with whether there is a relevant hit as the measure); equal ones keep their order.
    """
    order = np.argsort(-confidence, kind="stable")
    ordered = weights[:, order]
    sums = np.cumsum(ordered, axis=1)
    accuracy = np.cumsum(ordered * found[order], axis=1) / np.maximum(sums, 1e-300)
    area: Floats = (ordered * accuracy).sum(axis=1) / sums[:, -1]
    return area


def _ranked(
    index: Index,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    settings: CalibrationSettings,
    search: SearchSettings,
    progress: Progress,
) -> _Ranked:
    """Rank questions with and without their relevant documents; refuse too few."""
    judged = {
        id_: {one for one, grade in qrels.get(id_, {}).items() if grade >= 1 and one in index}
        for id_ in queries
    }
    judged = {id_: answers for id_, answers in judged.items() if answers}
    # Half of those that a part is not tested on set the threshold.
    share = 2 * settings.folds / (settings.folds - 1)
    needed = max(_LEAST, math.ceil(share / min(settings.false_answers, *_PROMISES)))
    if len(judged) < needed:
        raise BadInputError(
            f"questions: expected at least {needed} with a relevant document in the index, for at "
            f"most {settings.false_answers:.1%} false answers, found {len(judged):,} among "
            f"{len(queries):,}; give more, or allow more false answers"
        )
    drawn = np.random.default_rng(settings.seed).permutation(list(judged))[: settings.questions]
    judged = {id_: judged[id_] for id_ in drawn.tolist()}
    texts = [queries[id_] for id_ in judged]
    ready = None
    if search.mode != "bm25":
        done = progress("encoding questions", len(texts))
        encoder = index.query_encoder
        vectors = []
        for start in range(0, len(texts), _AT_ONCE):
            vectors.append(encoder.encode(texts[start : start + _AT_ONCE], query=True))
            done(len(vectors[-1]))
        ready = QueryVectors(np.concatenate(vectors), encoder.spec)
    done = progress("ranking questions", len(texts))
    shape = (2, len(texts))
    names = feature_names(search.mode)
    query = np.zeros((*shape, len(names) - 1))
    relevant = np.zeros(shape, np.bool_)
    plain: dict[str, Floats] = {}
    features = [np.zeros((0, len(names)))]
    of_hits = list[bool]()
    owners = list[int]()
    for place, (text, answers) in enumerate(zip(texts, judged.values(), strict=True)):
        own = ready and ready._replace(vectors=ready.vectors[place : place + 1])
        for row, where in enumerate((None, exclude_ids(sorted(answers)))):
            (hits,) = index.search_many([text], search, where=where, ready=own)
            for name, value in _plain(hits, search.mode):
                plain.setdefault(name, np.zeros(shape))[row, place] = value
            if hits:
                features.append(index.hit_features(text, hits, search.mode))
                query[row, place] = query_features(features[-1])
                of_hits += [hit.id in answers for hit in hits]
                owners += [place] * len(hits)
                relevant[row, place] = any(of_hits[-len(hits) :])
        done(1)
    return _Ranked(
        query, relevant, plain, np.concatenate(features), np.array(of_hits), np.array(owners)
    )


def _plain(hits: Sequence[Hit], mode: Mode) -> Iterator[tuple[str, float]]:
    """Plain measures of confidence by the score that ranks and, in hybrid, by its components."""
    for of in ("score", *(("dense", "bm25") if mode == "hybrid" else ())):
        scores = np.sort([getattr(hit, of) for hit in hits] or [0.0])[::-1]
        yield f"maximum of {of}", float(scores[0])
        yield f"standard deviation of {of}", float(scores.std())
        yield f"first minus second of {of}", float(scores[0] - scores[1:2].sum())


def _learned(
    ranked: _Ranked, rows: NDArray[np.int64], mode: Mode, random: np.random.Generator
) -> tuple[dict[str, float], dict[str, float], Floats]:
    """Coefficients for hits and for queries from half of some questions, and the probabilities of
    the other half without its relevant documents.
    """
    fitted, held = np.array_split(random.permutation(rows), 2)
    names = feature_names(mode)
    of_fitted = np.isin(ranked.owners, fitted)
    features = np.concatenate(ranked.query[:, fitted])
    found = ranked.relevant[:, fitted].ravel()
    hit = _logistic(ranked.hits[of_fitted], ranked.of_hits[of_fitted], names)
    query = _logistic(features, found, names[:-1])
    return hit, query, probabilities(query, ranked.query[1, held])


def _logistic(features: Floats, found: Flags, names: Sequence[str]) -> dict[str, float]:
    """Coefficients of a logistic regression, regularized on features of equal variance."""
    from sklearn.linear_model import LogisticRegression

    if not found.any():
        raise _none_found()
    if found.all():
        raise BadInputError(
            f"questions: expected documents that are not relevant among the first {HITS} hits, "
            "found none: such hits teach no difference; leave out questions that every document "
            "answers, or check the grades"
        )
    mean = features.mean(axis=0)
    spread = features.std(axis=0)
    spread[spread == 0] = 1
    model = LogisticRegression(max_iter=1000).fit((features - mean) / spread, found)
    weights = model.coef_[0] / spread
    constant = float(model.intercept_[0] - weights @ mean)
    return {"constant": constant, **dict(zip(names, weights.tolist(), strict=True))}


def _none_found() -> BadInputError:
    return BadInputError(
        f"questions: expected a relevant document among the first {HITS} hits of some, found none; "
        "check that the judgments are of the documents of the index"
    )


def _share(name: str, flags: Flags) -> dict[str, Any]:
    values = flags.astype(np.float64)
    return {name: float(values.mean()), f"{name}_interval": mean_interval(values, 0.0)}


def _errors(found: Flags, probability: Floats, random: np.random.Generator) -> dict[str, float]:
    """The calibration error, and its mean where the probabilities are right."""
    drawn = (random.random(len(found)) < probability for _ in range(_DRAWS))
    chance = float(np.mean([calibration_error(one, probability) for one in drawn]))
    return {"error": calibration_error(found, probability), "by_chance": chance}


def _areas(
    found: Flags, confidences: Mapping[str, Floats], settings: CalibrationSettings
) -> dict[str, dict[str, Any]]:
    """The area of each confidence, and how far it is below the first, by a bootstrap."""
    random = np.random.default_rng(settings.seed)
    questions = found.shape[1]
    # Equal confidences in any order.
    mixed = random.permutation(2 * questions)
    drawn = resampling_weights(questions, settings.resamples, random)
    weights = np.tile(np.concatenate([np.ones((1, questions)), *drawn]), 2)[:, mixed]
    areas = {
        name: abstention_area(found.ravel()[mixed], one.ravel()[mixed], weights)
        for name, one in confidences.items()
    }
    best = next(iter(areas.values()))
    return {
        name: {
            "area": float(area[0]),
            "difference": float(best[0] - area[0]),
            "interval": percentile_interval((best - area)[1:], questions),
        }
        for name, area in areas.items()
    }


def _shown(value: Any) -> str:
    return interval(*value) if isinstance(value, tuple) else percent(value)
