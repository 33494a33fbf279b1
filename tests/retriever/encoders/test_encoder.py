"""Vectors against sentence-transformers and plain transformers; batches, windows, memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from retriever.encoders.computing import BATCH_PIECES
from retriever.encoders.encoder import Encoder
from retriever.encoders.model_folders import BUNDLED, find_model
from retriever.encoders.registry import EncoderModel
from retriever.encoders.settings import DEFAULT_MODEL, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError, RetrieverError

PROSE = """
The ferry that crosses the strait every morning, except when the fog is thick, carries more letters
than people. Its captain has kept the same timetable for thirty years, although nobody on either
shore has ever seen it written down, and he will wait for a late passenger only if the tide allows,
which, as the villagers like to say, is a matter between him and the moon.
"""
SENTENCES = [
    "How do I sort a list of dictionaries by a value?",
    "The mitochondrion is the powerhouse of the cell.",
    "0-dimensional biomaterials show inductive properties.",
    "Water boils at 100 °C (212 °F) at sea level.",
    "He said: “Don't go — it's 5 o'clock!”",
    "NASA's James Webb Space Telescope launched on 25 December 2021.",
    "def add(a, b):\n    return a + b",
    "SELECT name FROM users WHERE id = 42;",
    "https://example.org/path?query=1&other=two#part",
    "someone@example.org wrote to us",
    "ALL CAPITALS SHOULT BE LOWER CASED",
    "Füße, naïve café, Ångström, São Paulo, crème brûlée",
    "İstanbul'da güzel bir gün",
    "Съешь же ещё этих мягких французских булок",
    "敏捷的棕色狐狸跳过了懒狗",
    "素早い茶色の狐がのろまな犬を飛び越える",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع",
    "दुर्गम पहाड़ों के बीच",
    "Θέλει αρετή και τόλμη η ελευθερία",
    "👩‍👩‍👧‍👦 family 🚀 rocket 🇩🇪",
    "e\u0301 decomposed, ﬁ ligature, ½ fraction, Ⅷ numeral",
    "zero\u200bwidth\u00a0space\u00adhyphen",
    "a",
    "I",
    "cat",
    "antidisestablishmentarianism",
    "supercalifragilisticexpialidocious" * 4,
    "x" * 150,
    "x" * 3000,
    "1234567890 3.14159 1,000,000 -273.15 6.02e23",
    "!!! ??? ...",
    "-",
    "",
    " ",
    "\t\n",
    "tabs\tand\nnew\r\nlines   and   runs of space",
    "[CLS] special [SEP] pieces [MASK] written [PAD] out",
    "the the the the the the",
    *(line for line in PROSE.split(",") if line.strip()),
    PROSE,
    PROSE * 2,
    "word " * 253,
    "word " * 254,
]
OVER_LONG = ["word " * 255, "word " * 5000, PROSE * 12, "x, y; " * 600, "狐" * 1000]
TEXTS = [*SENTENCES, *OVER_LONG, "the last one is short"]
CUT = f"{len(OVER_LONG)} of {len(TEXTS)} texts are longer than the window of 256 word pieces"


@pytest.fixture(scope="module")
def reference():
    """What sentence-transformers makes of TEXTS with the same files."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(find_model(DEFAULT_MODEL).path), device="cpu")
    return model.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)


def plain_mean(folder, rows):
    """Mean over the hidden states of one text at a time, with transformers alone."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        means = [
            model(input_ids=torch.tensor([row])).last_hidden_state[0].mean(0).numpy()
            for row in rows
        ]
    return np.stack([mean / np.linalg.norm(mean) for mean in means])


def test_all_texts_at_once_get_the_vectors_of_sentence_transformers(minilm, reference):
    with pytest.warns(UserWarning, match=CUT):
        vectors = minilm.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert vectors.shape == (len(TEXTS), 384) == reference.shape
    np.testing.assert_allclose(vectors, reference, atol=1e-5)


def test_a_text_alone_gets_the_vector_it_gets_among_others(minilm, reference):
    for text, expected in zip(SENTENCES, reference, strict=False):
        np.testing.assert_allclose(minilm.encode([text])[0], expected, atol=1e-5)


@pytest.mark.parametrize("pieces", [1, 300, 700, 3000])
def test_vectors_depend_neither_on_order_nor_on_batches(minilm, reference, monkeypatch, pieces):
    monkeypatch.setitem(BATCH_PIECES, "float32", pieces)
    order = list(range(len(SENTENCES)))
    random.Random(pieces).shuffle(order)
    vectors = minilm.encode([SENTENCES[i] for i in order])
    np.testing.assert_allclose(vectors, reference[order], atol=1e-5)


def test_vectors_have_length_one(minilm):
    np.testing.assert_allclose(np.linalg.norm(minilm.encode(SENTENCES), axis=1), 1, atol=1e-6)


def test_no_texts_give_no_rows(minilm):
    assert minilm.encode([]).shape == (0, 384)


@pytest.mark.parametrize("method", ["encode", "tokenize", "truncate", "layer_vectors"])
def test_texts_that_no_tokenizer_takes_are_refused_and_counted(minilm, method):
    with pytest.raises(BadInputError, match=r"text 2 holds the lone surrogate \\ud800"):
        getattr(minilm, method)(["a cat", "a \ud800"])
    with pytest.raises(TypeError, match="text 2: expected a string, found int"):
        getattr(minilm, method)(["a cat", 5])


def test_the_window_is_counted_with_special_pieces(minilm, recwarn):
    minilm.encode(["word " * 254])
    assert not recwarn.list
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the window of 256"):
        vectors = minilm.encode(["word " * 255, "short"])
    np.testing.assert_allclose(vectors[0], minilm.encode(["word " * 254])[0], atol=1e-6)


def test_a_smaller_window_cuts_earlier_and_is_another_encoder(minilm):
    small = Encoder.load("::max-length=16", device="cpu")
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than the window of 16"):
        cut = small.encode([PROSE])
    assert len(small.truncate([PROSE])[0]) == 16
    assert abs(float(cut[0] @ minilm.encode([PROSE])[0])) < 0.999
    assert small.spec.fingerprint != minilm.spec.fingerprint


def test_a_window_beyond_the_model_is_refused():
    with pytest.raises(ConfigError, match="at most 512 pieces, found 513"):
        Encoder.load("::max-length=513")


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="device 'abacus' cannot be used"):
        Encoder.load(device="abacus")


def test_piece_offsets_cover_the_words_of_a_text(minilm):
    text = "Füße in São Paulo, unbelievably ﬁne."
    spans = minilm.piece_offsets(text)
    assert spans == sorted(spans)
    covered = {i for start, stop in spans for i in range(start, stop)}
    assert covered == {i for i, character in enumerate(text) if not character.isspace()}


def test_a_stored_specification_loads_the_same_encoder(minilm):
    again = Encoder.from_spec(EncoderSpec.from_json(minilm.spec.to_json()), device="cpu")
    assert again.spec == minilm.spec
    np.testing.assert_allclose(again.encode(["same"]), minilm.encode(["same"]), atol=1e-6)


def test_a_specification_of_other_weights_is_refused_naming_both(minilm):
    stored = minilm.spec.to_json() | {"weights": "0" * 64}
    spec = EncoderSpec.from_json(stored)
    with pytest.raises(EncoderMismatchError) as caught:
        Encoder.from_spec(spec)
    assert spec.fingerprint in str(caught.value)
    assert minilm.spec.fingerprint in str(caught.value)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_local_models_equal_the_mean_of_plain_transformers(tiny_models, kind):
    encoder = Encoder.load(str(tiny_models[kind]), device="cpu")
    # RoBERTa numbers positions from padding_idx + 1: 42 positions hold 40 pieces.
    assert encoder.spec.max_length == 40
    chance = random.Random(kind)
    texts = [
        " ".join(f"w{chance.randrange(200)}" for _ in range(length))
        for length in [*range(39), 38, 1, 20, 5]
    ]
    expected = plain_mean(tiny_models[kind], encoder.tokenize(texts))
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_longest_window_is_usable_to_its_last_piece(tiny_models, kind):
    encoder = Encoder.load(str(tiny_models[kind]), device="cpu")
    with pytest.warns(UserWarning, match="1 of 1 texts"):
        vectors = encoder.encode(["w1 " * 1000])
    assert np.isfinite(vectors).all()
    with pytest.raises(ConfigError, match="at most 40 pieces, found 41"):
        Encoder.load(f"{tiny_models[kind]}::max-length=41")


def test_the_name_of_a_model_does_not_change_its_identity(tiny_models, tmp_path):
    copy = tmp_path / "copy"
    copy.symlink_to(tiny_models["bert"])
    one, other = Encoder.load(str(tiny_models["bert"])), Encoder.load(str(copy))
    assert one.spec.model != other.spec.model
    assert one.spec.fingerprint == other.spec.fingerprint


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


def a_spec():
    return EncoderSpec(EncoderSettings(model="m", max_length=8), "0", SmallMemory.dimensions)


def out_of_memory():
    import torch

    return [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 137438953472 bytes. Error code 12"
        ),
        MemoryError(),
    ]


@pytest.mark.parametrize("which", range(3))
def test_too_little_memory_halves_the_batch_until_it_fits(which):
    pieces = [[number] * (1 + number % 5) for number in range(1, 48)]
    spec = a_spec()
    expected = Encoder(spec, SmallMemory(1000, None)).encode_pieces(pieces)
    backbone = SmallMemory(3, out_of_memory()[which])
    told = []
    vectors = Encoder(spec, backbone).encode_pieces(pieces, lambda *done: told.append(done))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert max(backbone.asked) == len(pieces)
    assert sum(rows for rows in backbone.asked if rows <= 3) == len(pieces)
    assert told == [(len(pieces), sum(map(len, pieces)))]


def test_a_text_without_a_piece_has_the_zero_vector_and_is_not_run():
    model, told = SmallMemory(9, None), []
    vectors = Encoder(a_spec(), model).encode_pieces(
        [[], [3, 4], []], lambda *done: told.append(done)
    )
    assert model.asked == [1]
    assert not vectors[[0, 2]].any()
    assert np.linalg.norm(vectors[1]) == pytest.approx(1)
    assert np.sum(told, axis=0).tolist() == [3, 2]


@pytest.mark.parametrize("which", range(3))
def test_a_single_text_that_does_not_fit_is_an_error_that_says_what_to_do(which):
    encoder = Encoder(a_spec(), SmallMemory(0, out_of_memory()[which]))
    with pytest.raises(RetrieverError, match="one text of 5 word pieces: set a smaller --max-le"):
        encoder.encode_pieces([[1, 2, 3, 4, 5]])


def test_other_failures_are_not_taken_for_too_little_memory():
    backbone = SmallMemory(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Encoder(a_spec(), backbone).encode_pieces([[1], [2]])
    assert backbone.asked == [2]


def test_the_default_model_is_a_bundled_one():
    assert DEFAULT_MODEL in BUNDLED
