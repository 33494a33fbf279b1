"""Encoders that a program passes: the real SentenceTransformer, over texts of every length."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from indexes import StructureSettings
from retriever import Document, Index
from retriever.documents import PassageSettings, cut_document
from retriever.encoders.encoder import wrap_encoder
from retriever.errors import ConfigError

ODD_TEXTS = {
    "empty": "",
    "white space": " \n\t" * 900,
    "invisible": "\u200b" * 900,
    "control characters": "\x00\x01" * 900,
    "one word": "a" * 9000,
    "no spaces": "漢字" * 900,
    "combining marks": "e\u0301" * 900,
    "emoji": "😀" * 900,
    "special tokens": "[SEP] [CLS] [PAD] " * 300,
}
LONG_TEXT = " ".join(f"Sentence {number} is about wind and rain." for number in range(300))
QUERY = "Sentence 299 is about wind"
PROMPTS = {"query": "query: ", "document": "A prompt of some length before each passage: "}


@pytest.fixture(scope="module")
def make_model():
    """Make a SentenceTransformer of the bundled model with keywords."""
    transformers = pytest.importorskip("sentence_transformers")
    import layer_retriever_minilm

    folder = Path(layer_retriever_minilm.__file__).parent / "model"
    return lambda **keywords: transformers.SentenceTransformer(
        str(folder), device="cpu", **keywords
    )


class PythonTokenizer:
    """A tokenizer as those of transformers in Python: it has no offsets."""

    is_fast = False

    def __init__(self, tokenizer):
        self.tokenize = tokenizer.tokenize
        self.encode = tokenizer

    def __call__(self, texts, **keywords):
        if keywords.get("return_offsets_mapping"):
            raise NotImplementedError
        return self.encode(texts, **keywords)


class Wrapped:
    """A SentenceTransformer with another tokenizer."""

    def __init__(self, model):
        self.encode = model.encode
        self.max_seq_length = model.max_seq_length
        self.tokenizer = PythonTokenizer(model.tokenizer)


@pytest.mark.parametrize(
    "keywords",
    [{}, {"truncate_dim": 64}, {"prompts": PROMPTS}, {"prompts": {"other": "Any: "}}],
    ids=["plain", "truncate_dim", "prompts", "another prompt"],
)
def test_long_text_becomes_passages_that_the_model_reads_whole(make_model, tmp_path, keywords):
    model = make_model(**keywords)
    prompt = model.prompts.get("document") or ""
    document = Document("long", LONG_TEXT)
    ((spans, rows, was_cut),) = cut_document(document, wrap_encoder(model), PassageSettings())
    assert not was_cut
    assert len(spans) > 10
    assert (spans[0][0], spans[-1][1]) == (0, len(LONG_TEXT))
    for (start, stop), row in zip(spans, rows, strict=True):
        pieces = model.tokenizer(prompt + LONG_TEXT[start:stop])["input_ids"]
        assert len(row) == len(pieces) <= model.max_seq_length
    with Index.create(tmp_path / "my.index", encoder=model) as index:
        index.add([document, Document("short", "The sun shines.")])
        hits = index.search(QUERY, mode="dense", k=2)
    assert [hit.id for hit in hits] == ["long", "short"]
    passages = model.encode_document([hit.passage for hit in hits])
    cosines = model.similarity(model.encode_query(QUERY), passages)[0]
    assert [hit.score for hit in hits] == pytest.approx(cosines.tolist(), abs=1e-4)


def test_odd_texts_are_encoded_as_the_model_encodes_them(make_model):
    for keywords in ({}, {"prompts": PROMPTS}):
        model = make_model(**keywords)
        encoder = wrap_encoder(model)
        texts = list(ODD_TEXTS.values())
        with pytest.warns(UserWarning, match=r"longer than the window of 256 tokens"):
            vectors = encoder.encode(texts)
        np.testing.assert_allclose(
            vectors, model.encode_document(texts, normalize_embeddings=True), atol=1e-5
        )
        assert encoder.tokenize([]) == []
        assert encoder.truncate([]) == []


def test_tokenizer_without_offsets_divides_words_evenly(make_model, tmp_path):
    model = make_model()
    encoder = wrap_encoder(Wrapped(model))
    assert encoder.piece_offsets(" unfathomableness x") == [
        *((1, 4), (4, 7), (7, 10), (10, 13), (13, 17)),
        (18, 19),
    ]
    with Index.create(tmp_path / "my.index", encoder=Wrapped(model)) as index:
        report = index.add([LONG_TEXT, "a" * 9000])
        assert report.truncated == 0
        (hit,) = index.search(QUERY, mode="dense", k=1)
    assert len(model.tokenizer(hit.passage)["input_ids"]) <= model.max_seq_length


class Scaled:
    """Random vectors times a number, in a number of dimensions; zeros of texts with the word no."""

    def __init__(self, scale=1.0, dimensions=8, dtype=np.float32):
        self.scale = scale
        self.width = dimensions
        self.dtype = dtype

    def encode(self, texts):
        vectors = np.zeros((len(texts), self.width), self.dtype)
        for row, text in enumerate(texts):
            if "no" not in text.split():
                chance = np.random.default_rng(zlib.crc32(text.encode()))
                vectors[row] = chance.standard_normal(self.width) * self.scale
        return vectors


@pytest.mark.parametrize("scale", [1e20, 1e37, 1e-30])
def test_magnitude_of_an_encoder_changes_no_score(tmp_path, scale):
    texts = [f"text {number}" for number in range(20)]
    hits = []
    for name, encoder in (("plain", Scaled()), ("scaled", Scaled(scale))):
        with Index.create(tmp_path / name, encoder=encoder) as index:
            index.add(texts)
            found = index.search("text 3", mode="dense", k=20)
            hits.append([(hit.passage, round(hit.score, 4)) for hit in found])
    assert hits[0] == hits[1]
    assert hits[0][0] == ("text 3", 1.0)


def test_numbers_beyond_float32_are_refused_with_text_and_value():
    with pytest.raises(ConfigError, match=r"found (-inf|inf) in the vector of the text 'The cat"):
        wrap_encoder(Scaled(1e60, dtype=np.float64))


def test_encoder_without_dimensions_is_refused():
    with pytest.raises(ConfigError, match="expected vectors of one dimension or more, found 0"):
        wrap_encoder(Scaled(dimensions=0))


@pytest.mark.parametrize(
    "structure", ["hnsw", "ivf", "ivf-sq8", "ivf-pq", "HNSW16,SQ8", "PCA4,SQ8", "L2norm,IVF8,Flat"]
)
def test_zero_vectors_are_searched_in_every_structure_without_a_warning(tmp_path, structure):
    texts = [f"{'no' if number % 3 else 'a'} text {number}" for number in range(600)]
    encoder = Scaled()
    with Index.create(tmp_path / "my.index", encoder=encoder) as index:
        index.add(texts)
        index.rebuild(StructureSettings(structure))
        hits = index.search("a text 3", mode="dense", k=3)
        nothing = index.search("no text 1", mode="dense", k=3)
    assert hits[0].passage == "a text 3"
    assert [hit.score for hit in nothing] == [0.0, 0.0, 0.0]
