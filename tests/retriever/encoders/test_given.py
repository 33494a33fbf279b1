"""Encoders that a program passes: the real SentenceTransformer, over texts of every length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retriever import Document, Index
from retriever.documents.passages import PassageSettings, cut_document
from retriever.encoders.encoder import adopt

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
    ((spans, rows, was_cut),) = cut_document(document, adopt(model), PassageSettings())
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
        encoder = adopt(model)
        texts = list(ODD_TEXTS.values())
        with pytest.warns(UserWarning, match=r"longer than the window of 256 word pieces"):
            vectors = encoder.encode(texts)
        np.testing.assert_allclose(
            vectors, model.encode_document(texts, normalize_embeddings=True), atol=1e-5
        )
        assert encoder.tokenize([]) == []
        assert encoder.truncate([]) == []


def test_tokenizer_without_offsets_divides_words_evenly(make_model, tmp_path):
    model = make_model()
    encoder = adopt(Wrapped(model))
    assert encoder.piece_offsets(" unfathomableness x") == [
        *((1, 4), (4, 7), (7, 10), (10, 13), (13, 17)),
        (18, 19),
    ]
    with Index.create(tmp_path / "my.index", encoder=Wrapped(model)) as index:
        report = index.add([LONG_TEXT, "a" * 9000])
        assert report.truncated == 0
        (hit,) = index.search(QUERY, mode="dense", k=1)
    assert len(model.tokenizer(hit.passage)["input_ids"]) <= model.max_seq_length
