"""Recommended and written settings after a search: those that gain or that the limits need."""

from __future__ import annotations

import numpy as np
import pytest

from eval import TuneResult, read_pipeline
from eval.settings import Resampling, TuneSettings
from eval.tuning.pipeline import Pipeline
from eval.tuning.result import MeasuredPipeline

DEFAULTS = Pipeline()
BEST = DEFAULTS.put(**{"search.bm25.k1": 0.9, "search.bm25.b": 0.4})
SIMPLE = DEFAULTS.put(**{"search.bm25.k1": 0.9})


def result(tuned, simplest, best=BEST, simple=SIMPLE, **changed):
    """Return a result on 100 questions with these mean gains."""
    random = np.random.default_rng(0)
    defaults, noise = random.uniform(0.3, 0.6, 100), random.normal(0, 0.05, 100)
    noise -= noise.mean()
    values = {"defaults": defaults, "tuned": defaults + tuned + noise}
    values["simplest"] = defaults + simplest + noise
    tried = tuple(
        MeasuredPipeline(pipeline, 0.5, 1.0, 1.0)
        for pipeline in dict.fromkeys((DEFAULTS, best, simple))
    )
    settings = TuneSettings(resampling=Resampling(500, 0))
    return TuneResult(
        name="made",
        measure="nDCG@10",
        defaults=DEFAULTS,
        best=best,
        simple=simple,
        values=values,
        without={},
        tried=tried,
        query_map=None,
        evaluated=1,
        remarks=("made",),
        settings=settings,
        **changed,
    )


@pytest.mark.parametrize(
    ("tune_result", "expected"),
    [
        (result(0.05, 0.05), {"tuned", "simplest"}),
        (result(0.05, 0.001), {"tuned"}),
        (result(0.001, 0.001), set()),
        # A significant loss.
        (result(-0.05, -0.05), set()),
        # Other folds found what gains, and all questions together found nothing.
        (result(0.05, 0.05, DEFAULTS, DEFAULTS), set()),
        (result(0.05, 0.05, BEST, DEFAULTS), {"tuned"}),
        (result(-0.05, 0.001, defaults_fit=False), {"tuned", "simplest"}),
        (result(0.05, 0.05, DEFAULTS, DEFAULTS, defaults_fit=False), set()),
    ],
)
def test_tuned_settings_are_written_if_they_gain_or_defaults_exceed_a_limit(
    tune_result, expected, tmp_path
):
    for name in ("tuned.toml", "simplest.toml", "notes.txt"):
        (tmp_path / name).write_text("# earlier\n")
    assert tune_result.recommended().keys() == expected
    assert tune_result.to_json()["keep_defaults"] == (not expected)
    written = {path.name for path in tune_result.write(tmp_path)}
    files = {path.name for path in tmp_path.iterdir()}
    assert {name for name in written if name.endswith(".toml")} == {f"{n}.toml" for n in expected}
    assert files - written == {"notes.txt", "figures"}
    for name in expected:
        pipeline = {"tuned": tune_result.best, "simplest": tune_result.simple}[name]
        assert read_pipeline(tmp_path / f"{name}.toml") == pipeline
    text = tune_result.text()
    assert ("keep the defaults" in text) == (not expected)
    if expected and len(expected) < 2:
        assert "simplest.toml is not written: no s" in text


def test_comment_of_a_tuned_file_states_the_measured_gain(tmp_path):
    for folded, expected in (
        (True, "# this way of choosing, not these settings: "),
        (False, "# these settings: "),
    ):
        result(0.05, 0.05, folded=folded).write(tmp_path)
        lines = (tmp_path / "tuned.toml").read_text().splitlines()
        assert lines[1].startswith(f"{expected}nDCG@10 0.")
        assert "on unseen questions, against the defaults +0.0500 (+0.04" in lines[1]


def test_writing_a_result_removes_the_query_map_of_an_earlier_one(tmp_path):
    folder = tmp_path / "query-map"
    folder.mkdir()
    (folder / "reranker.json").write_text("{}")
    result(0.05, 0.05).write(tmp_path)
    assert not folder.exists()
    # Of a name that is no reranker's.
    folder.mkdir()
    (folder / "mine.txt").touch()
    result(0.05, 0.05).write(tmp_path)
    assert (folder / "mine.txt").exists()
