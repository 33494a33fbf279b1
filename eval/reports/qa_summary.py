"""What every form of the report says of an evaluation: its tables, remarks and notes."""

from __future__ import annotations

from collections.abc import Iterator

from eval.datasets.qa.statistics import Spread
from eval.qa.result import QAResult, SystemResult

SIGNIFICANT = 0.05
TIES = (
    "scores are compared as 32-bit floats, and equal ones rank by the passage's id, descending, "
    "as in trec_eval"
)


def statistics_rows(result: QAResult) -> list[tuple[str, str]]:
    """What the set is like: name and text."""
    of = result.statistics
    passages = "the whole corpus" if of.passages is None else f"{of.passages:,}"
    return [
        ("questions", f"{of.questions:,}, of which {of.answered:,} have an answer"),
        ("answers", f"{of.answers:.2f} on average, of a question that has one"),
        ("passages", passages),
        *(
            (name, f"{one.mean:,.1f} on average, from {one.least:,} to {one.greatest:,}")
            for name, one in (
                ("candidates of a question", of.pool),
                ("words of a question", of.question_words),
                ("words of a passage", of.passage_words),
            )
            if isinstance(one, Spread)
        ),
    ]


def score_table(result: QAResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table as Table 3 of Ma et al. 2019: systems by measures.

    Values are multiplied by 100; ± is the standard deviation of the seeds' means, * a difference
    from the baseline that is significant.
    """
    rows = [
        [system.name, *(_value(result, measure, system.name) for measure in result.measures)]
        for system in result.systems
    ]
    return ["system", *result.measures], rows


def remarks_on(result: QAResult) -> Iterator[str]:
    """What a reader of the table has to know, a sentence each."""
    found = result.comparison
    treatment = "are left out" if found.excluded else "count as zero"
    yield (
        f"values × 100, means of {found.queries:,} questions; "
        f"{found.without_positive:,} that nothing answers {treatment}"
    )
    if any(result.spread.values()):
        yield "±: standard deviation of the means of several seeds"
    if len(result.systems) > 1:
        yield (
            f"*: differs from {found.baseline} with p < {SIGNIFICANT:g}, by a paired randomisation "
            "test with Holm's correction over the systems"
        )
    for name, missing in found.missing.items():
        if missing:
            yield f"{name}: {missing:,} questions are missing and count as zero"


def system_note(system: SystemResult) -> str:
    """What is known of a system beside its scores; empty where nothing is."""
    seeds = f"{len(system.runs)} seeds" if len(system.runs) > 1 else ""
    return "; ".join(part for part in (system.note, seeds) if part)


def _value(result: QAResult, measure: str, name: str) -> str:
    score = result.comparison.scores[measure][name]
    deviation = result.spread.get(measure, {}).get(name)
    spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
    mark = score.difference is not None and score.difference.adjusted < SIGNIFICANT
    return f"{100 * score.mean:.2f}{spread}{'*' if mark else ''}"
