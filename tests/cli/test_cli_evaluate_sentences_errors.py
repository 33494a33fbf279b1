"""What `eval sts`, `eval transfer` and `eval probe` refuse: one line, exit code 2."""

from __future__ import annotations

import pytest

from tests.cli.error_cases import refused
from tests.eval.sentences.sentence_samples import write_probe, write_sts, write_task


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Good sets, and sets that each have one fault."""
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_sts(tmp_path / "pairs")
    write_task(tmp_path / "texts.tsv", {"train": 30, "test": 9})
    write_task(tmp_path / "few.tsv", {"all": 12})
    write_task(tmp_path / "one.tsv", {"train": 20, "test": 9}, classes=1)
    write_task(tmp_path / "lacking.tsv", {"train": 20})
    write_probe(tmp_path / "probe.txt")
    write_probe(tmp_path / "nodev.txt", {"tr": 20, "te": 10})
    head = "score\tsentence1\tsentence2\n"
    (tmp_path / "words.tsv").write_text(f"{head}high\tw1\tw2\n")
    (tmp_path / "labels.tsv").write_text("label\tsentence1\tsentence2\nyes\tw1\tw2\n")
    (tmp_path / "constant.tsv").write_text(f"{head}2\tw1\tw2\n2\tw3\tw4\n")
    (tmp_path / "single.tsv").write_text(f"{head}2\tw1\tw2\n")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/test.tsv").write_text(f"{head}2\tw1\tw2\n3\tw3\tw4\n")
    (tmp_path / "pairs.tsv").write_text(f"{head}2\tw1\tw2\n3\tw3\tw4\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sts words.tsv", ["words.tsv:2", "finite number", "'high'"]),
        ("sts constant.tsv", ["constant", "scores that differ", "leave the part out"]),
        ("sts single.tsv", ["single", "at least 2 scored pairs"]),
        ("sts alone pairs.tsv", ["alone: all of its pairs are in pairs too"]),
        ("sts absent", ["absent: no such file or folder"]),
        ("sts alone --supervised", ["alone", "no training pairs"]),
        ("sts pairs -e {model}::colour=red", ["unknown setting 'colour'"]),
        ("sts pairs -e {model}::layers=7", ["7"]),
        ("sts pairs -e {model} -e {model}", ["again"]),
        ("sts pairs -e no-such-model", ["no-such-model"]),
        ("sts pairs -e {model} --baseline other", ["baseline", "found 'other'"]),
        ("sts pairs -e {model}::last --by-layer", ["leave layers out"]),
        ("sts pairs -e {model} --output words.tsv", ["words.tsv", "found a file"]),
        ("sts pairs -e {model} --output no/report", ["expected its parent"]),
        ("sts labels.tsv", ["labels.tsv:1", "one column 'score'", "or leave the file out"]),
        ("transfer one.tsv", ["one", "at least 2 classes"]),
        ("transfer few.tsv -e {model}", ["few", "10 folds", "at most 6"]),
        ("transfer lacking.tsv", ["lacking.tsv", "train and test", "found train"]),
        ("probe nodev.txt", ["nodev.txt", "va (dev)"]),
        ("probe pairs", ["expected the file of a probing task, found a folder"]),
    ],
)
def test_bad_input_is_one_line(retriever, folder, tiny_models, arguments, said):
    filled = arguments.replace("{model}", str(tiny_models["bert"])).split()
    refused(retriever("eval", *filled, "--set", "resamples=100"), *said)
    assert not (folder / "report").exists()


def test_a_data_set_that_is_nowhere_is_missed_with_the_place_of_the_data_sets(
    retriever, folder, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_DATA", "sets")
    refused(
        retriever("eval", "sts", "absent"), "absent: no such file or folder, and no sets/absent"
    )
    absolute = str(folder / "absent")
    refused(retriever("eval", "sts", absolute), f"{absolute}: no such file or folder; check")
    for value in ("", None):
        monkeypatch.delenv("RETRIEVER_DATA", raising=False)
        if value is not None:
            monkeypatch.setenv("RETRIEVER_DATA", value)
        refused(
            retriever("eval", "qa", "absent"), "absent: no such file", "let RETRIEVER_DATA name"
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sts pairs --set seeds=2", "--set seeds belongs to --supervised"),
        ("sts pairs --supervised --aggregation mean", "as one list"),
        ("sts pairs pairs.tsv", "two data sets are called pairs"),
        ("sts pairs --by-layer --set poolings=mean,median", "poolings: expected some of"),
        ("sts pairs --by-layer --set poolings=mean,mean", "each once"),
        ("sts pairs --by-layer --baseline x", "every hidden state is scored; leave it out"),
        ("sts pairs --aggregation sum", "--aggregation"),
        ("sts pairs --encoders mine", "--encoders"),
        ("transfer texts.tsv --protocol bert-lc --classifier mlp", "leave it out"),
        (
            "transfer texts.tsv --layers-search --classifier mlp",
            "classifier: found mlp, but",
        ),
        (
            "transfer texts.tsv --layers-search --by-layer",
            "leave out --layers-search or --by-layer",
        ),
        (
            "transfer texts.tsv --layers-search --protocol senteval",
            "--protocol: --layers-search",
        ),
        ("transfer texts.tsv --layers-search --seeds 3", "--seeds: --layers-search"),
        (
            "transfer texts.tsv --layers-search --baseline x",
            "baseline: expected one of the encoders",
        ),
        ("transfer texts.tsv --set folds=1", "--set folds: expected at least 2"),
        ("transfer texts.tsv --train-share 0.5", "--train-share: only --layers-search uses it"),
        ("transfer texts.tsv --layers-search --train-share 1,2", "expected shares above 0"),
        ("transfer texts.tsv --layers-search --train-share 1/0", "expected shares above 0"),
        ("transfer texts.tsv --layers-search --train-share 1/4,0.25", "different shares, found"),
        (
            "transfer texts.tsv --layers-search --train-share 1,1/64",
            "texts: 2 examples to train on are all of class",
        ),
        (
            "transfer texts.tsv --set outer=3",
            "--set outer: only --protocol bert-lc or --layers-search",
        ),
        (
            "transfer texts.tsv --protocol bert-lc --set folds=3",
            "--set folds: only --protocol senteval",
        ),
        ("sts pairs --set poolings=cls", "--set poolings: those of --by-layer"),
        ("probe", "DATASET"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    retriever, folder, tiny_models, arguments, said
):
    done = retriever("eval", *arguments.split(), "--model", tiny_models["bert"])
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_nothing_is_encoded_before_every_set_was_looked_at(
    retriever, folder, tiny_models, monkeypatch
):
    from retriever.encoders.encoder import Encoder

    monkeypatch.setattr(Encoder, "encode_pieces", lambda *_: pytest.fail("encoded"))
    model = ("--model", tiny_models["bert"])
    refused(retriever("eval", "sts", "pairs", "constant.tsv", *model), "scores that differ")
    refused(retriever("eval", "transfer", "texts.tsv", "one.tsv", *model), "at least 2 classes")


@pytest.mark.parametrize("asked", ["transfer texts.tsv", "probe probe.txt"])
def test_without_the_extra_it_is_named_before_anything_is_encoded(
    retriever, folder, tiny_models, monkeypatch, asked
):
    from retriever.encoders.encoder import Encoder

    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    monkeypatch.setattr(Encoder, "encode_pieces", lambda *_: pytest.fail("encoded"))
    done = retriever("eval", *asked.split(), "--model", tiny_models["bert"])
    refused(done, 'pip install "layer-retriever[sentences]"')
