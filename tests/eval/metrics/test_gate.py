"""The gate on runs that are known, and its two promises by simulation on real scores."""

import json
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from eval import GateSettings, QASettings, gate, rank_systems
from eval.metrics.comparison import compare_systems
from eval.metrics.gate import gated_measures
from eval.settings import Resampling
from retriever import Document, Index
from retriever.errors import BadInputError
from retriever.search import SearchSettings

QUESTIONS = [f"q{number:03}" for number in range(400)]
QRELS = {question: {"right": 1} for question in QUESTIONS}
MEASURES = GateSettings(measures=("RR", "P@1"))
# Reciprocal ranks of 1 and 1/2.
RIGHT, SECOND = {"right": 2.0, "wrong": 1.0}, {"right": 1.0, "wrong": 2.0}


def run(worse=0, better=0, count=None):
    """Return a run whose first `worse` questions lose a rank, or whose last ones gain it."""
    count = count or len(QUESTIONS)
    ranked = [SECOND if n < worse else RIGHT for n in range(count)]
    return dict(zip(QUESTIONS[:count], ranked, strict=True))


@pytest.mark.parametrize(
    ("candidate", "settings", "verdict"),
    [
        (run(), MEASURES, "pass"),
        (run(worse=1), replace(MEASURES, margin=2.0), "pass"),
        (run(worse=2), MEASURES, "too few questions"),
        (run(worse=30), MEASURES, "fail"),
        # A drop that is shown and is smaller than the margin.
        (run(worse=10), replace(MEASURES, margin=10.0), "pass"),
        # By one measure alone.
        (run(worse=20), replace(MEASURES, measures=("R@2", "P@1")), "fail"),
    ],
)
def test_gate_verdict_follows_losses_margin_and_measures(candidate, settings, verdict):
    result = gate(run(), candidate, QRELS, settings)
    assert result.verdict == verdict == result.to_json()["verdict"]
    lost = result.measures["P@1"].lost
    assert (
        lost
        == tuple((question, -1.0) for question in QUESTIONS if candidate[question] is SECOND)[:5]
    )


def test_hundred_equal_questions_do_not_pass_a_one_point_margin():
    """Each of 100 questions alike does not rule out that one in a hundred is lost."""
    qrels = dict(list(QRELS.items())[:100])
    # Another document behind the right one, which no measure sees.
    changed = {"right": 2.0, "other": 1.0}
    other = dict.fromkeys(qrels, changed)
    result = gate(run(), other, qrels, MEASURES)
    assert result.verdict == "too few questions"
    assert not result.to_json()["identical"]
    assert "299 questions" in result.text()
    assert gate(run(), other, qrels, replace(MEASURES, margin=3.0)).verdict == "pass"


@pytest.mark.parametrize(
    ("candidate", "identical"),
    [
        (RIGHT, True),
        ({"wrong": 0.1, "right": 0.3}, True),
        # Measures compare scores as 32-bit floats, and equal ones by descending id.
        ({"right": 1.0, "wrong": 1.0 + 1e-12}, False),
        ({"right": 2.0, "wrong": 1.0, "more": 0.5}, False),
        ({"right": 2.0}, False),
        (SECOND, False),
        ({}, False),
    ],
)
def test_identical_rankings_pass_with_any_number_of_questions(candidate, identical):
    for count in (1, 2, 30):
        qrels = dict(list(QRELS.items())[:count])
        # What is not judged does not count.
        baseline = {"unjudged": SECOND, **dict.fromkeys(qrels, RIGHT)}
        changed = {**baseline, "unjudged": RIGHT, next(iter(qrels)): candidate}
        if not candidate and count == 1:
            continue
        result = gate(baseline, changed, qrels, MEASURES)
        assert result.identical == result.to_json()["identical"] == identical
        assert (result.verdict == "pass") == identical
        assert ("the same, hit for hit, for all" in result.text()) == identical
    # Questions that neither side has.
    assert gate({"q001": RIGHT}, {"q001": RIGHT}, QRELS, MEASURES).verdict == "pass"


def test_p_values_of_drops_are_holm_corrected():
    result = gate(run(worse=7), run(worse=13), QRELS, MEASURES)
    # Six questions that lose: 2^-6, times 2.
    assert [measure.p_drop for measure in result.measures.values()] == pytest.approx([1 / 32] * 2)


def test_gate_report_writes_markdown_json_and_junit(tmp_path):
    texts = {"q000": "<first> & [last](question)"}
    result = gate(run(), run(worse=60), QRELS, MEASURES, queries=texts, command="retriever gate")
    result.write(tmp_path)
    markdown = (tmp_path / "gate.md").read_text()
    assert markdown.startswith("# Gate: fail\n")
    assert "| RR | 100.00 | 92.50 | -7.50 |" in markdown.replace("\\", "")
    assert r"\<first\> \& \[last\](question)" in markdown
    assert "Environment" not in markdown
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert dict(suite.attrib)["failures"] == "2"
    assert [case.get("name") for case in suite] == ["RR", "P@1"]
    assert "q000 -50.00" in suite[0].find("failure").text
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["measures"]["RR"]["lost"][0] == ["q000", -0.5]
    gate(run(), run(worse=2), QRELS, MEASURES).write(tmp_path)
    assert len(ElementTree.parse(tmp_path / "junit.xml").getroot().findall("*/skipped")) == 2


def test_gate_refuses_a_run_without_judged_questions():
    with pytest.raises(BadInputError, match="such as 'q000', found none"):
        gate(run(), {"Q1": RIGHT}, QRELS)


# Of 2,000 gates each.
CASES = 2000


@pytest.fixture(scope="module")
def scores(published):
    """(system, question) scores of BM25 and of embeddings on the questions of WikiQA."""
    settings = QASettings(measures=("AP", "nDCG@10"))
    return rank_systems(published / "wikiqa", ["bm25", "cosine"], settings).comparison.values


def gated(baseline, candidate, **changed):
    """Compare two systems, given as measure to values (questions,)."""
    settings = GateSettings(resampling=Resampling(1000), **changed)
    questions = tuple(map(str, range(len(next(iter(baseline.values()))))))
    sides = {"baseline": baseline, "candidate": candidate}
    comparison = compare_systems(
        {
            side: {name: values[None] for name, values in values_by_measure.items()}
            for side, values_by_measure in sides.items()
        },
        questions,
        without_positive=0,
        excluded=True,
        missing=dict.fromkeys(sides, 0),
        baseline="baseline",
        resampling=settings.resampling,
    )
    return gated_measures(comparison, settings)


@pytest.mark.soak
@pytest.mark.parametrize("questions", [30, 300])
@pytest.mark.parametrize("null", ["itself", "exchanged", "other questions"])
def test_gate_of_a_system_with_itself_fails_in_at_most_five_percent(scores, questions, null):
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(CASES):
        drawn = random.integers(0, scores["AP"].shape[1], questions)
        first = {name: values[0, drawn] for name, values in scores.items()}
        second = first
        if null == "exchanged":
            swap = random.random(questions) < 0.5
            other = {name: values[1, drawn] for name, values in scores.items()}
            second = {name: np.where(swap, first[name], other[name]) for name in scores}
            first = {name: np.where(swap, other[name], first[name]) for name in scores}
        elif null == "other questions":
            drawn = random.integers(0, scores["AP"].shape[1], questions)
            second = {name: values[0, drawn] for name, values in scores.items()}
        verdicts = {measure.verdict for measure in gated(first, second).values()}
        alarms += "fail" in verdicts
    sys.stdout.write(f"{null}, {questions}: {alarms / CASES:.1%} false alarms\n")
    assert alarms / CASES <= 0.05


@pytest.mark.soak
@pytest.mark.parametrize("questions", [100, 300])
@pytest.mark.parametrize("margin", [1.0, 3.0])
def test_gate_detects_the_detectable_drop_in_eighty_percent(scores, questions, margin):
    random = np.random.default_rng(0)
    baseline, candidate = scores["nDCG@10"]
    centered = candidate - baseline - (candidate - baseline).mean()

    def drawn(drop):
        rows = random.integers(0, scores["AP"].shape[1], questions)
        changed = baseline[rows] + centered[rows] - drop
        return gated({"nDCG@10": baseline[rows]}, {"nDCG@10": changed}, margin=margin)["nDCG@10"]

    promised = np.mean([drawn(0.0).detectable for _ in range(300)])
    detected = np.mean([drawn(promised).verdict == "fail" for _ in range(CASES)])
    sys.stdout.write(
        f"{questions}, margin {margin}: {100 * promised:.1f} points in {detected:.1%}\n"
    )
    assert detected == pytest.approx(0.8, abs=0.03)


def test_index_equals_its_own_run_of_more_hits_than_it_has_documents(fake_encoder, tmp_path):
    words = np.random.default_rng(0).zipf(1.3, size=(30, 1500)).clip(max=400)
    texts = {f"d{row}": " ".join(f"w{word}" for word in words[row]) for row in range(len(words))}
    queries = {id_: " ".join(text.split()[40:46]) for id_, text in texts.items()}
    qrels = {id_: {id_: 1} for id_ in texts}
    with Index.create(tmp_path / "index") as index:
        index.add(Document(id_, text) for id_, text in texts.items())
        hit_lists = index.search_many(list(queries.values()), SearchSettings(k=100))
        ranking = {
            query: {hit.id: hit.score for hit in hits}
            for query, hits in zip(queries, hit_lists, strict=True)
        }
        assert gate(ranking, index, qrels, queries=queries).identical
