"""Figures say what they show, whatever words they name, and are refused before any work."""

import re

import numpy as np
import pytest

from eval.figures import check_figure, save_figure
from eval.inspect.layers import LayerInspection, TextsRead
from eval.inspect.words import WeightInspection
from retriever.encoders.fusion import WeightedWord
from retriever.errors import ConfigError, StorageError
from tests.eval.conftest import texts_of

pytest.importorskip("matplotlib")

HOSTILE = ["$x^{2$", "a\x1b[31mred", "line\nbreak", "<b>&", "北京", "हिन्दी", "w" * 99, "\u202eab"]
READ = TextsRead(9, 0, False)


def similarity(layers):
    mean = np.linspace(0.1, 1, layers * layers).reshape(layers, layers)
    return LayerInspection("m", READ, 1234, mean)


def weights(count=8):
    words = (WeightedWord(HOSTILE[i % 8], 0, 1, 1 / count, (0.25, 0.75)) for i in range(count))
    return WeightInspection("m", "", False, "word", 4, tuple(words))


@pytest.mark.parametrize(
    ("inspection", "labels"),
    [
        (
            similarity(7),
            "hidden state (0: embeddings)|offset 1|offset 6|mean cosine|0.10|1.00|"
            "cosine between layers, mean of 1,234 word pieces",
        ),
        (similarity(25), "offset 24|24"),
        (weights(), "weight in the text|hidden state|4|5|$x^{2$|line break"),
    ],
    ids=["similarity", "deep", "weights"],
)
def test_figure_shows_its_texts_and_escapes_markup(inspection, labels, tmp_path):
    for name in ("one.svg", "one.PNG", "other.svg"):
        save_figure(inspection.figure(), tmp_path / name)
    figure, image, other = (
        (tmp_path / name).read_bytes() for name in ("one.svg", "one.PNG", "other.svg")
    )
    assert figure.startswith(b"<?xml")
    assert figure == other
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    texts = texts_of(tmp_path / "one.svg")
    assert [label for label in labels.split("|") if label not in texts] == []
    everything = " ".join(texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", everything)
    if isinstance(inspection, LayerInspection):
        return
    assert "a\ufffd[31mred" in everything
    assert "\ufffdab" in everything
    assert f"{'w' * 12}…{'w' * 11}" in everything
    assert "w" * 13 not in everything


def test_a_long_text_still_fits_into_an_image():
    # matplotlib refuses images of 65,536 dots.
    assert weights(1250).figure().get_figwidth() * 150 < 65536


def test_a_figure_that_cannot_be_saved_is_refused(tmp_path):
    (tmp_path / "folder.svg").mkdir()
    for name in ("figure.pdf", "figure", "figure.png.gz"):
        with pytest.raises(ConfigError, match=r"expected a figure that ends in \.png or \.svg"):
            check_figure(tmp_path / name)
    for name in ("nowhere/figure.png", "folder.svg"):
        with pytest.raises(StorageError, match="expected a file in a folder that exists"):
            check_figure(tmp_path / name)
    check_figure(tmp_path / "figure.svg")
