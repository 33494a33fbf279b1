"""Training and dev data of encoders: every kind of data, and its division."""

import gzip
import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval import Loading, QASettings, QuestionSettings, rank_systems
from eval.progress import ignore, silent
from eval.training.data import CorpusPairs, EncoderFitSettings, _held_out_ranking, read_examples
from retriever.documents import Document
from retriever.encoders.training import (
    LabeledExamples,
    ScoredExamples,
    TrainableEncoder,
    paired_texts,
)
from retriever.errors import BadInputError, ConfigError, SourceError
from retriever.training import EncoderTrainingSettings, SamplingSettings, TrainingSet
from tests.eval.qa.samples import made_set, write_set


def read(data, objective=None, negatives="pool", dev=None, **questions):
    sampling = SamplingSettings(negatives=negatives)
    training = EncoderTrainingSettings(objective=objective, sampling=sampling)
    data_settings = QuestionSettings(**questions)
    settings = EncoderFitSettings("", training, data=data_settings, dev=dev)
    return read_examples(data, settings, silent, ignore)


def ranked(table, *pairs):
    """Return the reciprocal rank on held-out pairs with an encoder of a table."""
    return _held_out_ranking(paired_texts(*zip(*pairs, strict=True))).score(FixedEncoder(table))


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs_file(path, count=40):
    rows = [{"anchor": f"q{n}", "positive": f"p{n}", "negative": f"n{n}"} for n in range(count)]
    return lines(path, *rows)


def scored_file(path, count=40, scores=range(6), name="score"):
    rows = [f"{scores[n % len(scores)]}\ta{n}\tb{n}\n" for n in range(count)]
    path.write_text(f"{name}\tsentence1\tsentence2\n" + "".join(rows))
    return path


def labeled_file(path, count=40, labels=("yes", "no")):
    return scored_file(path, count, labels, "label")


class FixedEncoder:
    """An encoder that looks up unit vectors in a table."""

    def __init__(self, table):
        self.table = table

    def encode(self, texts, *, query=False):
        vectors = np.array([self.table[text] for text in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def files(tmp_path):
    """The path of each data set by its name; * stands for an ending."""
    write_set(tmp_path / "set", made_set("train"), made_set("dev", answered=0.5))
    (tmp_path / "both").mkdir()
    for split in ("train", "trial", "test"):
        scored_file(tmp_path / f"both/{split}.tsv", 12)
        labeled_file(tmp_path / f"both/entailment.{split}.tsv", 14)
    pairs_file(tmp_path / "pairs.jsonl")
    pairs_file(tmp_path / "many.jsonl", 12_000)
    text = "anchor\tpositive\tnegative\n" + "".join(f"q{n}\tp{n}\tn{n}\n" for n in range(40))
    (tmp_path / "in-tsv.tsv").write_text(text)
    (tmp_path / "in-csv.csv").write_text(text.replace("\t", ","))
    packed = gzip.compress((tmp_path / "pairs.jsonl").read_bytes())
    (tmp_path / "zipped.jsonl.gz").write_bytes(packed)
    lines(tmp_path / "anchor.jsonl", *[{"anchor": "q", "positive": f"p{n}"} for n in range(5)])
    scored_file(tmp_path / "scored.tsv")
    scored_file(tmp_path / "one.tsv", 1)
    scored_file(tmp_path / "constant.tsv", 30, [1])
    labeled_file(tmp_path / "labeled.tsv")
    labeled_file(tmp_path / "more.tsv", 11)
    labeled_file(tmp_path / "class.tsv", labels=("yes",))
    labeled_file(tmp_path / "maybe.tsv", labels=("yes", "maybe"))

    def read_named(names, objective=None, dev=None, **questions):
        paths = [next(tmp_path.glob(f"{name}*")) for name in names.split()]
        dev_path = None if dev is None else next(tmp_path.glob(f"{dev}*"))
        return read(paths[0] if len(paths) == 1 else paths, objective, dev=dev_path, **questions)

    return read_named


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ("set", {}, (TrainingSet, 12, "AP", 6)),
        ("set", {"dev_share": 0.25}, (TrainingSet, 9, "AP", 3)),
        ("set", {"dev": "pairs"}, (TrainingSet, 12, "RR", 40)),
        ("set", {"dev": "scored", "form": "own"}, (TrainingSet, 12, "Spearman", 40)),
        ("pairs", {}, (TrainingSet, 36, "RR", 4)),
        ("pairs", {"dev": "scored"}, (TrainingSet, 40, "Spearman", 40)),
        ("pairs", {"dev": "set"}, (TrainingSet, 40, "AP", 6)),
        ("in-tsv", {}, (TrainingSet, 36, "RR", 4)),
        ("in-csv", {}, (TrainingSet, 36, "RR", 4)),
        ("zipped", {}, (TrainingSet, 36, "RR", 4)),
        # At most a thousand are held out unless a share is named.
        ("many", {}, (TrainingSet, 11_000, "RR", 1000)),
        ("many", {"dev_share": 0.1}, (TrainingSet, 10_800, "RR", 1200)),
        # Equal anchors are one.
        ("pairs many", {"dev": "pairs"}, (TrainingSet, 12_000, "RR", 40)),
        ("scored", {}, (ScoredExamples, 36, "Spearman", 4)),
        ("labeled", {"dev_share": 0.5}, (LabeledExamples, 20, "accuracy", 20)),
        ("labeled more", {"dev": "more"}, (LabeledExamples, 51, "accuracy", 11)),
        ("both", {}, (ScoredExamples, 12, "Spearman", 12)),
        ("both", {"objective": "sts", "dev_share": 0.5}, (ScoredExamples, 6, "Spearman", 6)),
        ("both", {"objective": "nli"}, (LabeledExamples, 14, "accuracy", 14)),
    ],
)
def test_training_data_of_each_form_are_recognized_and_split(files, names, options, expected):
    data = files(names, **options)
    train = data.train
    size = len(train.questions) if isinstance(train, TrainingSet) else len(train)
    assert (type(train), size, data.dev.name, data.dev.units) == expected
    if isinstance(train, LabeledExamples):
        assert len(train.left) == len(train.right) == len(train.labels)
    assert files(names, **options).train.digest() == train.digest()


def test_a_set_without_pools_pairs_questions_with_their_documents(tmp_path):
    folder = write_set(tmp_path / "set", made_set("train"), made_set("dev"))
    for path in folder.glob("candidates.*"):
        path.unlink()
    data = read(folder)
    assert data.dev.name == "RR"
    train = made_set("train")
    pools = data.train.pools
    for row, question in enumerate(train.questions):
        assert data.train.questions[row] == question.text
        (right,) = (id_ for id_, grade in question.grades.items() if grade)
        relevant = pools.relevant(np.array([row]), np.arange(pools.passages))[0]
        texts = [data.train.passages[place] for place in np.flatnonzero(relevant)]
        assert texts == [train.passages[right]]
    assert read(folder, dev_share=0.5).dev.units == 6


def test_a_pair_may_lack_a_negative(tmp_path):
    path = lines(
        tmp_path / "p.jsonl",
        {"anchor": "q", "positive": "p", "negative": ""},
        {"anchor": "r", "positive": "s", "negative": None},
        {"anchor": "t", "positive": "u", "negative": "v"},
    )
    assert len(read(path, dev=path).train.pools.negatives) == 1


def test_hard_negatives_are_mined_from_the_passages(tmp_path):
    rows = [{"anchor": f"w{n} v{n}", "positive": f"w{n} and v{(n + 1) % 8}"} for n in range(8)]
    path = lines(tmp_path / "p.jsonl", *rows)
    train = read(path, negatives="hard", dev=path).train
    for row in range(8):
        start, stop = train.pools.negative_starts[row : row + 2]
        texts = [train.passages[row] for row in train.pools.negatives[start:stop]]
        assert f"w{(row - 1) % 8} and v{row}" in texts
        assert rows[row]["positive"] not in texts


def test_pairs_of_one_anchor_stay_on_one_side_of_the_split(tmp_path):
    rows = [{"anchor": f"q{n % 40}", "positive": f"p{n}"} for n in range(160)]
    data = read(lines(tmp_path / "p.jsonl", *rows))
    dev_questions = []

    class Recording:
        def encode(self, texts, *, query=False):
            dev_questions.extend(texts if query else ())
            return np.ones((len(texts), 2), np.float32)

    data.dev.score(Recording())
    assert len(dev_questions) == 4
    assert sorted([*data.train.questions, *dev_questions]) == sorted(f"q{n}" for n in range(40))


def test_titles_and_texts_of_a_corpus_are_anchors_and_passages():
    corpus = [Document(str(n), f"text {n}", f"title {n}") for n in range(40)]
    data = read(CorpusPairs(corpus))
    assert (len(data.train.questions), data.dev.name, data.dev.units) == (36, "RR", 4)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("x.jsonl", [{"text": "a"}], "rename the fields, or make pairs"),
        ("x.jsonl", [{"anchor": "a", "positive": " "}], "as positive, found"),
        ("x.jsonl", [{"anchor": "a"}], "found anchor"),
        ("x.txt", [{}], "that ends in .tsv, .csv or .jsonl"),
        ("x.jsonl", [], "found none; rename the fields"),
        ("", [], "expected questions with passages"),
        ("none.jsonl", None, "no such file or folder"),
        ("x.jsonl", [{"anchor": "q", "positive": "\ud800"}], "x.jsonl:1: the positive holds"),
    ],
)
def test_training_data_of_unknown_form_are_refused(tmp_path, name, rows, message):
    if rows is not None and name:
        lines(tmp_path / name, *rows)
    with pytest.raises(SourceError) as caught:
        read(tmp_path / name)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "options", "error", "message"),
    [
        ("set", {"dev_split": "dev2"}, SourceError, "'dev2'"),
        ("anchor", {}, BadInputError, "several anchors"),
        ("one", {}, ConfigError, "leaves none on one side"),
        ("class", {}, BadInputError, "at least two classes"),
        ("constant", {}, BadInputError, "different scores"),
        ("labeled", {"dev": "maybe"}, BadInputError, "found 'maybe'"),
        ("scored", {"dev": "labeled"}, ConfigError, "only for the objective nli"),
        (
            "scored",
            {"dev_split": "test"},
            ConfigError,
            "dev-split: only question sets have named splits",
        ),
        ("pairs", {"dev": "scored", "dev_share": 0.5}, ConfigError, "leave one of the two out"),
        ("pairs pairs", {}, ConfigError, "expected each file once"),
        ("pairs scored", {}, ConfigError, "expected files of one kind"),
    ],
)
def test_mismatched_training_data_and_settings_are_refused(files, names, options, error, message):
    with pytest.raises(error, match=message):
        files(names, **options)


@pytest.mark.parametrize(
    ("table", "pairs", "expected"),
    [
        # a ties with b and is second; c is first for r.
        (
            {"q": (1, 0), "r": (0, 1), "a": (1, 0), "b": (1, 0), "c": (0, 1), "d": (1, 1)},
            [("q", "a", None), ("r", "d", None), ("r", "c", "b")],
            (1 / 2 + 1) / 2,
        ),
        ({"q": (1, 0), "a": (np.nan, 0), "b": (0, 1)}, [("q", "a", "b")], 1 / 2),
        ({"q": (1, 0), "a": (0, 1), "b": (np.nan, 0)}, [("q", "a", "b")], 1 / 2),
    ],
    ids=["ties", "no number for the relevant", "no number for the other"],
)
def test_the_reciprocal_rank_counts_ties_against_the_encoder(table, pairs, expected):
    assert ranked(table, *pairs) == pytest.approx(expected)


def test_dev_score_of_scored_pairs_is_scipys_spearman_correlation(tmp_path):
    chance = np.random.default_rng(0)
    path = scored_file(tmp_path / "s.tsv", 30)
    table = {f"{side}{n}": chance.standard_normal(3) for n in range(30) for side in "ab"}
    encoder = FixedEncoder(table)
    score = read(pairs_file(tmp_path / "p.jsonl"), dev=path).dev.score(encoder)
    u, v = (encoder.encode([f"{side}{n}" for n in range(30)]) for side in "ab")
    expected = spearmanr((u * v).sum(1), [n % 6 for n in range(30)]).statistic
    assert score == pytest.approx(expected, abs=1e-9)


def test_dev_score_of_pools_equals_eval_qa(tmp_path, tiny_models):
    folder = write_set(tmp_path / "set", made_set("train"), made_set("dev"))
    name = f"{tiny_models['bert']}::max-length=32"
    score = read(folder).dev.score(TrainableEncoder.load(name, device="cpu"))
    settings = QASettings(name, Loading("cpu"), split="dev", measures=("AP",))
    expected = rank_systems(folder, "cosine", settings).comparison.scores["AP"]["cosine"].value
    assert score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("label", [None, " ", ["a"]])
def test_a_label_is_a_text_or_a_number(tmp_path, label):
    rows = [{"label": n % 2, "sentence1": f"a{n}", "sentence2": "b"} for n in range(30)]
    assert read(lines(tmp_path / "good.jsonl", *rows)).train.names == ("0", "1")
    rows[20]["label"] = label
    with pytest.raises(SourceError, match=r"bad\.jsonl:21: expected a text as label"):
        read(lines(tmp_path / "bad.jsonl", *rows))
