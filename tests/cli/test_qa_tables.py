from __future__ import annotations

import numpy as np

from cli.output.qa import report_lines
from eval.metrics.ranking import evaluate
from eval.qa.result import SystemResult
from tests.eval.qa_samples import made_set
from tests.eval.test_qa_report import MEASURES, noise, qrels_of, result


def rows_of(lines):
    """The lines of the table."""
    first = next(place for place, line in enumerate(lines) if line.startswith("system "))
    return lines[first : lines.index("", first)]


def test_the_table_shows_means_and_spreads_as_the_metrics_say():
    found = result()
    header, *rows = rows_of(list(report_lines(found)))
    assert header.split() == ["system", *MEASURES]
    for system, row in zip(found.systems, rows, strict=True):
        expected = [system.name]
        for measure in MEASURES:
            means = [
                evaluate(run, qrels_of(found), [measure]).means[measure] for run in system.runs
            ]
            expected.append(f"{100 * np.mean(means):.2f}")
            if len(means) > 1:
                expected += ["±", f"{100 * np.std(means, ddof=1):.2f}"]
        assert row.replace("*", "").split() == expected


def test_a_mark_stands_behind_the_numbers_and_is_explained():
    questions = made_set(count=40, pool=8)
    systems = [
        SystemResult(name, (noise(questions, strength, seed),))
        for seed, (name, strength) in enumerate([("base", 0), ("same", 0), ("far", 6)])
    ]
    found = result(systems, questions=questions)
    lines = list(report_lines(found))
    _, base, same, far = (line.split() for line in rows_of(lines))
    assert not any(cell.endswith("*") for cell in (*base, *same))
    assert all(cell.endswith("*") for cell in far[1:])
    assert any(line.startswith("*: differs from base with p < 0.05") for line in lines)
    dots = {
        tuple(i for i, letter in enumerate(line) if letter == ".") for line in rows_of(lines)[1:]
    }
    assert len(dots) == 1


def test_statistics_treatment_and_notes_are_told():
    lines = list(report_lines(result()))
    assert lines[0] == "made, test"
    assert "  questions: 24, of which 18 have an answer" in lines
    assert any("18 questions; 6 that nothing answers are left out" in line for line in lines)
    assert "uv:mlp: dev MAP 80.00; 3 seeds" in lines
    counted = list(report_lines(result(count_unanswered=True)))
    assert any("24 questions; 6 that nothing answers count as zero" in line for line in counted)


def test_a_system_that_skips_questions_is_named():
    questions = made_set(count=8, pool=4)
    full = noise(questions, 1, 1)
    part = {name: full[name] for name in list(full)[:5]}
    found = result(
        [SystemResult("full", (full,)), SystemResult("part", (part,))], questions=questions
    )
    assert "part: 3 questions are missing and count as zero" in list(report_lines(found))


def test_the_questions_that_differ_most_are_shown_with_their_texts():
    found = result()
    values = found.comparison.per_query["AP"]
    differences = {one: values["uv:mlp"][one] - values["bm25"][one] for one in values["bm25"]}
    lines = list(report_lines(found, different=2))
    start = next(place for place, line in enumerate(lines) if line.startswith("uv:mlp less bm25"))
    texts = {one.id: one.text for one in found.questions.questions}
    shown = lines[start + 1 :]
    assert len(shown) == 2
    largest = sorted(map(abs, differences.values()), reverse=True)[:2]
    for line, size in zip(shown, largest, strict=True):
        number, question, text = line.split(maxsplit=2)
        assert number == f"{100 * differences[question]:+.2f}"
        assert abs(differences[question]) == size
        assert text == texts[question]
    assert not any("less bm25" in line for line in report_lines(found, different=0))


def test_what_names_and_notes_hold_does_not_steer_the_terminal():
    questions = made_set(count=6, pool=4)
    systems = [
        SystemResult(f"a\x1b[31m\n{place}", (noise(questions, place, place),), "b\x1b]0;\n")
        for place in range(2)
    ]
    for line in report_lines(result(systems, questions=questions)):
        assert line.isprintable()
