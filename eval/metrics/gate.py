"""Whether a change made a ranking worse: a paired non-inferiority test for continuous integration.

A candidate passes if by each measure a drop of the margin or more is ruled out. It fails if by some
measure a drop is shown, and one of the margin is not ruled out. Otherwise there are too few
questions to tell. Where both rankings are the same, hit for hit, nothing has changed: that is a
pass with any number of questions. Equal values of a measure are not enough for that. A pass needs
no correction, since all measures must pass (Berger 1982); drops have Holm's over the measures,
since one is enough.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
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
# Of the smallest drop that is named.
_POWER = 0.8
_HITS = 100
_LONGEST_QUESTION = 80


@dataclass(frozen=True, slots=True)
class GatedMeasure:
    """A candidate against the baseline by one measure, which is in [0, 1].

    Attributes:
        baseline, candidate: means over the questions.
        low: the least difference that is not ruled out; see `noninferiority_test`.
        p_margin: of that test.
        p_drop: of the one-sided randomization test, after Holm's correction.
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
    """The verdict on a candidate; `sides` are names of the rankings, `queries` texts by id,
    `longest` the numbers of hits in the longest list of each side that is a run, `identical`
    whether both rank the same documents in the same order for each question that counts.
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
        """Fail if by one measure it fails, pass if by all it passes."""
        order: tuple[Verdict, ...] = ("fail", "too few questions", "pass")
        found = {one.verdict for one in self.measures.values()}
        return next(one for one in order if one in found)

    def report(self) -> Report:
        """The result for a reader, with gate.md for a pull request and junit.xml."""
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
                "measures": {name: asdict(one) for name, one in self.measures.items()},
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
                percent(one.baseline),
                percent(one.candidate),
                f"{100 * (one.candidate - one.baseline):+.2f}",
                f"{100 * one.low:+.2f}",
                f"{one.p_drop:.4f}",
                f"{one.p_margin:.4f}",
                "" if one.detectable is None else percent(one.detectable),
                one.verdict,
            )
            for name, one in self.measures.items()
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
            deeper = [one for one in self.measures if int(one.partition("@")[2] or 0) > longest]
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
                f"{100 * lost:+.2f}",
            )
            for name, one in self.measures.items()
            for question, lost in one.lost
        )
        columns = ("measure", "question", "text", "difference")
        if rows:
            yield Section(tables=(Table(columns, rows, "Lost most", (0, 1, 2)),), brief=True)

    def _junit(self) -> Iterator[str]:
        verdicts = [one.verdict for one in self.measures.values()]
        failures = verdicts.count("fail")
        skipped = verdicts.count("too few questions")
        yield f'<testsuite name="retriever gate" tests="{len(verdicts)}" failures="{failures}" '
        yield f'skipped="{skipped}">\n'
        for row, one in zip(self._table().rows, self.measures.values(), strict=True):
            yield f'<testcase classname="gate" name={quoteattr(row[0])}>'
            said = f"{row[0]}: {row[1]} to {row[2]} ({row[3]}), at worst {row[4]}: {row[-1]}"
            if one.verdict == "pass":
                yield f"<system-out>{escape(said)}</system-out>"
            else:
                kind = "failure" if one.verdict == "fail" else "skipped"
                lost = "; ".join(f"{on_one_line(id_)} {100 * by:+.2f}" for id_, by in one.lost)
                yield f"<{kind} message={quoteattr(said)}>{escape(lost)}</{kind}>"
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
    """Whether a candidate ranks no worse than a baseline, by a margin.

    Args:
        baseline: ranking before the change.
        candidate: ranking after the change.
        qrels: query to document to grade, or a file. Queries without a relevant document are left
            out, and one that is missing from a run counts as zero.
        settings: margin, measures and tests.
        queries: id to text, to search indexes for and to show.
        search: how indexes are searched; None for their defaults and `match_depth`.
        match_depth: search for as many hits as the longest list has if one side is a run, else 100,
            instead of `search.k`.
        command: reproduces the result, for the report.

    Raises:
        BadInputError: no query has a relevant document, a run has no judged query, or `queries`
            lacks one that an index is searched for.
        ConfigError: a measure is unknown.
        SourceError: a file cannot be read.
    """
    settings = settings or GateSettings()
    queries = queries or {}
    judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    given = dict(zip(_SIDES, (baseline, candidate), strict=True))
    runs: dict[str, Run] = {
        side: one if isinstance(one, Mapping) else read_run(one)
        for side, one in given.items()
        if not isinstance(one, Index)
    }
    longest = {side: max(map(len, run.values()), default=0) for side, run in runs.items()}
    if search is None or match_depth:
        search = replace(search or SearchSettings(), k=max(longest.values(), default=_HITS) or 1)
    for side, one in given.items():
        if isinstance(one, Index):
            runs[side] = _searched(one, judged, queries, search)
    runs = {side: runs[side] for side in _SIDES}
    found = compare(runs, judged, settings.measures, **asdict(settings.resampling))
    sides = {side: _name(one) for side, one in given.items()}
    for side, name in sides.items():
        if found.missing[side] == len(found.queries):
            raise BadInputError(
                f"{name}: expected hits for the judged questions, such as {found.queries[0]!r}, "
                "found none; check that it names questions as the judgments do"
            )
    gated = gated_measures(found, settings)
    identical = all(
        ranked_documents(runs[_SIDES[0]].get(query, {}))
        == ranked_documents(runs[_SIDES[1]].get(query, {}))
        for query in found.queries
    )
    if identical:
        gated = {measure: replace(result, verdict="pass") for measure, result in gated.items()}
    return GateResult(sides, found, gated, settings, queries, command, longest, identical)


def gated_measures(found: Comparison, settings: GateSettings) -> dict[str, GatedMeasure]:
    """Each measure of a comparison of "candidate" with "baseline"."""
    margin = settings.margin / 100
    level = settings.level
    drops = []
    for scores in found.scores.values():
        difference = scores[_SIDES[1]].difference
        assert difference is not None
        # Signs are drawn from a symmetric distribution.
        drops.append(difference.p / 2 if difference.value < 0 else 1 - difference.p / 2)
    gated = {}
    for (measure, scores), p_drop in zip(found.scores.items(), holm(drops), strict=True):
        differences = found.differences(measure, _SIDES[1])
        p_margin, low = noninferiority_test(
            differences, margin, **asdict(settings.resampling), level=level
        )
        verdict: Verdict = "fail" if p_drop <= level else "too few questions"
        lost = sorted(zip(differences.tolist(), found.queries, strict=True))[: settings.top]
        gated[measure] = GatedMeasure(
            scores[_SIDES[0]].value,
            scores[_SIDES[1]].value,
            low,
            p_margin,
            p_drop,
            detectable_drop(differences, margin, low, level / len(drops), _POWER),
            "pass" if p_margin <= level else verdict,
            tuple((query, by) for by, query in lost if by < 0),
        )
    return gated


def _searched(
    index: Index, judged: Qrels, queries: Mapping[str, str], search: SearchSettings
) -> dict[str, dict[str, float]]:
    """The run of an index for the judged queries with a relevant document."""
    asked = [one for one, grades in judged.items() if any(g >= 1 for g in grades.values())]
    if unknown := [one for one in asked if one not in queries]:
        raise BadInputError(
            f"queries: expected the texts of {len(asked):,} judged questions to search "
            f"{index.store} for, found none of {len(unknown):,}, such as {unknown[0]!r}; give them "
            "with --queries"
        )
    hits = index.search_many([queries[one] for one in asked], search)
    return {
        query: {hit.id: hit.score for hit in found}
        for query, found in zip(asked, hits, strict=True)
    }


def _name(ranking: Ranking) -> str:
    if isinstance(ranking, Index):
        return str(ranking.store)
    return "a run" if isinstance(ranking, Mapping) else os.fspath(ranking)
