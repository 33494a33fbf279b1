"""What encoders are trained and chosen on: every kind of data, and how it is divided."""

import gzip
import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.progress import ignore, silent
from eval.qa.systems import QuestionSettings
from eval.training.corpus_pairs import CorpusPairs
from eval.training.data import ReadingSettings, read_examples
from eval.training.dev import Accuracy, HeldOutRanking, PoolRanking, Similarity
from eval.vectors import Loading
from retriever.documents import Document
from retriever.encoders.training.examples import LabeledExamples, ScoredExamples, paired_texts
from retriever.errors import BadInputError, ConfigError, SourceError
from retriever.training.sampling import TrainingSet
from tests.eval.qa.samples import made_set, write_set


def read(data, objective=None, negatives="pool", dev=None, **questions):
    settings = ReadingSettings(
        objective, negatives, QuestionSettings(**questions), dev, "", Loading()
    )
    return read_examples(data, settings, silent, ignore)


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs_file(path, count=40):
    rows = [{"anchor": f"q{n}", "positive": f"p{n}", "negative": f"n{n}"} for n in range(count)]
    return lines(path, *rows)


def scored_file(path, count=40):
    rows = [f"{number % 6}\ta{number}\tb{number}\n" for number in range(count)]
    path.write_text("score\tsentence1\tsentence2\n" + "".join(rows))
    return path


def labeled_file(path, count=40, labels=("yes", "no")):
    rows = [f"{labels[number % len(labels)]}\ta{number}\tb{number}\n" for number in range(count)]
    path.write_text("label\tsentence1\tsentence2\n" + "".join(rows))
    return path


class FixedEncoder:
    """A text is a unit vector that a table gives."""

    def __init__(self, table):
        self.table = table

    def encode(self, texts, *, query=False):
        vectors = np.array([self.table[text] for text in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_questions_with_pools_are_what_rerankers_train_on(tmp_path):
    folder = write_set(tmp_path / "set", made_set("train"), made_set("dev", answered=0.5))
    found = read(folder)
    assert isinstance(found.train, TrainingSet)
    assert isinstance(found.dev, PoolRanking)
    assert (len(found.train.questions), len(found.dev)) == (12, 6)
    assert len(read(folder, dev_share=0.25).train.questions) == 9
    with pytest.raises(SourceError, match="'dev2'"):
        read(folder, dev_split="dev2")


def test_splits_that_are_loaded_are_read_too():
    splits = {name: made_set(name) for name in ("train", "dev")}
    assert len(read(splits).train.questions) == 12


def test_a_set_without_pools_pairs_questions_with_their_documents(tmp_path):
    folder = write_set(tmp_path / "set", made_set("train"), made_set("dev"))
    for path in folder.glob("candidates.*"):
        path.unlink()
    found = read(folder)
    assert isinstance(found.dev, HeldOutRanking)
    train = made_set("train")
    for row, question in enumerate(train.questions):
        assert found.train.questions[row] == question.text
        (right,) = (id_ for id_, grade in question.grades.items() if grade)
        relevant = found.train.pools.relevant(
            np.array([row]), np.arange(found.train.pools.passages)
        )
        assert [found.train.passages[place] for place in np.flatnonzero(relevant)] == [
            train.passages[right]
        ]
    assert len(read(folder, dev_share=0.5).dev) == 6


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.tsv", "pairs.csv", "pairs.jsonl.gz"])
def test_a_file_of_pairs_is_divided_by_its_anchors(tmp_path, name):
    path = tmp_path / name
    if "jsonl" in name:
        pairs_file(path)
        if name.endswith("gz"):
            path.write_bytes(gzip.compress(path.read_bytes()))
    else:
        mark = "\t" if "tsv" in name else ","
        rows = [mark.join([f"q{n}", f"p{n}", f"n{n}"]) for n in range(40)]
        path.write_text("\n".join([mark.join(["anchor", "positive", "negative"]), *rows]) + "\n")
    found = read([path])
    assert (len(found.train.questions), len(found.dev)) == (36, 4)
    assert len(found.train.pools.negatives) == 36
    assert read(path).train.digest() == found.train.digest()


def test_a_pair_may_lack_a_negative(tmp_path):
    path = lines(
        tmp_path / "p.jsonl",
        {"anchor": "q", "positive": "p", "negative": ""},
        {"anchor": "r", "positive": "s", "negative": None},
        {"anchor": "t", "positive": "u", "negative": "v"},
    )
    assert len(read(path, dev=path).train.pools.negatives) == 1


def test_files_of_one_kind_are_joined_and_others_refused(tmp_path):
    first, second = (pairs_file(tmp_path / f"{n}.jsonl", 10 + n) for n in (1, 2))
    assert len(read([first, second], dev=first).train.questions) == 12
    with pytest.raises(ConfigError, match="expected files of one kind"):
        read([first, scored_file(tmp_path / "s.tsv")])


def test_scores_and_labels_are_recognized(tmp_path):
    scored = read(scored_file(tmp_path / "s.tsv"))
    assert isinstance(scored.train, ScoredExamples)
    assert isinstance(scored.dev, Similarity)
    assert (len(scored.train), len(scored.dev)) == (36, 4)
    labeled = read(labeled_file(tmp_path / "l.tsv"), dev_share=0.5)
    assert isinstance(labeled.train, LabeledExamples)
    assert isinstance(labeled.dev, Accuracy)
    assert (len(labeled.train), len(labeled.dev)) == (20, 20)


def test_a_folder_of_both_is_read_by_the_objective(tmp_path):
    for split in ("train", "trial", "test"):
        scored_file(tmp_path / f"{split}.tsv", 12)
        labeled_file(tmp_path / f"entailment.{split}.tsv", 14)
    assert len(read(tmp_path).train) == len(read(tmp_path, "sts").train) == 12
    labeled = read(tmp_path, "nli")
    assert (len(labeled.train), len(labeled.dev)) == (14, 14)


def test_hard_negatives_are_mined_from_the_passages(tmp_path):
    rows = [{"anchor": f"w{n} v{n}", "positive": f"w{n} and v{(n + 1) % 8}"} for n in range(8)]
    path = lines(tmp_path / "p.jsonl", *rows)
    found = read(path, negatives="hard", dev=path).train
    for row in range(8):
        start, stop = found.pools.negative_starts[row : row + 2]
        texts = [found.passages[one] for one in found.pools.negatives[start:stop]]
        assert f"w{(row - 1) % 8} and v{row}" in texts
        assert rows[row]["positive"] not in texts


def test_pairs_of_a_document_stay_together():
    text = " ".join(f"Sentence {number} is about ships." for number in range(4))
    corpus = [Document(str(n), text.replace("ships", f"ships{n}")) for n in range(40)]
    found = read(CorpusPairs(corpus, "neighbors"))
    words = [
        {one.split()[-1] for one in texts}
        for texts in (found.train.questions, found.dev._data.questions)
    ]
    assert len(words[1]) == 4
    assert not words[0] & words[1]


def test_at_most_a_thousand_pairs_are_held_out_unless_a_share_is_named(tmp_path):
    path = pairs_file(tmp_path / "p.jsonl", 12_000)
    assert len(read(path).dev) == 1000
    assert len(read(path, dev_share=0.1).dev) == 1200


def test_other_data_may_choose_the_epoch(tmp_path):
    train = pairs_file(tmp_path / "p.jsonl")
    assert isinstance(read(train, dev=scored_file(tmp_path / "s.tsv")).dev, Similarity)
    questions = write_set(tmp_path / "set", made_set("dev"))
    found = read(train, dev=questions)
    assert isinstance(found.dev, PoolRanking)
    assert len(found.train.questions) == 40
    swapped = read(write_set(tmp_path / "both", made_set("train"), made_set("dev")), dev=train)
    assert isinstance(swapped.dev, HeldOutRanking)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: lines(p / "x.jsonl", {"text": "a"}), "rename the fields, or name the pairs"),
        (lambda p: lines(p / "x.jsonl", {"anchor": "a", "positive": " "}), "as positive, found"),
        (lambda p: lines(p / "x.jsonl", {"anchor": "a"}), "found anchor"),
        (lambda p: lines(p / "x.txt", {}), "that ends in .tsv, .csv or .jsonl"),
        (lambda p: lines(p / "x.jsonl"), "found none; rename the fields"),
        (lambda p: p / "none.jsonl", "no such file or folder"),
        (lambda p: p, "expected a set of questions with passages"),
    ],
)
def test_data_of_no_known_form_is_refused(tmp_path, make, message):
    with pytest.raises(SourceError) as caught:
        read(make(tmp_path))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_cannot_be_divided_is_refused(tmp_path):
    one = lines(tmp_path / "p.jsonl", *[{"anchor": "q", "positive": f"p{n}"} for n in range(5)])
    with pytest.raises(BadInputError, match="several anchors"):
        read(one)
    with pytest.raises(ConfigError, match="leaves none on one side"):
        read(scored_file(tmp_path / "s.tsv", 1))


def test_data_of_one_class_or_score_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="at least two classes"):
        read(labeled_file(tmp_path / "l.tsv", labels=("yes",)))
    (tmp_path / "s.tsv").write_text("score\tsentence1\tsentence2\n" + "1\ta\tb\n" * 30)
    with pytest.raises(BadInputError, match="different scores"):
        read(tmp_path / "s.tsv")


def test_dev_must_fit_the_training_data(tmp_path):
    labeled = labeled_file(tmp_path / "l.tsv")
    with pytest.raises(BadInputError, match="found 'maybe'"):
        read(labeled, dev=labeled_file(tmp_path / "m.tsv", labels=("yes", "maybe")))
    with pytest.raises(ConfigError, match="the objective nli alone"):
        read(scored_file(tmp_path / "s.tsv"), dev=labeled)


def test_the_reciprocal_rank_counts_ties_against_the_encoder():
    table = {"q": (1, 0), "r": (0, 1), "a": (1, 0), "b": (1, 0), "c": (0, 1), "d": (1, 1)}
    data = paired_texts(["q", "r", "r"], ["a", "d", "c"], [None, None, "b"])
    # a ties with b and is second; c is first for r.
    assert HeldOutRanking(data)(FixedEncoder(table)) == pytest.approx((1 / 2 + 1) / 2)


def test_similarity_is_the_correlation_of_scipy(tmp_path):
    chance = np.random.default_rng(0)
    path = scored_file(tmp_path / "s.tsv", 30)
    table = {f"{side}{n}": chance.standard_normal(3) for n in range(30) for side in "ab"}
    encoder = FixedEncoder(table)
    found = read(pairs_file(tmp_path / "p.jsonl"), dev=path).dev(encoder)
    u, v = (encoder.encode([f"{side}{n}" for n in range(30)]) for side in "ab")
    expected = spearmanr((u * v).sum(1), [n % 6 for n in range(30)]).statistic
    assert found == pytest.approx(expected, abs=1e-9)


def test_pools_are_ranked_as_eval_qa_ranks_them(tmp_path, retriever, tiny_models, monkeypatch):
    from retriever.encoders.training.model import TrainableEncoder

    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    folder = write_set(tmp_path / "set", made_set("train"), made_set("dev"))
    name = f"{tiny_models['bert']}::max-length=32"
    found = read(folder).dev(TrainableEncoder.load(name, device="cpu"))
    done = retriever(
        "eval", "qa", folder, "--split", "dev", "-s", "cosine", "--model", name, "--json"
    )
    assert done.code == 0, done.err
    expected = json.loads(done.out)["systems"][0]["scores"]["AP"]["value"]
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_passage_whose_score_is_not_a_number_is_no_hit():
    data = paired_texts(["q"], ["a"], ["b"])
    table = {"q": (1, 0), "a": (np.nan, 0), "b": (0, 1)}
    assert HeldOutRanking(data)(FixedEncoder(table)) == pytest.approx(1 / 2)
    table = {"q": (1, 0), "a": (0, 1), "b": (np.nan, 0)}
    assert HeldOutRanking(data)(FixedEncoder(table)) == pytest.approx(1 / 2)


def test_options_that_do_not_apply_are_refused_and_a_share_is_held_out_of_a_folder(tmp_path):
    scored = tmp_path / "sts"
    scored.mkdir()
    for split in ("train", "dev", "test"):
        scored_file(scored / f"{split}.tsv")
    assert len(read(scored).train.scores) == 40
    shared = read(scored, dev_share=0.5)
    assert (len(shared.train.scores), len(shared.dev)) == (20, 20)
    with pytest.raises(ConfigError, match="dev-split: only sets of questions"):
        read(scored, dev_split="test")
    pairs = pairs_file(tmp_path / "pairs.jsonl")
    with pytest.raises(ConfigError, match="leave one out"):
        read(pairs, dev=scored, dev_share=0.5)
    with pytest.raises(ConfigError, match="expected each file once"):
        read([pairs, tmp_path / "." / "pairs.jsonl"])
    questions = write_set(tmp_path / "set", made_set("train"), made_set("dev"))
    assert isinstance(read(questions, dev=scored, form="own").dev, Similarity)


@pytest.mark.parametrize("label", [None, " ", ["a"]])
def test_a_label_is_a_text_or_a_number(tmp_path, label):
    rows = [{"label": n % 2, "sentence1": f"a{n}", "sentence2": "b"} for n in range(30)]
    assert read(lines(tmp_path / "good.jsonl", *rows)).train.names == ("0", "1")
    rows[20]["label"] = label
    with pytest.raises(SourceError, match=r"bad\.jsonl:21: expected a text as label"):
        read(lines(tmp_path / "bad.jsonl", *rows))


def test_a_text_that_cannot_be_stored_is_refused(tmp_path):
    pairs = [{"anchor": "q", "positive": "p"}, {"anchor": "r", "positive": "\ud800"}]
    with pytest.raises(SourceError, match=r"p.jsonl:2: the positive holds the lone surrogate"):
        read(lines(tmp_path / "p.jsonl", *pairs))
