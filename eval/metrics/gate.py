"""The gate: a paired non-inferiority test of two rankings for continuous integration.

A candidate passes if every measure rules out a drop of the margin or more. It fails if a measure
shows a drop and does not rule out the margin. Otherwise there are too few questions to tell.
Rankings that are the same, hit for hit, pass with any number of questions; equal values of a
measure are not enough for that. A pass needs no correction, since all measures must pass (Berger
1982). Drops are corrected by Holm's method over the measures, since one drop is enough.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from eval.metrics.comparison import Comparison, Qrels, Run, compare, percent, shortened
from eval.metrics.measures import ranked_documents
from eval.metrics.significance import detectable_drop, holm, noninferiority_test
from eval.metrics.trec import read_qrels, read_run
from eval.reports import Report, ReportedResult, Section, Table, environment, markdown_lines
from eval.settings import GateSettings
from retriever.errors import BadInputError
from retriever.index import Index
from retriever.search import SearchSettings
from retriever.terminal import on_one_line

Verdict = Literal["pass", "fail", "too few questions"]
Ranking = Run | str | os.PathLike[str] | Index
"""Query to document to score, the file of a TREC run, or an index."""

_SIDES = ("baseline", "candidate")
# Probability that the smallest detectable drop fails.
_POWER = 0.8
# Hits to search for where neither side is a run.
_HITS = 100
_LONGEST_QUESTION = 80


@dataclass(frozen=True, slots=True)
class GatedMeasure:
    """A candidate against the baseline by one measure, which is in [0, 1].

    Attributes:
        baseline, candidate: means over the questions.
        low: the least difference that is not ruled out; see `noninferiority_test`.
        p_margin: p-value of the non-inferiority test.
        p_drop: p-value of the one-sided randomization test, after Holm's correction.
        detectable: the smallest drop that fails with a probability of 80%; see `detectable_drop`.
        lost: the questions that lost most and their differences, the greatest loss first.
    """

    baseline: float
    candidate: float
    low: float
    p_margin: float
    p_drop: float
    detectable: float | None
    verdict: Verdict
    lost: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class GateResult(ReportedResult):
    """The verdict on a candidate.

    Attributes:
        sides: side ("baseline" and "candidate") to the name of its ranking.
        comparison: both sides by all measures.
        measures: measure to the tests of the gate.
        settings: margin, measures and tests.
        queries: query id to text.
        command: reproduces the result; may be empty.
        longest: side to the hits of its longest list, for each side that is a run.
        identical: whether both rank the same documents in the same order for each counted query.
    """

    sides: Mapping[str, str]
    comparison: Comparison
    measures: Mapping[str, GatedMeasure]
    settings: GateSettings
    queries: Mapping[str, str]
    command: str = ""
    longest: Mapping[str, int] = field(default_factory=dict)
    identical: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict of all measures: fail if one fails, pass if all pass."""
        order: tuple[Verdict, ...] = ("fail", "too few questions", "pass")
        verdicts = {measure.verdict for measure in self.measures.values()}
        return next(verdict for verdict in order if verdict in verdicts)

    def report(self) -> Report:
        """Return the result for a reader, with gate.md for a pull request and junit.xml."""
        questions = len(self.comparison.queries)
        report = Report(
            "gate",
            f"Gate: {self.verdict}",
            (
                Section(
                    facts={**self.sides, "questions": f"{questions:,}"},
                    tables=(self._table(),),
                    remarks=tuple(self._remarks()),
                    brief=True,
                ),
                *self._losses(),
            ),
            {
                "verdict": self.verdict,
                **self.sides,
                "questions": questions,
                "identical": self.identical,
                "missing": dict(self.comparison.missing),
                "settings": asdict(self.settings),
                "measures": {name: asdict(measure) for name, measure in self.measures.items()},
            },
            self.command,
        )
        files = {
            "gate.md": lambda: (f"{line}\n" for line in markdown_lines(report, (), ())),
            "junit.xml": self._junit,
        }
        return replace(report, environment=environment(None), files=files)

    def _table(self) -> Table:
        columns = (
            *("measure", *_SIDES, "difference", "at worst", "p of a drop", "p of the margin"),
            *("smallest drop found", "verdict"),
        )
        rows = tuple(
            (
                name,
                percent(measure.baseline),
                percent(measure.candidate),
                f"{100 * (measure.candidate - measure.baseline):+.2f}",
                f"{100 * measure.low:+.2f}",
                f"{measure.p_drop:.4f}",
                f"{measure.p_margin:.4f}",
                "" if measure.detectable is None else percent(measure.detectable),
                measure.verdict,
            )
            for name, measure in self.measures.items()
        )
        return Table(columns, rows, "Points of 100")

    def _remarks(self) -> Iterator[str]:
        margin = f"{self.settings.margin:g} points"
        level = self.settings.level
        if self.identical:
            questions = f"{len(self.comparison.queries):,} questions"
            yield (
                f"both rankings are the same, hit for hit, for all {questions}: a pass, whatever "
                "the tests say; it shows nothing about other questions"
            )
        yield (
            f"pass: a drop of {margin} or more is ruled out; fail: a drop is shown, and {margin} "
            f"are not ruled out; at the level {level:g}, a drop after Holm's correction"
        )
        yield (
            "at worst: greater drops are ruled out; smallest drop found: fails in 80% of cases if "
            "all questions lose alike, and differ as much as here"
        )
        for side, missing in self.comparison.missing.items():
            if missing:
                yield f"{side}: {missing:,} of the questions are missing and count as zero"
        for side, longest in self.longest.items():
            deeper = [name for name in self.measures if int(name.partition("@")[2] or 0) > longest]
            if deeper:
                yield (
                    f"{side}: its lists end at hit {longest:,}, before the cutoff of "
                    f"{', '.join(deeper)}; if they were cut, write the run with a greater -k"
                )
        if self.verdict == "too few questions":
            least = math.ceil(math.log(level) / math.log1p(-min(self.settings.margin, 99) / 100))
            yield (
                f"{margin} can be ruled out by {least:,} questions that all have equal scores, and "
                "by more that do not: judge more, or accept a greater drop with --margin"
            )

    def _losses(self) -> Iterator[Section]:
        rows = tuple(
            (
                name,
                question,
                shortened(on_one_line(self.queries.get(question, "")), _LONGEST_QUESTION),
                f"{100 * loss:+.2f}",
            )
            for name, measure in self.measures.items()
            for question, loss in measure.lost
        )
        columns = ("measure", "question", "text", "difference")
        if rows:
            yield Section(tables=(Table(columns, rows, "Lost most", (0, 1, 2)),), brief=True)

    def _junit(self) -> Iterator[str]:
        verdicts = [measure.verdict for measure in self.measures.values()]
        failures = verdicts.count("fail")
        skipped = verdicts.count("too few questions")
        yield f'<testsuite name="retriever gate" tests="{len(verdicts)}" failures="{failures}" '
        yield f'skipped="{skipped}">\n'
        for row, measure in zip(self._table().rows, self.measures.values(), strict=True):
            yield f'<testcase classname="gate" name={quoteattr(row[0])}>'
            summary = f"{row[0]}: {row[1]} to {row[2]} ({row[3]}), at worst {row[4]}: {row[-1]}"
            if measure.verdict == "pass":
                yield f"<system-out>{escape(summary)}</system-out>"
            else:
                kind = "failure" if measure.verdict == "fail" else "skipped"
                losses = "; ".join(
                    f"{on_one_line(question)} {100 * loss:+.2f}" for question, loss in measure.lost
                )
                yield f"<{kind} message={quoteattr(summary)}>{escape(losses)}</{kind}>"
            yield "</testcase>\n"
        yield "</testsuite>\n"


def gate(
    baseline: Ranking,
    candidate: Ranking,
    qrels: Qrels | str | os.PathLike[str],
    settings: GateSettings | None = None,
    *,
    queries: Mapping[str, str] | None = None,
    search: SearchSettings | None = None,
    match_depth: bool = False,
    command: str = "",
) -> GateResult:
    """Test whether a candidate ranks no worse than a baseline, by a margin.

    Args:
        baseline: ranking before the change.
        candidate: ranking after the change.
        qrels: query to document to grade, or a file; queries without a relevant document are
            left out, and a query that is missing from a run counts as zero.
        settings: margin, measures and tests.
        queries: id to text, to search indexes for and to show.
        search: how indexes are searched; None for their defaults and `match_depth`.
        match_depth: instead of `search.k`, search for as many hits as the longest list of a side
            that is a run; for 100 if neither is, and at least for 100 if that list has as many
            documents as an index.
        command: reproduces the result, for the report.

    Raises:
        BadInputError: no query has a relevant document, a run has no judged query, or `queries`
            lacks one that an index is searched for.
        ConfigError: a measure is unknown.
        SourceError: a file cannot be read.
    """
    settings = settings or GateSettings()
    queries = queries or {}
    judgments = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    rankings = dict(zip(_SIDES, (baseline, candidate), strict=True))
    runs: dict[str, Run] = {
        side: ranking if isinstance(ranking, Mapping) else read_run(ranking)
        for side, ranking in rankings.items()
        if not isinstance(ranking, Index)
    }
    longest = {side: max(map(len, run.values()), default=0) for side, run in runs.items()}
    if search is None or match_depth:
        indexes = [ranking for ranking in rankings.values() if isinstance(ranking, Index)]
        hits = _searched_hits(longest.values(), indexes)
        search = replace(search or SearchSettings(), k=hits)
    for side, ranking in rankings.items():
        if isinstance(ranking, Index):
            runs[side] = _search_run(ranking, judgments, queries, search)
    runs = {side: runs[side] for side in _SIDES}
    comparison = compare(runs, judgments, settings.measures, **asdict(settings.resampling))
    sides = {side: _ranking_name(ranking) for side, ranking in rankings.items()}
    _check_hits(comparison, sides)
    gated = gated_measures(comparison, settings)
    identical = _are_identical(runs, comparison.queries)
    if identical:
        gated = {measure: replace(result, verdict="pass") for measure, result in gated.items()}
    return GateResult(sides, comparison, gated, settings, queries, command, longest, identical)


def _searched_hits(run_lengths: Collection[int], indexes: Iterable[Index]) -> int:
    """Return for how many hits indexes are searched: as many as the longest list of a run has."""
    hits = max(run_lengths, default=_HITS) or 1
    if any(len(index) <= hits for index in indexes):
        # The run ends with the corpus, so it may have been searched for more.
        return max(hits, _HITS)
    return hits


def _check_hits(comparison: Comparison, sides: Mapping[str, str]) -> None:
    """Refuse a side without a hit for any judged query."""
    for side, name in sides.items():
        if comparison.missing[side] == len(comparison.queries):
            raise BadInputError(
                f"{name}: expected hits for the judged questions, such as "
                f"{comparison.queries[0]!r}, found none; check that it has the same query ids as "
                "the judgments"
            )


def _are_identical(runs: Mapping[str, Run], queries: Sequence[str]) -> bool:
    """Whether both sides rank the same documents in the same order for each query."""
    baseline, candidate = (runs[side] for side in _SIDES)
    return all(
        ranked_documents(baseline.get(query, {})) == ranked_documents(candidate.get(query, {}))
        for query in queries
    )


def gated_measures(comparison: Comparison, settings: GateSettings) -> dict[str, GatedMeasure]:
    """Return measure to its tests, for a comparison of "candidate" with "baseline"."""
    margin = settings.margin / 100
    level = settings.level
    drops = []
    for scores in comparison.scores.values():
        difference = scores[_SIDES[1]].difference
        assert difference is not None
        # Signs are drawn from a symmetric distribution.
        drops.append(difference.p / 2 if difference.value < 0 else 1 - difference.p / 2)
    gated = {}
    for (measure, scores), p_drop in zip(comparison.scores.items(), holm(drops), strict=True):
        differences = comparison.differences(measure, _SIDES[1])
        p_margin, low = noninferiority_test(
            differences, margin, **asdict(settings.resampling), level=level
        )
        verdict: Verdict = "fail" if p_drop <= level else "too few questions"
        losses = sorted(zip(differences.tolist(), comparison.queries, strict=True))[: settings.top]
        gated[measure] = GatedMeasure(
            scores[_SIDES[0]].value,
            scores[_SIDES[1]].value,
            low,
            p_margin,
            p_drop,
            detectable_drop(differences, margin, low, level / len(drops), _POWER),
            "pass" if p_margin <= level else verdict,
            tuple((query, loss) for loss, query in losses if loss < 0),
        )
    return gated


def _search_run(
    index: Index, judged: Qrels, queries: Mapping[str, str], search: SearchSettings
) -> dict[str, dict[str, float]]:
    """Search an index for the judged queries that have a relevant document; return the run."""
    judged_queries = [
        query for query, grades in judged.items() if any(grade >= 1 for grade in grades.values())
    ]
    if without_text := [query for query in judged_queries if query not in queries]:
        raise BadInputError(
            f"queries: expected the texts of {len(judged_queries):,} judged questions to search "
            f"{index.store} for, found none of {len(without_text):,}, such as "
            f"{without_text[0]!r}; give them with --queries"
        )
    hits = index.search_many([queries[query] for query in judged_queries], search)
    return {
        query: {hit.id: hit.score for hit in query_hits}
        for query, query_hits in zip(judged_queries, hits, strict=True)
    }


def _ranking_name(ranking: Ranking) -> str:
    if isinstance(ranking, Index):
        return str(ranking.store)
    return "a run" if isinstance(ranking, Mapping) else os.fspath(ranking)
