"""What users of other libraries try first works, or the error names the right word."""

from datetime import UTC, date, datetime

import numpy as np
import pytest

from retriever import Document, Encoder, Index
from retriever.errors import ConfigError

TEXTS = ["bees make honey", "cats sleep all day", "rain falls"]


class Letters:
    name = "letters"
    dimensions = 26

    def encode(self, texts):
        return np.array([[text.count(chr(97 + i)) for i in range(26)] for text in texts], float)


@pytest.fixture
def index(tmp_path):
    with Index.open_or_create(tmp_path / "index", encoder=Letters()) as index:
        index.add(TEXTS, ids=["a", "b", "c"])
        yield index


@pytest.fixture
def encoder(index):
    return index.encoder


WORKS = {
    "one text": lambda index, encoder: encoder.encode("bees").shape == (encoder.dimensions,),
    "batch_size": lambda index, encoder: np.array_equal(
        encoder.encode(TEXTS, batch_size=1), encoder.encode(TEXTS)
    ),
    "normalize_embeddings": lambda index, encoder: (
        np.allclose(np.linalg.norm(encoder.encode(TEXTS, normalize_embeddings=True), axis=1), 1)
        and np.allclose(encoder.encode("bb", normalize_embeddings=False)[1], 2)
    ),
    "encode_query": lambda index, encoder: encoder.encode_query(TEXTS).shape == (3, 26),
    "encode_document": lambda index, encoder: encoder.encode_document("a").shape == (26,),
    "similarity": lambda index, encoder: np.allclose(
        encoder.similarity(np.eye(26)[:2] * 3, np.ones((1, 26))), 26**-0.5
    ),
    "count": lambda index, encoder: index.count() == 3,
    "get": lambda index, encoder: index.get("a").text == TEXTS[0] and index.get("z") is None,
    "delete where": lambda index, encoder: (
        index.add([{"id": "d", "text": "snow", "year": 1}]).added == index.delete(where="year = 1")
    ),
    "hit.text": lambda index, encoder: index.search("honey", k=1)[0].text == TEXTS[0],
}


@pytest.mark.parametrize("guess", WORKS.values(), ids=WORKS)
def test_what_works(index, encoder, guess):
    assert guess(index, encoder)


@pytest.mark.parametrize(
    ("guess", "error", "message"),
    [
        (lambda index: index.upsert(TEXTS), AttributeError, "Index has add, which replaces"),
        (lambda index: index.similar("a"), AttributeError, "Index has more_like"),
        (lambda index: index.nothing, AttributeError, "Index has no nothing$"),
        (
            lambda index: index.encoder.get_sentence_embedding_dimension(),
            AttributeError,
            "Encoder has dimensions",
        ),
        (lambda index: index.peek(), AttributeError, "Index has browse"),
        (lambda index: index.encoder.device, AttributeError, r"Encoder.load\(device=...\) chooses"),
        (
            lambda index: Encoder("name", device="cpu"),
            TypeError,
            r"expected Encoder.load\('name'\)",
        ),
        (lambda index: index.search("rain", n=1), TypeError, "did you mean 'k'"),
        (lambda index: index.search("rain")[0].distance, AttributeError, "Hit has score"),
        (lambda index: index.search(np.ones(26)), TypeError, "ready=QueryVectors"),
        (lambda index: index.search("a", rerank="folder"), TypeError, "did you mean 'reranker'"),
        (lambda index: index.search("a", reranker="folder"), TypeError, "load_reranker"),
        (lambda index: index.get(["a"]), TypeError, "expected one string, found list"),
        (lambda index: index.delete(), TypeError, "either ids or where"),
        (lambda index: index.add([{"text": "a"}], ids=["a"]), TypeError, "expected a text"),
        (lambda index: index.add(["a", "b"], ids=["a"]), ValueError, "each document, found only 1"),
        (lambda index: index.add(["a"], ids=["a", "b"]), ValueError, "each document, found more"),
        (lambda index: index.delete([1]), TypeError, "ids: expected strings, found one int"),
        (lambda index: index.update("a", metadata=None), TypeError, "expected a mapping, found No"),
        (lambda index: index.encoder.encode(["a"], batch_size=0), ConfigError, "1 or more"),
        (
            lambda index: Index.create(index.folder, encoder=Letters(), exist_ok=False),
            ConfigError,
            "the index exists",
        ),
    ],
)
def test_what_names_the_right_word(index, guess, error, message):
    with pytest.raises(error, match=message):
        guess(index)


def test_hits_become_a_table(index):
    pandas = pytest.importorskip("pandas")
    table = index.search("honey", k=2).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["id"]) == [hit.id for hit in index.search("honey", k=2)]
    assert list(index.search("zebra", mode="bm25").to_pandas()) == list(table)


@pytest.mark.parametrize(
    "as_given",
    [
        lambda fields: {"id": "n", "text": "new", **fields},
        lambda fields: Document("n", "new", metadata=fields),
    ],
)
def test_numpy_numbers_and_dates_are_metadata(index, as_given):
    given = {
        "int": np.int64(3),
        "float": np.float32(0.5),
        "flag": np.bool_(True),
        "list": np.arange(2),
        "day": date(2020, 1, 2),
        "when": datetime(2020, 1, 2, 3, tzinfo=UTC),
        "np": np.datetime64("2020-01-02T03:00:00.000000000"),
        "inner": {"a": [np.int8(1)]},
    }
    stored = {
        "int": 3,
        "float": 0.5,
        "flag": True,
        "list": [0, 1],
        "day": "2020-01-02",
        "when": "2020-01-02T03:00:00+00:00",
        "np": "2020-01-02T03:00:00",
        "inner": {"a": [1]},
    }
    index.add([as_given(given)])
    assert index["n"].metadata == stored
    index.update("n", metadata={"int": np.int64(4)})
    assert index["n"].metadata == {"int": 4}


def test_the_bundled_model_encodes_one_text():
    pytest.importorskip("layer_retriever_minilm")
    encoder = Encoder.load(device="cpu")
    np.testing.assert_allclose(encoder.encode("a cat"), encoder.encode(["a cat"])[0])
