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
from retriever.errors import BadInputError

QUESTIONS = [f"q{number:03}" for number in range(400)]
QRELS = {question: {"right": 1} for question in QUESTIONS}
MEASURES = GateSettings(measures=("RR", "P@1"))
# Reciprocal ranks of 1 and 1/2.
RIGHT, SECOND = {"right": 2.0, "wrong": 1.0}, {"right": 1.0, "wrong": 2.0}


def run(worse=0, better=0, count=None):
    """The first questions lose by a rank what they have, or the last gain it."""
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
def test_the_verdict(candidate, settings, verdict):
    found = gate(run(), candidate, QRELS, settings)
    assert found.verdict == verdict == found.to_json()["verdict"]
    lost = found.measures["P@1"].lost
    assert lost == tuple((one, -1.0) for one in QUESTIONS if candidate[one] is SECOND)[:5]


def test_few_questions_of_equal_values_are_no_pass():
    """Each of 100 questions alike does not rule out that one in a hundred is lost."""
    few = dict(list(QRELS.items())[:100])
    # Another document behind the right one, which no measure sees.
    changed = {"right": 2.0, "other": 1.0}
    other = dict.fromkeys(few, changed)
    found = gate(run(), other, few, MEASURES)
    assert found.verdict == "too few questions"
    assert not found.to_json()["identical"]
    assert "299 questions" in found.text()
    assert gate(run(), other, few, replace(MEASURES, margin=3.0)).verdict == "pass"


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
def test_the_same_rankings_hit_for_hit_are_a_pass_with_any_number_of_questions(
    candidate, identical
):
    for count in (1, 2, 30):
        few = dict(list(QRELS.items())[:count])
        # What is not judged does not count.
        more = {"unjudged": SECOND, **dict.fromkeys(few, RIGHT)}
        changed = {**more, "unjudged": RIGHT, next(iter(few)): candidate}
        if not candidate and count == 1:
            continue
        found = gate(more, changed, few, MEASURES)
        assert found.identical == found.to_json()["identical"] == identical
        assert (found.verdict == "pass") == identical
        assert ("the same, hit for hit, for all" in found.text()) == identical
    # Questions that neither side has.
    assert gate({"q001": RIGHT}, {"q001": RIGHT}, QRELS, MEASURES).verdict == "pass"


def test_a_drop_has_holms_correction_and_a_pass_needs_none():
    found = gate(run(worse=7), run(worse=13), QRELS, MEASURES)
    # Six questions that lose: 2^-6, times 2.
    assert [one.p_drop for one in found.measures.values()] == pytest.approx([1 / 32] * 2)


def test_the_files_of_a_report(tmp_path):
    texts = {"q000": "<first> & [last](question)"}
    found = gate(run(), run(worse=60), QRELS, MEASURES, queries=texts, command="retriever gate")
    found.write(tmp_path)
    markdown = (tmp_path / "gate.md").read_text()
    assert markdown.startswith("# Gate: fail\n")
    assert "| RR | 100.00 | 92.50 | -7.50 |" in markdown.replace("\\", "")
    assert r"\<first\> \& \[last\](question)" in markdown
    assert "Environment" not in markdown
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert dict(suite.attrib)["failures"] == "2"
    assert [case.get("name") for case in suite] == ["RR", "P@1"]
    assert "q000 -50.00" in suite[0].find("failure").text
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["measures"]["RR"]["lost"][0] == ["q000", -0.5]
    gate(run(), run(worse=2), QRELS, MEASURES).write(tmp_path)
    assert len(ElementTree.parse(tmp_path / "junit.xml").getroot().findall("*/skipped")) == 2


def test_a_run_of_other_questions_is_refused():
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
    """Both by measure, (questions,)."""
    settings = GateSettings(resampling=Resampling(1000), **changed)
    questions = tuple(map(str, range(len(next(iter(baseline.values()))))))
    sides = {"baseline": baseline, "candidate": candidate}
    comparison = compare_systems(
        {side: {name: one[None] for name, one in of.items()} for side, of in sides.items()},
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
def test_a_system_against_itself_is_rarely_a_false_alarm(scores, questions, null):
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(CASES):
        drawn = random.integers(0, scores["AP"].shape[1], questions)
        first = {name: found[0, drawn] for name, found in scores.items()}
        second = first
        if null == "exchanged":
            swap = random.random(questions) < 0.5
            other = {name: found[1, drawn] for name, found in scores.items()}
            second = {name: np.where(swap, first[name], other[name]) for name in scores}
            first = {name: np.where(swap, other[name], first[name]) for name in scores}
        elif null == "other questions":
            drawn = random.integers(0, scores["AP"].shape[1], questions)
            second = {name: found[0, drawn] for name, found in scores.items()}
        verdicts = {one.verdict for one in gated(first, second).values()}
        alarms += "fail" in verdicts
    sys.stdout.write(f"{null}, {questions}: {alarms / CASES:.1%} false alarms\n")
    assert alarms / CASES <= 0.05


@pytest.mark.soak
@pytest.mark.parametrize("questions", [100, 300])
@pytest.mark.parametrize("margin", [1.0, 3.0])
def test_drops_are_found_as_often_as_promised(scores, questions, margin):
    random = np.random.default_rng(0)
    baseline, candidate = scores["nDCG@10"]
    centered = candidate - baseline - (candidate - baseline).mean()

    def drawn(drop):
        rows = random.integers(0, scores["AP"].shape[1], questions)
        changed = baseline[rows] + centered[rows] - drop
        return gated({"nDCG@10": baseline[rows]}, {"nDCG@10": changed}, margin=margin)["nDCG@10"]

    promised = np.mean([drawn(0.0).detectable for _ in range(300)])
    found = np.mean([drawn(promised).verdict == "fail" for _ in range(CASES)])
    sys.stdout.write(f"{questions}, margin {margin}: {100 * promised:.1f} points in {found:.1%}\n")
    assert found == pytest.approx(0.8, abs=0.03)
