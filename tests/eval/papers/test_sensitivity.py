"""SBERT-WK's window and start layer, against encoders with each setting and one text at a time."""

import numpy as np
import pytest
import scipy.stats

from eval.datasets.pairs import read_pairs
from eval.papers.sensitivity import SensitivityInspection, inspect_sensitivity, settings_grid
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import EncoderSettings
from retriever.errors import ConfigError
from tests.eval.sentences.sentence_samples import write_pairs


def test_only_what_the_preset_can_have_is_in_the_grid():
    paper = settings_grid(EncoderSettings(fusion="sbert-wk"), 6)
    assert set(paper) == {(window, start) for window in (1, 2, 3, 4) for start in range(6)}
    released = settings_grid(EncoderSettings(fusion="sbert-wk", wk_preset="released"), 3)
    assert list(released) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]


@pytest.mark.filterwarnings("ignore:.* longer than the window")
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_each_setting_scores_as_its_encoder_does(tiny_models, tmp_path, preset):
    path = write_pairs(tmp_path / "pairs.tsv", 25, 0)
    pairs, said = read_pairs([path]), []
    cut = "::max-length=8" if preset == "released" else ""
    form = f"{tiny_models['bert']}::wk-preset={preset}{cut}"
    found = inspect_sensitivity(path, form, notify=said.append, command="made")
    windows = (1, 2, 3, 4) if preset == "paper" else (1, 2)
    assert (found.windows, found.start_layers) == (windows, (0, 1))

    def score(settings):
        encoder = Encoder.load(f"{tiny_models['bert']}::{settings}{cut}", device="cpu")
        cosines = (encoder.encode(pairs.left) * encoder.encode(pairs.right)).sum(axis=1)
        return scipy.stats.pearsonr(cosines, pairs.gold)[0]

    for window, row in zip(windows, found.values, strict=True):
        for start, value in enumerate(row):
            assert (value is None) == (preset == "released" and window + start > 2)
            if value is not None:
                settings = f"window={window}::start-layer={start}::wk-preset={preset}"
                assert value == pytest.approx(score(f"sbert-wk::{settings}"), abs=1e-6)
    assert found.baseline == pytest.approx(score("last"), abs=1e-6)
    (table,) = found.report().sections[0].tables
    assert table.columns == ("window", "start 0", "start 1")
    assert table.rows[0] == ("1", *(f"{value:.4f}" for value in found.values[0]))
    assert f"pearson over 25 pairs of {path}" in found.text()
    assert f"last layer, mean over all pieces: {found.baseline:.4f}" in found.text()
    assert ["texts exceeded the window of 8 word pieces" in one for one in said] == [True] * bool(
        cut
    )


@pytest.mark.parametrize("settings", ["window=2", "start-layer=0", "head=yes"])
def test_what_is_compared_cannot_be_set(tmp_path, settings):
    with pytest.raises(ConfigError, match="without a window, start layer and head, found m::"):
        inspect_sensitivity(tmp_path / "pairs.tsv", f"m::fusion=sbert-wk::{settings}")


@pytest.mark.parametrize("starts", [3, 24])
def test_the_figure_has_a_curve_for_each_start_layer_and_each_window(starts):
    pytest.importorskip("matplotlib")
    row = tuple(0.1 * start for start in range(starts))
    values = (row, (*row[:-1], None))
    found = SensitivityInspection("m", "paper", "p", 9, (1, 2), tuple(range(starts)), values, 0.8)
    left, right = found.figure().axes
    names = [f"start layer {start}" for start in range(starts)]
    assert [line.get_label() for line in left.lines[:-1]] == names
    assert len({str(line.get_color()) for line in left.lines[:-1]}) == starts
    np.testing.assert_allclose(left.lines[1].get_data(), [(1, 2), (0.1, 0.1)])
    np.testing.assert_allclose(right.lines[0].get_ydata(), row)
    assert right.lines[-1].get_ydata()[0] == left.lines[-1].get_ydata()[0] == 0.8
