from __future__ import annotations

import builtins
import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from eval.reports.qa_report import check_report_folder, result_json, write_report

from eval.datasets.qa.question_set import Question, QuestionSet
from eval.metrics.ranking import evaluate
from eval.metrics.trec import read_run
from eval.qa.result import QAResult, SystemResult
from retriever.errors import StorageError
from tests.eval.qa.results import MEASURES, ODD, noise, qrels_of, result
from tests.eval.qa.samples import made_set

NAMES = ("bm25", "uv:mlp@x/y", "uv-mlp-x-y", "UV:MLP@x/y", "x" * 300, "...", ODD, "_hidden")


@pytest.fixture(scope="module")
def found():
    return result()


@pytest.fixture(scope="module")
def report(found, tmp_path_factory):
    """A folder that is only read."""
    folder = tmp_path_factory.mktemp("written") / "report"
    write_report(folder, found)
    return folder


def means_of(found):
    """Measure to system to a mean for each seed, by `eval.metrics.ranking`."""
    return {
        measure: {
            system.name: [
                evaluate(run, qrels_of(found), [measure]).means[measure] for run in system.runs
            ]
            for system in found.systems
        }
        for measure in found.measures
    }


def cells(line):
    """Of a line of a Markdown table."""
    parts = re.split(r"(?<!\\)\|", line)[1:-1]
    return [re.sub(r"\\(.)", r"\1", part).strip() for part in parts]


def tables(text):
    """The tables of a Markdown text, each as its rows without the line of dashes."""
    found = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(cells(line))
        elif found[-1]:
            found.append([])
    return [[rows[0], *rows[2:]] for rows in found if rows]


@pytest.mark.parametrize("count_unanswered", [False, True])
def test_the_first_table_is_systems_by_measures_as_the_metrics_say(tmp_path, count_unanswered):
    found = result(count_unanswered=count_unanswered)
    write_report(tmp_path / "report", found)
    header, *rows = tables((tmp_path / "report/report.md").read_text())[0]
    assert header == ["system", *MEASURES]
    expected = means_of(found)
    for row in rows:
        for measure, cell in zip(MEASURES, row[1:], strict=True):
            seeds = expected[measure][row[0]]
            shown = f"{100 * np.mean(seeds):.2f}"
            if len(seeds) > 1:
                shown += f" ± {100 * np.std(seeds, ddof=1):.2f}"
            assert cell.removesuffix("*") == shown
    assert [row[0] for row in rows] == ["bm25", "uv:mlp"]


def test_a_mark_says_that_the_corrected_p_is_below_a_twentieth(tmp_path):
    questions = made_set(count=40, pool=8)
    systems = [
        SystemResult(name, (noise(questions, strength, seed),))
        for seed, (name, strength) in enumerate([("base", 0), ("same", 0), ("far", 6)])
    ]
    found = result(systems, questions=questions, baseline="same")
    write_report(tmp_path / "report", found)
    first, *_ = tables((tmp_path / "report/report.md").read_text())
    for name, *values in first[1:]:
        for measure, cell in zip(MEASURES, values, strict=True):
            difference = found.comparison.scores[measure][name].difference
            assert cell.endswith("*") == (difference is not None and difference.adjusted < 0.05)
    assert first[3][1].endswith("*")
    assert not first[2][1].endswith("*")
    assert "differs from same with p" in (tmp_path / "report/report.md").read_text()


def test_each_measure_has_a_table_of_differences(found, report):
    text = (report / "report.md").read_text()
    per_measure = [rows for rows in tables(text) if rows[0][1:3] == ["mean", "95% interval"]]
    assert len(per_measure) == len(MEASURES)
    for measure, rows in zip(MEASURES, per_measure, strict=True):
        one = found.comparison.scores[measure]["uv:mlp"]
        values = found.comparison.per_query[measure]
        differences = [values["uv:mlp"][q] - values["bm25"][q] for q in values["bm25"]]
        assert rows[2] == [
            "uv:mlp",
            f"{100 * one.mean:.2f}",
            f"{100 * one.low:.2f} to {100 * one.high:.2f}",
            f"{100 * np.mean(differences):+.2f}",
            f"{100 * one.difference.low:+.2f} to {100 * one.difference.high:+.2f}",
            f"{one.difference.p:.4f}",
            f"{one.difference.adjusted:.4f}",
            str(sum(difference > 0 for difference in differences)),
            str(sum(difference < 0 for difference in differences)),
        ]
        assert rows[1][3] == "baseline"


def test_the_report_says_how_it_came_about(tmp_path):
    write_report(tmp_path / "report", result())
    text = (tmp_path / "report/report.md").read_text()
    for said in (
        "# made, test",
        "\n    retriever eval qa set\n",
        "means of 18 questions; 6 that nothing answers are left out",
        "by the passage's id, descending",
        "| 24, of which 18 have an answer |",
        "| torch | 2.9 |",
        "| uv:mlp | dev MAP 80.00; 3 seeds | 12.5 |",
    ):
        assert said in text
    write_report(tmp_path / "report", result(count_unanswered=True))
    text = (tmp_path / "report/report.md").read_text()
    assert "means of 24 questions; 6 that nothing answers count as zero" in text


def test_every_file_that_report_md_links_is_there(tmp_path):
    written = write_report(tmp_path / "report", result())
    text = (tmp_path / "report/report.md").read_text()
    linked = {tmp_path / "report" / one for one in re.findall(r"\]\(([^)]*)\)", text)}
    there = {path for path in (tmp_path / "report").rglob("*") if path.is_file()}
    assert set(written) == there == linked | {tmp_path / "report/report.md"}


def test_json_holds_what_the_metrics_say(found, report):

    def refuse(text):
        raise AssertionError(text)

    text = (report / "report.json").read_text()
    values = json.loads(text, parse_constant=refuse)
    assert values == json.loads(json.dumps(result_json(found)))
    expected = means_of(found)
    for system in values["systems"]:
        for measure, score in system["scores"].items():
            seeds = expected[measure][system["name"]]
            assert score["mean"] == pytest.approx(np.mean(seeds), abs=1e-12)
            if len(seeds) > 1:
                assert score["spread"] == pytest.approx(np.std(seeds, ddof=1), abs=1e-12)
            else:
                assert "spread" not in score
    assert [system["seeds"] for system in values["systems"]] == [1, 3]
    assert values["systems"][1]["curves"] == [[0.1, 0.5], [0.2, 0.4, 0.6], [0.3, 0.3]]
    assert values["statistics"]["answered"] == values["counted"] == 18
    assert values["per_question"]["questions"] == list(qrels_of(found))
    column = values["per_question"]["values"]["AP"]["bm25"]
    assert np.mean(column) == pytest.approx(expected["AP"]["bm25"][0], abs=1e-12)


def test_runs_read_back_score_the_same_and_hold_questions_without_an_answer(found, report):
    for system, names in (
        ("bm25", ["bm25.run"]),
        ("uv:mlp", [f"uv-mlp.seed-{seed}.run" for seed in range(3)]),
    ):
        runs = next(one.runs for one in found.systems if one.name == system)
        for run, name in zip(runs, names, strict=True):
            again = read_run(report / "runs" / name)
            assert again == run
            assert len(again) == 24
            evaluated = (evaluate(one, qrels_of(found), MEASURES) for one in (run, again))
            assert next(evaluated) == next(evaluated)


def test_the_csv_has_a_line_a_question_and_its_columns_average_to_the_table(found, report):
    with (report / "per_question.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    asked = {one.id: one.text for one in found.questions.questions}
    assert {row["question"]: row["text"] for row in rows} == {
        one: asked[one] for one in qrels_of(found)
    }
    expected = means_of(found)
    assert list(rows[0])[2:] == [f"{m} {s}" for m in MEASURES for s in ("bm25", "uv:mlp")]
    for measure in MEASURES:
        for system in ("bm25", "uv:mlp"):
            column = [float(row[f"{measure} {system}"]) for row in rows]
            assert np.mean(column) == pytest.approx(np.mean(expected[measure][system]), abs=1e-12)


def test_texts_with_any_character_come_back_from_the_csv(tmp_path):
    text = 'a,"b"\r\nc\rd\te;北京 \x00'
    questions = QuestionSet("s", "t", (Question("q", text, ("b", "a"), {"a": 1}),), {"a": "x"})
    run = {"q": {"a": 1.0, "b": 0.0}}
    write_report(tmp_path / "report", result([SystemResult("one", (run,))], questions=questions))
    with (tmp_path / "report/per_question.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file))[1] == ["q", text, "1.0", "1.0", "1.0"]


def test_names_with_any_character_get_files_of_their_own(tmp_path):
    questions = made_set(count=20, pool=6)
    systems = [
        SystemResult(name, (noise(questions, place, place),), f"note | of {name}\n\x1b[31m")
        for place, name in enumerate(NAMES)
    ]
    found = result(systems, questions=questions)
    write_report(tmp_path / "report", found)
    files = sorted(path.name for path in (tmp_path / "report/runs").iterdir())
    assert len({name.lower() for name in files}) == len(NAMES)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.run", name) for name in files)
    text = (tmp_path / "report/report.md").read_text()
    assert not re.search("[\x00-\x09\x0b-\x1f]", text)
    first, *rest = tables(text)
    assert [row[0] for row in first[1:]] == list(NAMES)
    assert all(len(row) == len(rows[0]) for rows in (first, *rest) for row in rows)
    values = json.loads((tmp_path / "report/report.json").read_text())
    assert [system["name"] for system in values["systems"]] == list(NAMES)
    for ending in (".svg", ".png"):
        assert len(list((tmp_path / "report/figures").glob(f"*{ending}"))) == 3


def test_a_seed_and_a_system_called_like_one_do_not_share_a_file(tmp_path):
    questions = made_set(count=6, pool=4)
    two = tuple(noise(questions, 1, seed) for seed in (1, 2))
    systems = [SystemResult("a.seed-0", two[:1]), SystemResult("a", two)]
    write_report(tmp_path / "report", result(systems, questions=questions))
    files = {path.name for path in (tmp_path / "report/runs").iterdir()}
    assert files == {"a.seed-0.run", "a-2.seed-0.run", "a-2.seed-1.run"}


def test_a_command_that_is_no_utf_8_is_written_as_escapes(tmp_path):
    found = result()
    odd = QAResult(
        *(getattr(found, name) for name in QAResult.__slots__[:6]),
        command="retriever '\udcff'\n```\n# x",
        environment={},
    )
    write_report(tmp_path / "report", odd)
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    assert lines[2:5] == ["    retriever '\ufffd'", "    ```", "    # x"]


def test_ids_with_spaces_leave_out_the_run_and_the_report_says_so(tmp_path):
    question = Question("q 1", "text", ("b", "a"), {"a": 1})
    questions = QuestionSet("s", "t", (question,), {"a": "x", "b": "y"})
    run = {"q 1": {"a": 1.0, "b": 0.0}}
    write_report(tmp_path / "report", result([SystemResult("one", (run,))], questions=questions))
    assert not list((tmp_path / "report/runs").iterdir())
    text = (tmp_path / "report/report.md").read_text()
    assert "runs/one.run was not written: expected as query id" in text


def test_writing_again_replaces_its_own_files_and_nothing_else(tmp_path):
    folder = tmp_path / "report"
    (folder / "runs").mkdir(parents=True)
    for name in ("mine.txt", "runs/other.run"):
        (folder / name).write_text("kept")
    write_report(folder, result(count_unanswered=True))
    once = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_report(folder, result())
    assert b"are left out" in (folder / "report.md").read_bytes()
    write_report(folder, result(count_unanswered=True))
    again = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert again == once
    assert (folder / "mine.txt").read_text() == (folder / "runs/other.run").read_text() == "kept"


def test_one_system_alone_has_no_differences(tmp_path):
    questions = made_set(count=6, pool=4)
    found = result([SystemResult("one", (noise(questions, 1, 1),))], questions=questions)
    write_report(tmp_path / "report", found)
    assert not (tmp_path / "report/figures/differences.png").exists()
    assert not (tmp_path / "report/figures/learning.png").exists()
    text = (tmp_path / "report/report.md").read_text()
    assert "differs from" not in text
    assert "| system | mean | 95% interval |\n" in text


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, message in (
        (tmp_path / "file", "found a file"),
        (tmp_path / "none/report", "expected its parent to exist"),
    ):
        for refused in (check_report_folder, lambda path: write_report(path, result())):
            with pytest.raises(StorageError, match=message) as caught:
                refused(folder)
            assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    check_report_folder(tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", ["runs", "figures", "report.md"])
def test_something_in_the_way_inside_the_folder_is_an_error_in_one_line(tmp_path, name):
    way = tmp_path / "report" / name
    way.parent.mkdir()
    if way.suffix:
        way.mkdir()
    else:
        way.write_text("")
    with pytest.raises(StorageError, match=re.escape(str(way))):
        write_report(tmp_path / "report", result())
    assert not list((tmp_path / "report").rglob(".*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="choose a writable folder"):
            check_report_folder(tmp_path / "report")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that nobody may write")
def test_a_folder_that_nobody_may_write_is_an_error_in_one_line():
    with pytest.raises(StorageError, match="choose a writable"):
        write_report(Path("/proc/report"), result())


def test_without_matplotlib_the_report_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    written = write_report(tmp_path / "report", result())
    assert not (tmp_path / "report/figures").exists()
    assert written[-1].name == "report.md"
    text = (tmp_path / "report/report.md").read_text().replace("\\", "")
    assert 'pip install "layer-retriever[plot]"' in text
