"""Vectors against sentence-transformers and plain transformers; batches, windows, memory.

And asking for an encoder where an index has one: the same in other words is accepted, others not.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from retriever.encoders import (
    DEFAULT_MODEL,
    Encoder,
    EncoderSettings,
    EncoderSpec,
    ModelChoice,
    find_model,
)
from retriever.encoders.computing import BATCH_PIECES
from retriever.encoders.registry import EncoderModel
from retriever.errors import (
    BadInputError,
    ConfigError,
    EncoderMismatchError,
    ModelError,
    RetrieverError,
)
from tests.retriever.encoders.sentence_models import sentence_transformers_vectors

PROSE = """
The ferry that crosses the strait every morning, except when the fog is thick, carries more letters
than people. Its captain has kept the same timetable for thirty years, although nobody on either
shore has ever seen it written down, and he will wait for a late passenger only if the tide allows.
"""
SENTENCES = [
    "Water boils at 100 °C (212 °F); he said: “Don't go — it's 5 o'clock!”",
    "def add(a, b):\n    return a + b  # https://example.org/path?query=1&other=two#part",
    "ALL CAPITALS: Füße, naïve café, Ångström, e\u0301 decomposed, ﬁ ligature, ½ fraction, Ⅷ",
    "İstanbul'da güzel bir gün; съешь же ещё этих мягких французских булок",
    "敏捷的棕色狐狸跳过了懒狗; 다람쥐 헌 쳇바퀴에 타고파; दुर्गम पहाड़ों के बीच",
    "👩‍👩‍👧‍👦 family 🚀 rocket 🇩🇪, zero\u200bwidth\u00a0space\u00adhyphen",
    "supercalifragilisticexpialidocious" * 4,
    "x" * 3000,
    "!!! ??? ...",
    "",
    " \t\n",
    "[CLS] special [SEP] pieces [MASK] written [PAD] out",
    *(line for line in PROSE.split(",") if line.strip()),
    PROSE * 2,
    "word " * 253,
    "word " * 254,
]
OVER_LONG = ["word " * 255, PROSE * 12, "x, y; " * 600, "狐" * 1000]
TEXTS = [*SENTENCES, *OVER_LONG, "the last one is short"]
CUT = f"{len(OVER_LONG)} of {len(TEXTS)} texts are longer than the window of 256 tokens"


@pytest.fixture(scope="module")
def reference():
    return sentence_transformers_vectors(find_model(DEFAULT_MODEL).path, TEXTS)


def test_texts_get_the_vectors_of_sentence_transformers(minilm, reference):
    with pytest.warns(UserWarning, match=CUT):
        vectors = minilm.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert vectors.shape == (len(TEXTS), 384) == reference.shape
    np.testing.assert_allclose(vectors, reference, atol=1e-5)
    for text, expected in zip(SENTENCES, reference, strict=False):
        np.testing.assert_allclose(minilm.encode([text])[0], expected, atol=1e-5)
    assert minilm.encode([]).shape == (0, 384)


@pytest.mark.parametrize("pieces", [1, 300, 3000])
def test_vectors_depend_neither_on_order_nor_on_batches(minilm, reference, monkeypatch, pieces):
    monkeypatch.setitem(BATCH_PIECES, "float32", pieces)
    order = list(range(len(SENTENCES)))
    random.Random(pieces).shuffle(order)
    vectors = minilm.encode([SENTENCES[i] for i in order])
    np.testing.assert_allclose(vectors, reference[order], atol=1e-5)


@pytest.mark.parametrize("method", ["encode", "tokenize", "truncate", "hidden_states"])
def test_texts_that_no_tokenizer_takes_are_refused_and_counted(minilm, method):
    with pytest.raises(BadInputError, match=r"text 2 holds the lone surrogate \\ud800"):
        getattr(minilm, method)(["a cat", "a \ud800"])
    with pytest.raises(TypeError, match="text 2: expected a string, found int"):
        getattr(minilm, method)(["a cat", 5])
    if method != "encode":
        with pytest.raises(TypeError, match="texts: expected several strings, found 'a cat'"):
            getattr(minilm, method)("a cat")


def test_a_smaller_window_cuts_earlier_and_is_another_encoder(minilm):
    small = Encoder.load("::max-length=16", device="cpu")
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the window of 16"):
        cut = small.encode([PROSE, "short"])
    np.testing.assert_allclose(cut[1], minilm.encode(["short"])[0], atol=1e-6)
    (ids,) = minilm.tokenize([PROSE])
    assert small.truncate([PROSE]) == [[*ids[:15], ids[-1]]]
    assert abs(float(cut[0] @ minilm.encode([PROSE])[0])) < 0.999
    assert small.spec.fingerprint != minilm.spec.fingerprint


def test_a_specification_of_other_weights_is_refused_naming_both(minilm):
    spec = EncoderSpec.from_json(minilm.spec.to_json() | {"weights": "0" * 64})
    both = f"expected encoder {spec.fingerprint}, found {minilm.spec.fingerprint}"
    with pytest.raises(EncoderMismatchError, match=both):
        Encoder.from_spec(spec)
    given = EncoderSpec.from_json(minilm.spec.to_json() | {"weights": "probed:0"})
    with pytest.raises(EncoderMismatchError, match="with an encoder from Python code"):
        Encoder.from_spec(given)
    with pytest.raises(ConfigError, match="expected a meta-embedding"):
        minilm.meta_parts()
    with pytest.raises(ConfigError, match="device 'abacus' cannot be used"):
        Encoder.load(device="abacus")


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_model_reads_as_many_pieces_as_it_has_positions_for(tiny_models, kind):
    folder = str(tiny_models[kind])
    encoder = Encoder.load(folder, device="cpu")
    # RoBERTa numbers positions from padding_idx + 1: 42 positions hold 40 pieces.
    assert encoder.spec.max_length == 40
    with pytest.warns(UserWarning, match="1 of 1 texts"):
        assert np.isfinite(encoder.encode(["w1 " * 1000])).all()
    with pytest.raises(ConfigError, match="at most 40 pieces, found 41"):
        Encoder.load(f"{folder}::max-length=41")


class SmallMemory(EncoderModel):
    """A model whose forward pass fails above a number of texts."""

    dimensions = 4

    def __init__(self, rows, error):
        self.rows, self.error, self.asked = rows, error, []

    def tokenize(self, texts, max_length=None, *, query=False):
        raise AssertionError

    def piece_offsets(self, text):
        raise AssertionError

    def embed(self, pieces):
        self.asked.append(len(pieces))
        if len(pieces) > self.rows:
            raise self.error
        return np.array([[np.mean(ids), 1, 0, 0] for ids in pieces], np.float32)


def encoder_of(model):
    return Encoder(EncoderSpec(EncoderSettings(model="m", max_length=8), "0", 4), model)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=type)
def test_too_little_memory_halves_the_batch_until_it_fits(error):
    pieces = [[number] * (1 + number % 5) for number in range(1, 48)]
    expected = encoder_of(SmallMemory(1000, None)).encode_pieces(pieces)
    model, told = SmallMemory(3, error), []
    vectors = encoder_of(model).encode_pieces(pieces, lambda *done: told.append(done))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert max(model.asked) == len(pieces)
    assert sum(rows for rows in model.asked if rows <= 3) == len(pieces)
    assert told == [(len(pieces), sum(map(len, pieces)))]
    encoder = encoder_of(SmallMemory(0, error))
    with pytest.raises(RetrieverError, match="one text of 5 tokens: set a smaller --max-le"):
        encoder.encode_pieces([[1, 2, 3, 4, 5]])


def test_errors_other_than_out_of_memory_are_raised():
    model = SmallMemory(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        encoder_of(model).encode_pieces([[1], [2]])
    assert model.asked == [2]


def test_a_text_without_a_piece_has_the_zero_vector_and_equal_ones_are_run_once():
    model, told = SmallMemory(9, None), []
    vectors = encoder_of(model).encode_pieces(
        [[], [3, 4], [], [3, 4], [5]], lambda *done: told.append(done)
    )
    assert model.asked == [2]
    assert not vectors[[0, 2]].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[[1, 3, 4]], axis=1), 1, rtol=1e-6)
    assert (vectors[1] == vectors[3]).all()
    assert np.sum(told, axis=0).tolist() == [5, 5]


INDEX = Path("the-index")


@pytest.fixture
def bert(tiny_models):
    return str(tiny_models["bert"])


def made_with(asked):
    return Encoder.load(asked, device="cpu").spec


def check(asked, spec):
    ModelChoice(asked, device="cpu").check(spec, INDEX)


# Settings of an index, and other ways of asking for the same encoder.
SAME = [
    ("", ["::layers=-1", "::layers=last", "::last", "::layers=2", "::layers=last1", "::lc:2"]),
    ("", ["::fusion=mean", "::pooling=mean::special-tokens=keep::head=no", "::normalize=yes"]),
    ("", ["::query-prompt=::passage-prompt=", "::max-length=40::dtype=bfloat16::backend=torch"]),
    ("::lc:0,2", ["::layers=2,0", "::lc:-1,0", "::layers=0,last", "::layers=-3,-1::fusion=mean"]),
    ("::layers=all", ["::layers=0..2", "::lc:last3", "::layers=2,1,0", "::pooling=mean"]),
    ("::top-bottom", ["::layers=2,1::fusion=concat", "::layers=last,-2", "::fusion=concat"]),
    ("::layers=last::fusion=concat", ["::fusion=max", "::layers=2::fusion=concat"]),
    ("::layers=0::fusion=max", ["::fusion=concat", "::layers=-3::fusion=mean"]),
    ("::sbert-wk", ["::sbert-wk::omega=0.5::wk-words=variance", "::sbert-wk::start-layer=1"]),
    ("::sbert-wk::wk-words=uniform", ["::sbert-wk", "::sbert-wk::wk-layers=weighted"]),
    ("::layers=0,2::fusion=max", ["::layers=2,0::fusion=max", "::fusion=max"]),
    (
        "::sbert-wk::wk-preset=released::window=1",
        ["::sbert-wk::window=1", "::sbert-wk::wk-preset=released::wk-variance=fused"],
    ),
    ("::pooling=cls::head=yes", ["::head=yes", "::pooling=cls", "::layers=-1::head=yes"]),
    ("::query-prompt=q: %20::max-length=16", ["::query-prompt=q:%20%20", "::max-length=16"]),
    ("::dtype=bfloat16::normalize=no", ["::normalize=no", "::dtype=bfloat16::last"]),
]


@pytest.mark.parametrize(("made", "asked"), SAME)
def test_equivalent_settings_of_index_encoder_are_accepted(made, asked, bert):
    spec = made_with(bert + made)
    for text in ("", made, "::" + str(spec).partition("::")[2], *asked):
        check(text, spec)
        check(bert + text, spec)


OTHERS = [
    ("", "::layers=0", "layers=0"),
    ("", "::lc:0,2", "layers=0,2"),
    ("", "::layers=0..2", "layers=0..2"),
    ("", "::sbert-wk", "fusion=sbert-wk"),
    ("::sbert-wk", "::sbert-wk::wk-words=uniform", "wk-words=uniform"),
    ("::layers=0,2::fusion=max", "::layers=0,2::fusion=mean", "fusion=mean"),
    ("", "::special-tokens=drop", "special-tokens=drop"),
    ("", "::head=yes", "head=yes"),
    ("", "::query-prompt=q", "query-prompt=q"),
    ("", "::pooling=max::normalize=no::max-length=39", "pooling=max and normalize=no and max-leng"),
    ("::lc:0,2", "::last", "layers=last"),
    ("::lc:0,2", "::lc:0..2", "layers=0..2"),
    ("::top-bottom", "::layers=1,2", "layers=1,2"),
    ("::top-bottom", "::layers=-1,1::fusion=mean", "fusion=mean"),
    ("::sbert-wk", "::sbert-wk::omega=0.25", "omega=0.25"),
    ("::sbert-wk", "::layers=last", "layers=last"),
    ("::sbert-wk", "::pooling=mean", "pooling=mean"),
    ("::pooling=cls::head=yes", "::head=no", "head=no"),
    ("::query-prompt=q", "::query-prompt=", "query-prompt="),
    ("", "::static=average", "static=average"),
    ("::static=average", "::layers=last", "layers=last"),
]


@pytest.mark.parametrize(("made", "asked", "named"), OTHERS)
def test_another_encoder_is_refused_naming_both(made, asked, named, bert):
    spec = made_with(bert + made)
    with pytest.raises(EncoderMismatchError) as caught:
        check(asked, spec)
    assert str(caught.value).startswith(
        f"{INDEX}: the index was made with {spec} with weights {spec.weights[:12]}, but {named}"
    )


def test_another_model_is_refused_and_a_copy_is_not(bert, tiny_models, tmp_path):
    spec = made_with(bert)
    other = str(tiny_models["roberta"])
    weights = find_model(other).weights
    with pytest.raises(EncoderMismatchError, match=f"model {other} with weights {weights[:12]} wa"):
        check(other, spec)
    copy = str(shutil.copytree(bert, tmp_path / "copy"))
    check(copy, spec)
    assert made_with(copy).fingerprint == spec.fingerprint
    for asked, error in (("::layers=7", EncoderMismatchError), ("./nowhere::last", ModelError)):
        with pytest.raises(error):
            check(asked, spec)


def test_model_choice_completes_settings_from_index(bert):
    choice = ModelChoice(f"{bert}::lc:0,1::max-length=20", device="cpu")
    spec = choice.load().spec
    assert str(spec) == f"{bert}::layers=0,1::max-length=20"
    assert choice.weights() == spec.weights == find_model(bert).weights
    assert choice.completed(spec) is choice
    assert ModelChoice("::pooling=max", "cpu").completed(spec) == ModelChoice(
        f"{bert}::layers=0,1::pooling=max::max-length=20", "cpu"
    )
