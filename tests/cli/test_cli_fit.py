"""`retriever train static` on small files of word vectors."""

import json

import pytest

from retriever.encoders.static.model import StaticModel


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("one 1 0 0\ntwo 0 1 0\nthree 0.5 0.5 1\nfour 0 0.25 -1\n")
    return path


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(
        {"id": "1", "title": "four", "text": "One two three."},
        {"id": "2", "text": "two two three"},
        {"id": "3", "text": "unknown words"},
    )


@pytest.mark.parametrize("method", ["sif", "usif"])
def test_what_was_fitted_is_saved_and_told_with_a_line_to_paste(
    retriever, vectors, corpus, tmp_path, method
):
    folder = tmp_path / "my encoder"
    arguments = ["--vectors", vectors, "--method", method, "--output", folder]
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 0
    assert done.err == ""
    first, last = done.out.splitlines()
    assert f"{method} of 4 words, 3 dimensions; fitted on 3 texts of 3.0 words, 77.8%" in first
    assert last == f"--model '{folder}'"
    model = StaticModel.load(folder)
    assert model.method == method
    assert model.parts.provenance["texts"] == 3


def test_json_tells_the_same_to_programs(retriever, vectors, corpus, tmp_path):
    counts = tmp_path / "counts.txt"
    counts.write_text("one 3\nelsewhere 1\n")
    arguments = ["--vectors", vectors, "--method", "sif", "-o", tmp_path / "sif", "--json"]
    options = [
        "--set",
        "a=0.25",
        "--set",
        "components=2",
        "--set",
        "sample=1",
        "--set",
        f"word-counts={counts}",
    ]
    done = retriever("train", "static", corpus, *arguments, *options)
    assert done.code == 0
    facts = json.loads(done.out)
    assert facts["encoder"] == str(tmp_path / "sif")
    assert facts["weights"] == StaticModel.load(tmp_path / "sif").weights
    # One text has one component.
    assert facts["parameters"]["components"] == 1
    assert facts["parameters"]["a"] == 0.25
    assert facts["provenance"]["sampled"] == 1
    assert facts["provenance"]["word_counts"] == "counts.txt"
    assert StaticModel.load(tmp_path / "sif").parts.fitted.weights[0] == pytest.approx(0.25)


def test_a_method_with_nothing_to_fit_needs_no_source(retriever, vectors, corpus, tmp_path):
    folder = tmp_path / "plain"
    arguments = ["--vectors", vectors, "--method", "p-mean", "--output", folder]
    done = retriever("train", "static", *arguments, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert StaticModel.load(folder).dimensions == 9
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 0
    assert "SOURCE is not read" in done.err


def test_a_models_own_embeddings_can_be_fitted(retriever, tiny_models, write_jsonl, tmp_path):
    corpus = write_jsonl({"id": "1", "text": "w1 w2 w3"}, {"id": "2", "text": "w2 w4"})
    arguments = ["--vectors", tiny_models["bert"], "--method", "sif", "-o", tmp_path / "sif"]
    assert retriever("train", "static", corpus, *arguments).code == 0
    assert StaticModel.load(tmp_path / "sif").dimensions == 16


def test_bad_records_are_counted_and_skipped_if_asked_for(
    retriever, vectors, write_jsonl, tmp_path
):
    corpus = write_jsonl({"id": "1", "body": "one two"}, {"id": "2", "body": 5}, {"id": "3"})
    arguments = ["--vectors", vectors, "--method", "sif", "-o", tmp_path / "sif"]
    failed = retriever("train", "static", corpus, *arguments, "--set", "text-field=body")
    assert failed.code == 2
    assert not (tmp_path / "sif").exists()
    done = retriever(
        "train", "static", corpus, *arguments, "--set", "text-field=body", "--set", "on-error=skip"
    )
    assert done.code == 0
    assert done.err.count("skipped:") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "sif"], "name a SOURCE"),
        (
            ["--method", "average", "--set", "components=1"],
            "components: average has nothing to fit",
        ),
        (["--method", "usif", "--set", "a=0.1"], "a: usif derives it"),
        (["--method", "sif", "--set", "a=0"], "a: expected above 0"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    retriever, vectors, tmp_path, options, said
):
    done = retriever("train", "static", "--vectors", vectors, "-o", tmp_path / "x", *options)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "x").exists()


def test_an_occupied_folder_is_refused_before_anything_is_read(retriever, corpus, tmp_path):
    arguments = ["--vectors", tmp_path / "absent", "--method", "sif", "--output", tmp_path]
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 2
    assert "change --output" in done.err
    assert done.err.count("\n") == 1


def test_a_malformed_file_of_vectors_is_one_line_on_stderr(retriever, vectors, corpus, tmp_path):
    vectors.write_text("one 1 2 3\ntwo 1 2\nthree 1 2 3\n")
    arguments = ["--vectors", vectors, "--method", "sif", "--output", tmp_path / "x"]
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 2
    assert done.err.startswith(f"retriever: {vectors}:2: expected a word and 3 numbers, found 2")
    assert done.err.count("\n") == 1


def test_lsa_makes_its_own_word_vectors(retriever, write_jsonl, tmp_path):
    records = [{"id": str(row), "text": f"word{row % 7} word{row % 4} all"} for row in range(20)]
    corpus = write_jsonl(*records)
    arguments = ["--method", "lsa", "--dimensions", "3", "-o", tmp_path / "lsa"]
    done = retriever("train", "static", corpus, *arguments, "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert (facts["method"], facts["dimensions"]) == ("lsa", 3)
    # What is in more than half of the texts is left out.
    assert facts["words"] == 7
    assert facts["provenance"]["texts"] == 20
    whole = retriever("train", "static", corpus, *arguments, "--set", "max-df=1", "--json")
    assert json.loads(whole.out)["words"] == 8
    told = retriever("train", "static", corpus, *arguments)
    assert told.out.startswith(f"{tmp_path / 'lsa'}: lsa of 7 words, 3 dimensions\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "lsa"], "lsa is fitted on texts: name a SOURCE"),
        (["--method", "lsa", "--vectors", "x"], "--vectors: lsa has no use for it"),
        (["--method", "lsa", "--set", "components=2"], "--set components: lsa has no use for it"),
        (
            ["--method", "sif", "--vectors", "x", "--set", "min-df=2"],
            "--set min-df: sif has no use for it",
        ),
        (["--method", "sif"], "sif combines word vectors: name them with --vectors"),
        (["--method", "p-mean", "--vectors", "x", "--vectors", "y"], "one file or model, found 2"),
    ],
)
def test_options_of_lsa_and_of_the_others_are_kept_apart(retriever, tmp_path, options, said):
    done = retriever("train", "static", "-o", tmp_path / "x", *options)
    assert done.code == 2
    assert said in done.err
