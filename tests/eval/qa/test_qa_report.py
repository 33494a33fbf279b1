"""Reports on a question set: text, Markdown, JSON, CSV, LaTeX, runs and figures."""

import csv
import json
import re
from importlib import metadata

import numpy as np
import pytest

from eval import save_figure
from eval.datasets.question_set import Question, QuestionSet
from eval.figures import learning_figure
from eval.metrics.measures import evaluate
from eval.metrics.trec import read_run
from eval.qa.result import SystemResult
from tests.eval.conftest import texts_of
from tests.eval.qa.samples import MEASURES, ODD, made_set, noise, qrels_of, result, runs_of, system

NAMES = ("bm25", "uv:mlp@x/y", "uv-mlp-x-y", "UV:MLP@x/y", "x" * 300, "...", ODD, "_hidden")
SYSTEMS = ("bm25", "uv:mlp")


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a result and returns the text of its report.md."""

    def write(qa_result):
        qa_result.write(tmp_path / "report")
        return (tmp_path / "report/report.md").read_text()

    return write


def table_of(qa_result, title):
    """Return the columns of a table of the report, and its rows by their first cell."""
    tables = (table for section in qa_result.report().sections for table in section.tables)
    (table,) = (table for table in tables if table.title == title)
    return table.columns, {row[0]: row[1:] for row in table.rows}


def pair(scores, **options):
    """Return the result of one system on one question with two candidates."""
    question = Question(options.get("id", "q"), options.get("text", "text"), ("b", "a"), {"a": 1})
    questions = QuestionSet("s", "t", (question,), {"a": "x", "b": "y"})
    return result([system("one", questions, np.array(scores))], questions=questions)


@pytest.mark.parametrize(
    ("without_positive", "message"),
    [
        ("exclude", "means over 18 questions; 6 questions without a relevant passage are left out"),
        ("count", "means over 24 questions; 6 questions without a relevant passage count as zero"),
    ],
)
def test_table_json_csv_and_runs_agree_with_evaluate(tmp_path, written, without_positive, message):
    qa_result = result(without_positive=without_positive)
    written(qa_result)
    assert message in qa_result.text()
    columns, rows = table_of(qa_result, "Means × 100")
    assert (columns, tuple(rows)) == (("system", *MEASURES), SYSTEMS)
    values = json.loads((tmp_path / "report/report.json").read_text(), parse_constant=pytest.fail)
    assert values == json.loads(json.dumps(qa_result.to_json()))
    with (tmp_path / "report/per_question.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    texts = {question.id: question.text for question in qa_result.questions.questions}
    assert [(row["question"], row["text"]) for row in lines] == [
        (id_, texts[id_]) for id_ in qrels_of(qa_result)
    ]
    assert list(lines[0])[2:] == [f"{m} {s}" for m in MEASURES for s in SYSTEMS]
    files = [["bm25.run"], [f"uv-mlp.seed-{seed}.run" for seed in range(3)]]
    for system_result, names, listed in zip(
        qa_result.systems, files, values["systems"], strict=True
    ):
        runs = [read_run(tmp_path / "report/runs" / name) for name in names]
        assert runs == runs_of(system_result)
        assert {len(run) for run in runs} == {24}
        assert (listed["name"], listed["seeds"]) == (system_result.name, len(runs))
        for place, measure in enumerate(MEASURES):
            seeds = [evaluate(run, qrels_of(qa_result), [measure]).means[measure] for run in runs]
            mean, spread = np.mean(seeds), np.std(seeds, ddof=1) if len(seeds) > 1 else None
            cell = f"{100 * mean:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")
            assert rows[system_result.name][place].removesuffix("*") == cell
            score = listed["scores"][measure]
            assert score["value"] == pytest.approx(mean, abs=1e-12)
            assert score["spread"] == (spread and pytest.approx(spread, abs=1e-12))
            column = [float(row[f"{measure} {system_result.name}"]) for row in lines]
            assert np.mean(column) == pytest.approx(mean, abs=1e-12)
            assert column == values["per_question"]["values"][measure][system_result.name]
    assert values["systems"][1]["curves"] == [[0.1, 0.5], [0.2, 0.4, 0.6], [0.3, 0.3]]
    assert values["statistics"]["answered"] == 18
    assert values["counted"] == len(lines) == len(values["per_question"]["questions"])


def test_asterisk_marks_adjusted_p_below_five_percent():
    questions = made_set(count=40, pool=8)
    systems = [
        system(name, questions, noise(questions, strength, seed))
        for seed, (name, strength) in enumerate([("base", 0), ("same", 0), ("far", 6)])
    ]
    qa_result = result(systems, questions=questions, baseline="same")
    _, rows = table_of(qa_result, "Means × 100")
    for name, values in rows.items():
        for measure, cell in zip(MEASURES, values, strict=True):
            difference = qa_result.comparison.scores[measure][name].difference
            assert cell.endswith("*") == (difference is not None and difference.adjusted < 0.05)
    assert rows["far"][0].endswith("*")
    assert not rows["same"][0].endswith("*")
    explained = "*: differs from same with p < 0.05, by a paired randomization test"
    assert explained in qa_result.text()


def test_each_measure_has_a_difference_table_and_the_first_lists_the_largest():
    qa_result = result()
    for measure in MEASURES:
        columns, rows = table_of(qa_result, f"{measure} × 100")
        assert columns[:3] == ("system", "value", "95% interval")
        assert rows["bm25"][2] == "baseline"
        score = qa_result.comparison.scores[measure]["uv:mlp"]
        base, head = qa_result.comparison.values[measure]
        assert rows["uv:mlp"] == (
            f"{100 * head.mean():.2f} ± {100 * score.spread:.2f}",
            f"{100 * score.low:.2f} to {100 * score.high:.2f}",
            f"{100 * (head - base).mean():+.2f}",
            f"{100 * score.difference.low:+.2f} to {100 * score.difference.high:+.2f}",
            f"{score.difference.p:.4f}",
            f"{score.difference.adjusted:.4f}",
            str((head > base).sum()),
            str((head < base).sum()),
        )
    base, head = qa_result.comparison.values["AP"]
    differences = zip((head - base).tolist(), qa_result.comparison.queries, strict=True)
    texts = {question.id: question.text for question in qa_result.questions.questions}
    (table,) = qa_result.report().sections[-1].tables
    assert table.title == "Questions with the largest differences from bm25 in AP × 100"
    assert table.rows == tuple(
        ("uv:mlp", f"{100 * difference:+.2f}", query, texts[query])
        for difference, query in sorted(differences, key=lambda pair: (-abs(pair[0]), pair[1]))[:3]
    )
    assert "largest differences" in qa_result.text()
    assert "largest differences" not in result(top=0).text()


def test_report_states_command_settings_versions_and_warnings(tmp_path):
    qa_result = result()
    folder = tmp_path / "report"
    qa_result.write(folder)
    text = (folder / "report.md").read_text()
    for passage in (
        "# made, test",
        "\n    retriever eval qa set\n",
        "equal ones rank by descending passage id",
        "| 24, 18 of them with a relevant passage |",
        f"| torch | {metadata.version('torch')} |",
        "| uv:mlp | dev AP 80.00; 3 seeds | 12.5 |",
        "intervals from fewer than 20 questions are often too short",
    ):
        assert passage in re.sub(r"\\(.)", r"\1", text)
    lines = qa_result.text().splitlines()
    assert lines[:2] == ["made, test", "  questions: 24, 18 of them with a relevant passage"]
    linked = {folder / link for link in re.findall(r"\]\(([^)]*)\)", text)}
    files = {path for path in folder.rglob("*") if path.is_file()}
    assert files == linked | {folder / "report.md"}
    # LaTeX has every table.
    text = (folder / "report.tex").read_text()
    captions = re.findall(r"\\caption\{(.*?)\}\\label\{tab:qa-(\d)\}", text)
    assert [number for _, number in captions] == list("123456")
    assert [caption for caption, _ in captions][:2] == [r"Means $\times$ 100", "Systems"]


def test_texts_and_names_with_special_characters_survive_the_report(tmp_path, written):
    text = 'a,"b"\r\nc\rd\te;北京 \x00'
    written(pair([0.0, 1.0], text=text))
    with (tmp_path / "report/per_question.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file))[1] == ["q", text, "1.0", "1.0", "1.0"]
    questions = made_set(count=20, pool=6)
    systems = [
        system(name, questions, noise(questions, place, place), note=f"| {name}\n\x1b[31m\x1b]0;")
        for place, name in enumerate(NAMES)
    ]
    (tmp_path / "report/runs/one.run").unlink()
    qa_result = result(systems, questions=questions)
    text = written(qa_result)
    files = sorted(path.name for path in (tmp_path / "report/runs").iterdir())
    assert len({name.lower() for name in files}) == len(NAMES)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.run", name) for name in files)
    assert not re.search("[\x00-\x09\x0b-\x1f]", text)
    assert tuple(table_of(qa_result, "Means × 100")[1]) == NAMES
    assert [row["name"] for row in qa_result.to_json()["systems"]] == list(NAMES)
    assert all(line.isprintable() for line in qa_result.text().splitlines())


def test_run_files_of_seeds_and_systems_have_distinct_names():
    questions = made_set(count=6, pool=4)
    two = [noise(questions, 1, seed) for seed in (1, 2)]
    systems = [system("a.seed-0", questions, two[0]), system("a", questions, *two)]
    files = set(result(systems, questions=questions).report().files) - {"per_question.csv"}
    assert files == {"runs/a.seed-0.run", "runs/a-2.seed-0.run", "runs/a-2.seed-1.run"}


def test_run_file_with_spaces_in_ids_is_left_out_with_a_remark(tmp_path, written):
    text = written(pair([0.0, 1.0], id="q 1"))
    assert not (tmp_path / "report/runs").exists()
    assert "runs/one.run was not written: expected as query id" in text


def test_one_system_alone_has_no_differences():
    qa_result = pair([0.0, 1.0]).report()
    assert not qa_result.figures
    assert "Largest differences" not in [section.heading for section in qa_result.sections]
    assert not any(
        "differs from" in remark for part in qa_result.sections for remark in part.remarks
    )
    tables = [table.columns for section in qa_result.sections for table in section.tables]
    assert ("system", "value", "95% interval") in tables


def test_a_system_that_skips_questions_is_named():
    questions = made_set(count=8, pool=4)
    pools = [*questions.questions[:5]]
    pools += [
        Question(question.id, question.text, (), question.grades)
        for question in questions.questions[5:]
    ]
    full = noise(questions, 1, 1)
    systems = [system("full", questions, full), SystemResult("part", tuple(pools), (full[:20],))]
    qa_result = result(systems, questions=questions)
    assert qa_result.comparison.missing == {"full": 0, "part": 3}
    assert "part: ranks nothing for 3 questions, which count as zero" in qa_result.text()
    assert not qa_result.comparison.values["AP"][1, 5:].any()
    assert list(systems[1].run()) == [f"q{number}" for number in range(5)]


def test_figures_are_png_and_svg_and_name_every_system(tmp_path):
    pytest.importorskip("matplotlib")
    questions = made_set(count=20, pool=6)
    names = [ODD, "_hidden", "cross-encoder", "base"]
    systems = [
        system(name, questions, noise(questions, place, place), curves=((0.1, 0.2 + place / 20),))
        for place, name in enumerate(names)
    ]
    result(systems, questions=questions).write(tmp_path / "report")
    content = (tmp_path / "report/figures/learning.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    assert set(names) <= set(texts_of(tmp_path / "report/figures/learning.svg"))


def test_learning_figure_has_a_line_per_seed_and_a_mean_up_to_the_shortest(tmp_path):
    pytest.importorskip("matplotlib")
    save_figure(learning_figure({"uv": ((0.2,), (0.3, 0.4, 0.5))}), tmp_path / "early.svg")
    assert {"0", "2", "dev AP × 100"} <= set(texts_of(tmp_path / "early.svg"))
    seeds = ((0.1, 0.5), (0.3, 0.7, 0.9, 0.95))
    (axes,) = learning_figure({"uv": seeds}).axes
    lines = [dict(zip(*line.get_data(), strict=True)) for line in axes.lines]
    assert lines == [
        pytest.approx({0: 20, 1: 60}),
        *(
            pytest.approx({epoch: 100 * value for epoch, value in enumerate(seed)})
            for seed in seeds
        ),
    ]
    (alone,) = learning_figure({"cross-encoder": seeds[:1]}).axes
    assert len(alone.lines) == 1
