from __future__ import annotations

import builtins
import errno
import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from eval.figures import check_figure, save_figure
from eval.inspect.layers import LayerInspection, LayerSimilarity, TextsRead
from eval.inspect.weights import MetaInspection, MetaWord, WeightInspection
from eval.inspect.words import VarianceGroups, WordInspection, WordVariance
from retriever.encoders.fusion.words import WeightedWord
from retriever.errors import ConfigError, MissingExtraError, StorageError

pytest.importorskip("matplotlib")

HOSTILE = ["$x^{2$", "a\x1b[31mred", "line\nbreak", "<b>&", "北京", "हिन्दी", "w" * 99, "\u202eab"]


READ = TextsRead(9, 0, False)


def similarity(layers):
    mean = np.linspace(0.1, 1, layers * layers).reshape(layers, layers)
    return LayerInspection("m", READ, LayerSimilarity(1234, mean, np.zeros((layers, layers))))


def variances():
    named = [WordVariance(word, 1000 + place, place / 9) for place, word in enumerate(HOSTILE)]
    groups = VarianceGroups(tuple(named[:3]), tuple(named[3:5]), tuple(named[5:]))
    return WordInspection("m", READ, 7, 1, 8, groups)


def weights(count=8):
    words = (WeightedWord(HOSTILE[i % 8], 0, 1, 1 / count, (0.25, 0.75)) for i in range(count))
    return WeightInspection("m", "", False, "word", 4, tuple(words))


def parts():
    words = (MetaWord(word, 0, 1, (0.25, 0.75, 1.5)) for word in HOSTILE)
    return MetaInspection("m", "", False, "conc", "word", (), tuple(words))


FIGURES = {
    "similarity": lambda: similarity(7).figure(),
    "deep": lambda: similarity(25).figure(),
    "variances": lambda: variances().figure(),
    "weights": lambda: weights().figure(),
    "parts": lambda: parts().figure(),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_png_is_one(name, tmp_path):
    save_figure(FIGURES[name](), tmp_path / "figure.PNG")
    content = (tmp_path / "figure.PNG").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")


def texts_of(path):
    root = ElementTree.fromstring(path.read_text())
    assert root.tag.endswith("}svg")
    return [
        "".join(element.itertext()).strip()
        for element in root.iter()
        if element.tag.endswith("}text")
    ]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("similarity", ["hidden state (0: embeddings)", "offset 1", "offset 6", "mean cosine"]),
        ("similarity", ["cosine between layers, mean of 1,234 word pieces", "0.10", "1.00"]),
        ("deep", ["offset 24", "24"]),
        ("variances", ["low", "middle", "high", "<b>& (1,003)", "北京 (1,004)"]),
        ("weights", ["weight in the text", "hidden state", "4", "5", "$x^{2$", "line break"]),
        ("parts", ["length of its part", "source", "3", "$x^{2$", "line break"]),
    ],
)
def test_an_svg_says_what_is_drawn(name, labels, tmp_path):
    save_figure(FIGURES[name](), tmp_path / "figure.svg")
    found = texts_of(tmp_path / "figure.svg")
    assert [label for label in labels if label not in found] == []


def test_what_words_hold_is_neither_a_formula_nor_a_control_character(tmp_path):
    for name in ("variances", "weights", "parts"):
        save_figure(FIGURES[name](), tmp_path / "figure.svg")
        found = " ".join(texts_of(tmp_path / "figure.svg"))
        assert "a\ufffd[31mred" in found
        assert "\ufffdab" in found
        assert f"{'w' * 12}…{'w' * 11}" in found
        assert "w" * 13 not in found
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", found)


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for ending in ("svg", "png"):
        for name in ("one", "other"):
            save_figure(FIGURES["weights"](), tmp_path / f"{name}.{ending}")
        one, other = (tmp_path / f"{name}.{ending}" for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


def test_a_long_text_still_fits_into_an_image(tmp_path):
    # matplotlib refuses images of 65,536 dots.
    assert weights(1500).figure().get_figwidth() * 150 < 65536


@pytest.mark.parametrize("name", ["figure.pdf", "figure", "figure.png.gz"])
def test_another_ending_is_refused(name, tmp_path):
    with pytest.raises(ConfigError, match=r"expected a figure that ends in \.png or \.svg, found"):
        check_figure(tmp_path / name)


def test_a_figure_without_a_place_is_refused(tmp_path):
    for path in (tmp_path / "nowhere/figure.png", tmp_path / "folder.svg"):
        (tmp_path / "folder.svg").mkdir(exist_ok=True)
        with pytest.raises(StorageError, match="expected a file in a folder that exists"):
            check_figure(path)
    check_figure(tmp_path / "figure.svg")


def test_a_figure_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path, figure = tmp_path / "figure.svg", FIGURES["similarity"]()
    save_figure(figure, path)
    whole, draw = path.read_bytes(), figure.savefig

    def fill_the_disk(file, **settings):
        draw(file, **settings)
        file.write_bytes(file.read_bytes()[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(figure, "savefig", fill_the_disk)
    with pytest.raises(StorageError, match=r"figure.svg: cannot write the figure \(No space left"):
        save_figure(figure, path)
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r'pip install "layer-retriever\[plot\]"'):
        check_figure(tmp_path / "figure.png")
