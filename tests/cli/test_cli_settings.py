"""Options of `eval` and `train` reach the library as settings; paths of data sets."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

import eval as evaluation
import retriever.encoders.meta.fitting as meta
import retriever.encoders.static.fitting as static
from cli.evaluation_options import data_set
from eval import (
    CrossPlan,
    EncoderFitSettings,
    HeadPlan,
    LayerSearchSettings,
    LayerTransferSettings,
    Loading,
    QASettings,
    QuestionSettings,
    RelatednessSettings,
    Resampling,
    STSSettings,
    TransferProtocol,
    TransferSettings,
)
from retriever.encoders.meta import MetaSettings, UnsupSettings
from retriever.encoders.static import FitSettings, LSASettings
from retriever.errors import SourceError
from retriever.training import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
)
from tests.cli.conftest import assert_refused

DATA = Path("data")
CACHED = Loading(cache=Path("cache"))
CPU = Loading("cpu", True)
SEVERAL = QuestionSettings(
    "beir", "clean", "learn", "tune", 0.25, Path("i"), depth=7, without=(DATA, DATA)
)
OF_SEVERAL = (
    "--set form=beir --variant clean --train-split learn --set dev-split=tune --dev-share 0.25"
    " --index i --set depth=7"
)
TUNED = {"train": "last:2", "epochs": 5, "seed": 9, "learning_rate": 0.5, "patience": 4}
TUNING = "--train last:2 --epochs 5 --set seed=9 --set learning-rate=0.5 --set patience=4"
SAMPLED = SamplingSettings("random", 3, 2, 6)
SAMPLING = "--negatives random --set count=3 --set positives=2 --set batch=6"
RESAMPLED = Resampling(100, 7)
RESAMPLING = "--set resamples=100 --set seed=7"

ASKED = [
    ("eval sts data", "score_sts", STSSettings(loading=CACHED)),
    (
        "eval sts data -e a -e ::last4 --model m --aggregation wmean --baseline ::last4"
        f" {RESAMPLING} --device cpu --download --set cache=no",
        "score_sts",
        STSSettings(aggregation="wmean", baseline="m::last4", resampling=RESAMPLED, loading=CPU),
    ),
    (
        "eval sts data --supervised --set seeds=2 --by-layer --set 'poolings=cls, mean'",
        "score_sts",
        STSSettings(
            supervised=RelatednessSettings(seeds=2), poolings=("cls", "mean"), loading=CACHED
        ),
    ),
    ("eval transfer data", "score_transfer", TransferSettings(loading=CACHED)),
    (
        f"eval transfer data --classifier mlp --seeds 2 --set folds=3 --by-layer {RESAMPLING}",
        "score_transfer",
        TransferSettings(
            classifier="mlp",
            seeds=2,
            protocol=TransferProtocol(folds=3),
            poolings=("mean", "max", "cls", "sep"),
            resampling=RESAMPLED,
            loading=CACHED,
        ),
    ),
    (
        "eval transfer data --protocol bert-lc --set outer=2",
        "score_transfer",
        TransferSettings(protocol=TransferProtocol("bert-lc", outer=2), loading=CACHED),
    ),
    (
        "eval transfer data --layers-search --max-layers 3 --set outer=2 --set inner=4"
        " --train-share 1,1/4,0.5",
        "score_transfer",
        TransferSettings(
            protocol=TransferProtocol(outer=2),
            layer_search=LayerTransferSettings(3, 2, 4),
            train_shares=(1.0, 0.25, 0.5),
            loading=CACHED,
        ),
    ),
    (
        f"eval probe data --classifier lr-senteval --seeds 3 --baseline x {RESAMPLING}",
        "score_probing",
        TransferSettings(
            classifier="lr-senteval", seeds=3, baseline="x", resampling=RESAMPLED, loading=CACHED
        ),
    ),
    ("eval probe data", "score_probing", TransferSettings(loading=CACHED)),
    ("eval layers data", "search_layers", LayerSearchSettings(loading=CACHED)),
    (
        "eval layers data --protocol paper --max-layers 2 --set top=3 --model m::pooling=max"
        " --set cache=no",
        "search_layers",
        LayerSearchSettings("m::pooling=max", Loading(), protocol="paper", max_layers=2, top=3),
    ),
    ("eval qa data", "rank_systems", QASettings(loading=CACHED)),
    (
        f"eval qa data -s uv -s cross-encoder --split dev --cross-seeds 2 --set seeds=4"
        f" --set top=6 -m AP -m P@1 --baseline uv --set without-positive=count {RESAMPLING}"
        f" --model ::layers=0 -o out {OF_SEVERAL}",
        "rank_systems",
        QASettings(
            "::layers=0",
            CACHED,
            QuestionSettings("beir", "clean", "learn", "tune", 0.25, Path("i"), depth=7),
            "dev",
            ("AP", "P@1"),
            "uv",
            "count",
            RESAMPLED,
            seeds=4,
            cross_seeds=2,
            models=Path("out/rerankers"),
            top=6,
        ),
    ),
    (
        "train reranker data -o out",
        "fit_reranker",
        QASettings(head=HeadPlan().of("uv", "mlp"), loading=CACHED),
    ),
    (
        f"train reranker data -o out --system bilinear --seeds 2 --epochs 3 --set hidden=8"
        f" {SAMPLING} {OF_SEVERAL} --without data --without data",
        "fit_reranker",
        QASettings(
            head=HeadPlan(
                HeadSettings("bilinear", "linear", 8),
                HeadTrainingSettings(3, sampling=SAMPLED),
            ),
            loading=CACHED,
            data=SEVERAL,
            seeds=2,
        ),
    ),
    ("train cross-encoder data -o out", "fit_cross_encoder", QASettings()),
    (
        f"train cross-encoder data -o out --model m --device cpu --download"
        f" --set max-length=32 {TUNING} {SAMPLING} {OF_SEVERAL}"
        f" --without data --without data",
        "fit_cross_encoder",
        QASettings(
            cross=CrossPlan(
                "m",
                32,
                CrossTrainingSettings(sampling=SAMPLED, **TUNED),
            ),
            loading=CPU,
            data=SEVERAL,
        ),
    ),
    ("train encoder data -o out", "fit_encoder", EncoderFitSettings()),
    (
        f"train encoder data -o out --model m::last4 --device cpu --download --objective hinge"
        f" --set max-length=64 --dev data {TUNING} {SAMPLING} {OF_SEVERAL} --without data"
        f" --without data",
        "fit_encoder",
        EncoderFitSettings(
            "m::last4",
            EncoderTrainingSettings(objective="hinge", max_length=64, sampling=SAMPLED, **TUNED),
            CPU,
            SEVERAL,
            DATA,
        ),
    ),
    (
        "train meta c.txt --source a --source b -o out --method svd",
        "fit_meta",
        MetaSettings("svd"),
    ),
    (
        "train meta c.txt --source a --source b -o out --method unsup --dimensions 5"
        " --level word --set sample=8 --no-weights --set epochs=2 --set seed=6",
        "fit_meta",
        MetaSettings(
            "unsup",
            5,
            level="word",
            sample=8,
            training=UnsupSettings(weights=False, epochs=2),
            seed=6,
        ),
    ),
    (
        "train static c.txt -o out --method lsa --dimensions 3 --set min-df=4 --set max-df=0.25"
        " --set max-words=7 --set sample=8",
        "fit_lsa",
        LSASettings(3, 4, 0.25, 7, 8),
    ),
    (
        "train static c.txt -o out --method sif --vectors v --set a=0.25 --set components=2"
        " --set sample=8",
        "fit_static",
        FitSettings(8, 2, 0.25),
    ),
]


@pytest.mark.parametrize(("line", "function", "settings"), ASKED, ids=[case[0] for case in ASKED])
def test_options_reach_library_as_settings(
    retriever, tmp_path, monkeypatch, line, function, settings
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETRIEVER_CACHE", "cache")
    DATA.mkdir()
    Path("c.txt").write_text("w1 w2\n")
    call_arguments = []

    def note(*arguments, **keywords):
        call_arguments.extend([*arguments, *keywords.values()])
        raise click.exceptions.Exit(17)

    for module in (evaluation, meta, static):
        if hasattr(module, function):
            monkeypatch.setattr(module, function, note)
    done = retriever(*shlex.split(line))
    assert done.code == 17, done.err
    (bound,) = [argument for argument in call_arguments if isinstance(argument, type(settings))]
    assert bound == settings


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A folder of data sets beside the working folder."""
    for folder in ("sets/stsb", "sets/both", "both"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("RETRIEVER_DATA", str(tmp_path / "sets"))
    return tmp_path / "sets"


def test_a_path_that_exists_is_taken_before_the_one_in_the_folder_of_data_sets(
    sets, monkeypatch, retriever
):
    for arguments in (("eval", "sts", "stsb"), ("train", "encoder", "stsb", "--output", "e")):
        assert_refused(retriever(*arguments), f"{sets / 'stsb'}: expected")
    assert data_set(Path("both")) == Path("both")
    assert data_set(Path("stsb")) == data_set(sets / "stsb") == sets / "stsb"
    monkeypatch.delenv("RETRIEVER_DATA")
    assert data_set(Path("both")) == Path("both")
    with pytest.raises(SourceError, match=r"^stsb: no such file or folder; check the path, or"):
        data_set(Path("stsb"))
