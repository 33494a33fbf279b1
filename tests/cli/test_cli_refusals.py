"""Refusals of `eval`, `train`, `inspect` and `make`: one line, exit code 2, no files written.

The tests of the library cover its refusals; here is one of each kind and the commands' own.
"""

from __future__ import annotations

import shlex

import pytest

from retriever.encoders import Encoder
from tests.cli.conftest import assert_refused
from tests.eval.qa.samples import made_set, write_set
from tests.eval.sentences.sentence_samples import write_pairs, write_probe, write_sts, write_task

REFUSED = [
    ("compare good.run good.run --qrels qrels", "the same RUN is given twice"),
    ("qa set -s cross-encoder:mse", "ensemble and hybrid"),
    ("qa set -s cross-encoder --set seeds=2", "--set seeds: no system here trains a head"),
    ("qa set -s uv --cross-seeds 2", "--cross-seeds: no system here trains a cross-encoder"),
    ("qa set --by-layer", "No such option"),
    ("sts pairs -e MODEL --baseline other", "found 'other'"),
    ("sts pairs --output no/report", "expected its parent"),
    ("sts pairs --set seeds=2", "--set seeds: only --supervised uses it"),
    ("sts pairs --supervised --aggregation mean", "as one list"),
    ("sts pairs pairs.tsv", "two data sets are called pairs"),
    ("sts pairs --by-layer --set poolings=mean,mean", "each once"),
    ("sts pairs --by-layer --baseline x", "every hidden state is scored; leave it out"),
    ("sts pairs --set poolings=cls", "--set poolings: only --by-layer uses them"),
    ("transfer texts.tsv --protocol bert-lc --classifier mlp", "leave it out"),
    ("transfer texts.tsv --layers-search --classifier mlp", "classifier: found mlp, but"),
    ("transfer texts.tsv --layers-search --by-layer", "leave out --layers-search or --by-layer"),
    ("transfer texts.tsv --layers-search --protocol senteval", "--protocol: --layers-search"),
    ("transfer texts.tsv --layers-search --seeds 3", "--seeds: --layers-search"),
    ("transfer texts.tsv --layers-search --baseline x", "baseline: expected one of the encoders"),
    ("transfer texts.tsv --layers-search -e MODEL::lc:1", "::lc:1: found layers=1, but every"),
    ("transfer texts.tsv --train-share 0.5", "--train-share: only --layers-search uses it"),
    ("transfer texts.tsv --set inner=2", "--set inner: only --layers-search uses it"),
    ("transfer texts.tsv --layers-search --train-share 1,2", "expected shares above 0"),
    ("transfer texts.tsv --layers-search --train-share 1/0", "expected shares above 0"),
    ("transfer texts.tsv --layers-search --train-share 1/4,0.25", "different shares above 0"),
    ("transfer texts.tsv --set outer=3", "--set outer: only --protocol bert-lc or --layers-search"),
    ("transfer texts.tsv --protocol bert-lc --set folds=3", "only --protocol senteval"),
    ("probe pairs", "expected the file of a probing task, found a folder"),
    ("layers pairs.tsv other.tsv", "found 2; give the test file with --test"),
    ("layers pairs.tsv --model MODEL::layers=all", "layers: found all"),
    ("layers pairs.tsv --model MODEL::fusion=max", "fusion: found max"),
    ("layers pairs.tsv --model MODEL::static=average", "static: found average"),
    ("layers pairs.tsv --max-layers 4", "expected 1 to 3, found 4"),
    ("layers pairs.tsv --plot a.pdf", "expected a figure that ends in .png or .svg"),
    ("train reranker set -o set", "--output"),
    ("train reranker set -o r --negatives random", "--set count=N"),
    ("train cross-encoder set -o no/c", "folder that exists"),
    ("train encoder set/corpus.jsonl -o e", "--pairs"),
    ("train encoder set/corpus.jsonl --pairs title -o e", "both title and text"),
    ("train encoder set/corpus.jsonl --pairs title -o e --without set", "leave out --without"),
    ("train static -o x --vectors words.txt --method sif", "name a SOURCE"),
    ("train static -o x --vectors words.txt --method average --set a=1", "has nothing to fit"),
    ("train static -o x --method lsa", "lsa is fitted on texts: name a SOURCE"),
    ("train static -o x --method lsa --vectors x", "--vectors: lsa does not use it"),
    ("train static -o x --method lsa --set a=1", "--set a: lsa does not use it"),
    (
        "train static -o x --method sif --vectors x --set min-df=2",
        "--set min-df: sif does not use it",
    ),
    ("train static -o x --method sif", "sif combines word vectors: name them with --vectors"),
    ("train static -o . --method sif --vectors absent texts.tsv", "change --output"),
    ("train meta --source a --source b -o x --method svd", "svd is fitted on texts: name a CORPUS"),
    ("train meta --source a --source b -o x --method sup", "training pairs (--train)"),
    (
        "train meta --source a --source b -o x --method svd --set epochs=3",
        "--set epochs: only --method sup and unsup use it",
    ),
    (
        "train meta --source a --source b -o x --method sup --train alone",
        "alone: has no train split",
    ),
    ("inspect weights 'w1 \udcff'", "holds the lone surrogate"),
    ("inspect words set/corpus.jsonl --set limit=2", "at least 5 times in the first 2 texts"),
    ("inspect weights", "Missing argument 'TEXT'"),
    ("inspect weights w1 --model MODEL::last", "fusion: expected sbert-wk, found mean"),
    ("make probing set/corpus.jsonl -o p --task sentlen --words 5", "--words: only wc uses it"),
    ("make probing - -o p", "read SOURCE twice, but standard input allows one pass"),
    ("make probing set/corpus.jsonl -o a/b", "expected a name in a folder that exists"),
    (
        "make probing set/corpus.jsonl -o p --task wc",
        "wc: expected 1,000 words of 4 letters or more",
    ),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory, tiny_models):
    """A folder of good sets and of sets that each have one fault."""
    folder = tmp_path_factory.mktemp("samples")
    write_set(folder / "set", *(made_set(split) for split in ("train", "dev", "test")))
    write_sts(folder / "pairs")
    write_task(folder / "texts.tsv", {"train": 30, "test": 9})
    write_probe(folder / "probe.txt")
    write_pairs(folder / "pairs.tsv", 40, 0)
    write_pairs(folder / "other.tsv", 30, 1)
    (folder / "alone").mkdir()
    write_pairs(folder / "alone/test.tsv", 4, 2)
    (folder / "words.txt").write_text("one 1 0 0\ntwo 0 1 0\n")
    return folder


@pytest.fixture
def inside(samples, tmp_path, monkeypatch):
    monkeypatch.chdir(samples)
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path))
    monkeypatch.setattr(Encoder, "encode_pieces", lambda *_: pytest.fail("encoded"))
    return samples


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[ascii(line) for line, _ in REFUSED])
def test_evaluation_and_training_refusals_are_one_line_and_write_nothing(
    retriever, inside, tiny_models, line, message
):
    before = sorted(inside.rglob("*"))
    model = str(tiny_models["bert"])
    arguments = shlex.split(line.replace("MODEL", model))
    if arguments[0] not in ("train", "inspect", "make"):
        arguments.insert(0, "eval")
    if "MODEL" not in line and arguments[1] not in ("compare", "static", "meta", "probing"):
        arguments += ["--model", model]
    assert_refused(retriever(*arguments), message)
    assert sorted(inside.rglob("*")) == before


@pytest.mark.parametrize("arguments", ["transfer texts.tsv", "probe probe.txt"])
def test_command_without_its_extra_is_refused_with_pip_command(
    retriever, inside, tiny_models, monkeypatch, arguments
):
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    done = retriever("eval", *arguments.split(), "--model", tiny_models["bert"])
    assert_refused(done, 'pip install "layer-retriever[sentences]"')
