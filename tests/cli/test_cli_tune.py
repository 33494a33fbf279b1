from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from eval.datasets.pairs import read_pairs
from eval.datasets.question_forms import read_question_set
from eval.metrics.measures import evaluate
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import parse_encoder


def sentence(random):
    return " ".join(f"w{word}" for word in random.integers(0, 200, random.integers(2, 9)))


def write_pairs(path, count, seed):
    random = np.random.default_rng(seed)
    lines = ["score\tsentence1\tsentence2"]
    for _ in range(count):
        one, alike = sentence(random), int(random.integers(0, 6))
        words = one.split()
        other = [word if random.random() < alike / 5 else "w1" for word in words]
        lines.append(f"{alike}\t{one}\t{' '.join(other)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def pairs(tmp_path):
    return {
        "dev": write_pairs(tmp_path / "dev.tsv", 40, 0),
        "test": write_pairs(tmp_path / "test.tsv", 30, 1),
    }


@pytest.fixture
def questions(tmp_path):
    random = np.random.default_rng(0)
    texts = {f"d{number}": sentence(random) for number in range(40)}
    rows = [{"id": name, "text": text} for name, text in texts.items()]
    folder = tmp_path / "qa"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split in ("dev", "test"):
        queries, pools, qrels = [], [], []
        for number in range(12):
            pool = [str(name) for name in random.choice(list(texts), 6, replace=False)]
            queries.append({"id": f"q{number}", "text": texts[pool[0]] + " w5 w6"})
            pools.append({"qid": f"q{number}", "candidates": pool})
            qrels.append(f"q{number} 0 {pool[0]} {int(number > 1)}\n")
        for name, records in (("queries", queries), ("candidates", pools)):
            text = "".join(json.dumps(record) + "\n" for record in records)
            (folder / f"{name}.{split}.jsonl").write_text(text)
        (folder / f"qrels.{split}.tsv").write_text("".join(qrels))
    return folder


@pytest.fixture
def tune(retriever, tiny_models):
    def call(*arguments, settings=""):
        model = f"{tiny_models['bert']}{settings}"
        return retriever("eval", "layers", *arguments, "--model", model)

    return call


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))


def cosines(encoder, left, right):
    # Identical sentences have cosine 1 only up to the rounding of float32.
    return np.round((encoder.encode(left) * encoder.encode(right)).sum(axis=1), 6)


def test_the_encoder_to_paste_scores_what_the_report_says(tune, pairs):
    outcome = tune(pairs["dev"], "--test", pairs["test"], "--json", "--pooling", "max")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["encoder"].endswith(
        "::pooling=max::lc:" + ",".join(map(str, found["best"]["layers"]))
    )
    encoder = Encoder.load(found["encoder"], device="cpu")
    for side, value in (("dev", found["best"]["search"]), ("test", found["best"]["held_out"])):
        data = read_pairs([pairs[side]])
        expected = scipy.stats.spearmanr(cosines(encoder, data.left, data.right), data.gold)[0]
        assert value == pytest.approx(expected, abs=1e-6)
    assert found["subsets"] == 7
    assert found["search_data"]["units"] == 40
    assert found["held_out_data"]["units"] == 30
    assert found["gain"]["held_out"] is True
    assert found["gain"]["low"] <= found["gain"]["gain"] <= found["gain"]["high"]


def test_questions_are_ranked_as_evaluate_ranks_them(tune, questions):
    outcome = tune(questions, "--test-split", "test", "--objective", "ndcg@10", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["unit"], found["objective"]) == ("questions", "nDCG@10")
    assert found["search_data"]["units"] == 10
    assert found["held_out_data"]["left_out"] == 2
    pools = read_question_set(questions, "test").answered()
    scores = iter(cosines(Encoder.load(found["encoder"], device="cpu"), *pools.pairs()).tolist())
    run = {one.id: {c: next(scores) for c in one.candidates} for one in pools.questions}
    qrels = {one.id: dict(one.grades) for one in pools.questions}
    value = evaluate(run, qrels, ["nDCG@10"]).means["nDCG@10"]
    assert found["best"]["held_out"] == pytest.approx(value, abs=1e-6)


def test_the_report_shows_sets_gain_effects_and_the_encoder(tune, pairs, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "effects.svg"
    outcome = tune(pairs["dev"], "--test", pairs["test"], "--set", "top=3", "--plot", figure)
    assert outcome.code == 0, outcome.err
    for text in (
        "sets: 7 of 3 hidden states (0: embeddings)",
        "objective: spearman over 40 pairs of",
        "held-out data: 30 pairs of",
        "held-out rank",
        "last layer",
        "gain on held-out data: ",
        "95% interval",
        "number of layers",
        "best without",
        "encoder: ",
    ):
        assert text in outcome.out
    table = outcome.out.split("\n\n")[1].splitlines()
    assert len(table) == 2 + 3 + 1
    assert figure.read_text().startswith("<?xml")


def test_without_held_out_data_the_report_says_so(tune, pairs, questions):
    for data in (pairs["dev"], questions):
        outcome = tune(data)
        assert outcome.code == 0, outcome.err
        assert "the gain is optimistic: it is measured on the data" in outcome.out
        assert "held-out rank" not in outcome.out
    assert json.loads(tune(pairs["dev"], "--json").out)["held_out_data"] is None


def test_the_papers_protocol_merges_files_and_repeats_itself(tune, pairs):
    arguments = (pairs["dev"], pairs["test"], "--protocol", "paper", "--set", "dev-size=30")
    outcome = tune(*arguments, "--set", "shuffles=3")
    assert outcome.code == 0, outcome.err
    assert "spearman over 70 pairs of" in outcome.out
    assert "held out, mean over 3 shuffles (30 pairs to search on, 40 to test on):" in outcome.out
    assert "best layers (shuffles): " in outcome.out
    assert tune(*arguments, "--set", "shuffles=3").out == outcome.out
    found = json.loads(tune(*arguments, "--set", "shuffles=3", "--set", "seed=1", "--json").out)
    assert len(found["shuffles"]) == 3
    assert sum(times for _, times in found["wins"]) == 3


def test_sets_can_be_kept_small(tune, pairs):
    found = json.loads(tune(pairs["dev"], "--max-layers", 1, "--json").out)
    assert found["subsets"] == 3
    assert [effect["size"] for effect in found["sizes"]] == [1]


def test_settings_other_than_layers_are_kept_in_the_encoder(tune, pairs):
    found = json.loads(tune(pairs["dev"], "--json", settings="::special-tokens=drop").out)
    settings = parse_encoder(found["encoder"])
    assert settings.special_tokens == "drop"
    assert settings.fusion == "mean"
    assert settings.layers == ",".join(map(str, found["best"]["layers"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dev", "--objective", "map"], "expected spearman or pearson for scored pairs"),
        (["qa", "--objective", "magic"], "unknown measure 'magic'"),
        (["qa", "--objective", "pearson"], "expected a measure of rankings for questions"),
        (["dev", "test"], "name the file to test on with --test"),
        (["qa", "--test", "test"], "name the split to test on (--test-split)"),
        (["dev", "--split", "dev"], "split: it names a split of a folder"),
        (["dev", "--test-split", "dev"], "test-split: it names a split of a folder"),
        (["qa", "--protocol", "paper"], "protocol: paper merges and divides scored pairs"),
        (["dev", "--protocol", "paper", "--test", "test"], "no data to test on (--test)"),
        (["dev", "--protocol", "paper"], "dev-size: expected 2 to 38 of the 40 pairs, found 350"),
        (["qa", "--split", "train"], "expected one of the splits dev, test"),
        (["nothing.tsv"], "no such file"),
        (["constant"], "constant.tsv: expected gold scores that differ, found 3 for all 2 pairs"),
        (["single"], "single.tsv: expected at least 2 scored pairs, found 1"),
        (["broken"], "broken.tsv:3: expected a finite number as score, found 'five'"),
        (["dev", "::layers=all"], "layers: found all, but the search chooses the layers"),
        (["dev", "::fusion=concat"], "fusion: found concat, but the search takes means or maxima"),
        (["dev", "::sbert-wk"], "fusion: found sbert-wk"),
        (["dev", "::static=average"], "static: found average"),
        (["dev", "--layers", "all"], "No such option '--layers'"),
        (["dev", "--max-layers", 4], "expected 1 to 3, found 4"),
        (["dev", "--plot", "figure.pdf"], "expected a figure that ends in .png or .svg"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    tune, pairs, questions, tmp_path, arguments, message
):
    header = "score\tsentence1\tsentence2\n"
    files = {"qa": questions, **pairs}
    for name, rows in (
        ("constant", "3\ta\tb\n3\tc\td\n"),
        ("single", "3\ta\tb\n"),
        ("broken", "3\ta\tb\nfive\tc\td\n"),
    ):
        files[name] = tmp_path / f"{name}.tsv"
        files[name].write_text(header + rows)
    settings = [one for one in arguments if str(one).startswith("::")]
    given = [files.get(str(one), one) for one in arguments if one not in settings]
    if {"--split", "--test-split"} & set(arguments):
        given[-1] = arguments[-1]
    outcome = tune(*given, settings="".join(settings))
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.soak
def test_the_search_finds_the_known_layers_of_minilm_on_stsb(retriever, stsb, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(stsb.cache))
    found = json.loads(retriever("eval", "layers", stsb.path, "--json", "--device", "cpu").out)
    assert found["baseline"]["search"] == pytest.approx(0.8203, abs=5e-5)
    assert found["best"]["layers"] == [0, 6]
    assert found["best"]["search"] == pytest.approx(0.8238, abs=5e-5)


def test_the_report_holds_what_json_prints(tune, pairs, tmp_path):
    report = tmp_path / "report"
    outcome = tune(pairs["dev"], "--output", report, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == json.loads((report / "report.json").read_text())
    layers = ",".join(map(str, json.loads(outcome.out)["best"]["layers"]))
    assert (report / "sets.csv").read_text().splitlines()[1].strip('"').startswith(layers)
    assert layers in (report / "report.md").read_text()
