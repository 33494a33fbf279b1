"""`eval sts`, `eval transfer` and `eval probe` as a user runs them, on a small random model."""

from __future__ import annotations

import csv
import json

import pytest

from eval.vectors import LISTS
from tests.cli.conftest import printed_json
from tests.eval.sentences.sentence_samples import write_probe, write_sts, write_task
from tests.retriever.encoders.architectures import save

FEW = ("--set", "resamples=100")


@pytest.fixture
def sts(tmp_path):
    return write_sts(tmp_path / "pairs")


@pytest.fixture
def evaluate(retriever):
    """Function that runs an `eval` command and returns its JSON."""
    return lambda *arguments: printed_json(retriever("eval", *arguments, *FEW, "--json"))


def first(printed, measure):
    """Return the value of a measure for each encoder on the first set."""
    scores = printed["sets"][0]["scores"]
    return {score["encoder"]: score["values"][measure]["value"] for score in scores}


def test_eval_sts_scores_encoders_of_paper_with_given_model(evaluate, sts, tmp_path):
    folder = save("bert", tmp_path / "bert")
    values = first(evaluate("sts", sts, "--encoders", "paper", "--model", folder), "spearman")
    assert [form.removeprefix(f"{folder}::") for form in values] == list(LISTS["paper"])


def test_tasks_and_probes_are_written_as_reports_with_figures(evaluate, tiny_models, tmp_path):
    task = write_task(tmp_path / "texts.tsv", {"train": 60, "test": 30}, classes=3)
    probe, model = write_probe(tmp_path / "word.txt"), ("-e", tiny_models["bert"])
    search = ("--layers-search", "--set", "outer=2", "--set", "inner=2", "--max-layers", "2")
    evaluate("transfer", task, *model, *search, "--train-share", "1,1/2", "-o", "curve")
    overview = (tmp_path / "curve/report.md").read_text()
    assert "| encoder | texts, 77 examples | texts, 38 examples |" in overview
    curve = (tmp_path / "curve/figures/sizes-accuracy.svg").read_text()
    assert "examples learned from" in curve
    printed = evaluate(
        "probe", probe, *model, "--by-layer", "--set", "poolings=max", "-o", "layers"
    )
    assert [one["poolings"] for one in printed["by_layer"]] == [["max"]]
    assert (tmp_path / "layers/figures/layers-accuracy.svg").exists()


@pytest.mark.filterwarnings("ignore:.* longer than the window")
def test_the_report_is_written_and_json_is_the_same(retriever, sts, tiny_models, tmp_path):
    report, model = tmp_path / "report", f"{tiny_models['bert']}::max-length=8"
    arguments = ("eval", "sts", sts, "-e", model, "-e", "::lc:0,1", "--model", model, *FEW)
    printed = printed_json(retriever(*arguments, "--json", "--output", report))
    assert printed == json.loads((report / "report.json").read_text())
    with (report / "examples.pairs.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 69
    output = f"{100 * first(printed, 'spearman')[model]:.2f}"
    done = retriever(*arguments)
    for text in (done.out, *((report / f"report.{end}").read_text() for end in ("md", "tex"))):
        assert output in text
    assert f"{model}: longer than its window, and cut: " in done.out
    assert "aggregation: all" in done.out
    assert "  pairs: pairs 69; parts a 30, b 39\n" in done.out


# Of 200 pairs by transformers, `sbert_wk_reference` and scipy.
KNOWN = {200: [0.9309, 0.7961, 0.8350], 1379: [0.8203, 0.712, 0.659]}


@pytest.mark.parametrize("pairs", [200, pytest.param(1379, marks=pytest.mark.soak)])
def test_sbert_wk_and_the_last_layer_of_minilm_have_their_known_correlations_on_sts_b(
    evaluate, stsb, tmp_path, pairs
):
    lines = stsb.read_text().splitlines(keepends=True)[: pairs + 1]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    wk = "::sbert-wk::window=2::start-layer=4"
    forms = ("-e", "::last", "-e", wk, "-e", f"{wk}::wk-preset=released")
    printed = evaluate("sts", tmp_path / "pairs.tsv", *forms, "--device", "cpu")
    assert list(first(printed, "spearman").values()) == pytest.approx(KNOWN[pairs], abs=5.1e-4)
