"""Promises of `import eval`: experiments as functions, and nothing heavy at import."""

import json
import subprocess
import sys
from functools import partial

import pytest

import eval as evaluation
from retriever.errors import ConfigError

HEAVY = ("torch", "transformers", "faiss", "sklearn", "scipy", "matplotlib", "rank_bm25", "tqdm")


def test_importing_eval_and_correlating_load_no_heavy_module():
    code = (
        "import json, sys, eval, numpy as np; from eval.metrics.correlation import correlations; "
    )
    code += "found = correlations(np.arange(4.0), np.arange(4.0)); "
    code += "print(json.dumps([found, sorted(sys.modules)]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    values, modules = json.loads(done.stdout)
    assert values == {"spearman": 1, "pearson": 1}
    assert not set(HEAVY) & set(modules)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (evaluation.Resampling, {"resamples": 99}),
        (evaluation.QuestionSettings, {"depth": 0}),
        (evaluation.ProbingSettings, {"words": 1}),
        (evaluation.STSSettings, {"aggregation": "sum"}),
        (evaluation.RelatednessSettings, {"seeds": 0}),
        (evaluation.TransferProtocol, {"name": "loo"}),
        (evaluation.LayerTransferSettings, {"inner": 0}),
        (evaluation.TransferSettings, {"classifier": "svm"}),
        (evaluation.TransferSettings, {"seeds": 0}),
        (evaluation.LayerSearchSettings, {"protocol": "loo"}),
        (partial(evaluation.CorpusPairs, []), {"kind": "words"}),
    ],
)
def test_settings_out_of_range_are_refused(kind, bad):
    with pytest.raises(ConfigError, match=f"{next(iter(bad))}: expected"):
        kind(**bad)


ONE_STRING = {
    "tests of score_sts": lambda: evaluation.score_sts("stsb", ["a"]),
    "encoders of score_sts": lambda: evaluation.score_sts([], "a"),
    "tasks of score_transfer": lambda: evaluation.score_transfer("mr", ["a"]),
    "encoders of score_transfer": lambda: evaluation.score_transfer([], "a"),
    "tasks of score_probing": lambda: evaluation.score_probing("bshift", ["a"]),
    "measures of evaluate": lambda: evaluation.evaluate({}, {"q": {"d": 1}}, "AP"),
    "measures of compare": lambda: evaluation.compare({"a": {}}, {"q": {"d": 1}}, "AP"),
    "measures of canonical_measures": lambda: evaluation.canonical_measures("AP"),
    "encoders of named_encoders": lambda: evaluation.named_encoders("a"),
    "lists of named_encoders": lambda: evaluation.named_encoders([], "paper"),
}


@pytest.mark.parametrize("call", ONE_STRING.values(), ids=ONE_STRING)
def test_single_string_for_a_list_argument_is_a_type_error(call):
    with pytest.raises(TypeError, match=r"expected several strings, found '\w+'"):
        call()


@pytest.mark.parametrize("inspect", [evaluation.inspect_layers, evaluation.inspect_words])
def test_inspecting_a_single_string_is_a_type_error(inspect, tiny_models):
    with pytest.raises(TypeError, match="texts: expected several strings"):
        inspect("w1 w2", str(tiny_models["bert"]), loading=evaluation.Loading(device="cpu"))
