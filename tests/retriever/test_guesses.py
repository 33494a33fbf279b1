"""Calls in the style of other libraries work, or the error names the right word."""

import re
from datetime import UTC, date, datetime

import numpy as np
import pytest

from retriever import Document, Encoder, Index
from retriever.errors import ConfigError
from retriever.guesses import ATTRIBUTES, KEYWORDS

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


QUESTIONS = {"q": "honey"}
RELEVANT = {"q": {"a"}}


def evaluated(encoder):
    """The result of sentence-transformers' evaluator of retrieval."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    corpus = dict(zip("abc", TEXTS, strict=True))
    return InformationRetrievalEvaluator(QUESTIONS, corpus, RELEVANT, write_csv=False)(encoder)


def count_and_close(opened):
    with opened:
        return opened.count()


def as_tensor(encoder):
    """Vectors as sentence-transformers gives them to torch."""
    torch = pytest.importorskip("torch")
    vectors = encoder.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    return isinstance(vectors, torch.Tensor) and isinstance(
        encoder.similarity(vectors, vectors), torch.Tensor
    )


WORKS = {
    "Index.load": lambda index, encoder: (
        count_and_close(Index.load(index.folder, encoder=Letters())) == 3
    ),
    "Index.from_documents": lambda index, encoder: (
        count_and_close(Index.from_documents(TEXTS, index.folder / "../other", encoder=Letters()))
        == 3
    ),
    "Chroma's add": lambda index, encoder: (
        index.add(documents=["snow"], ids=["d"], metadatas=[{"year": 1}]).added
        == len(index.search("snow", where={"year": 1}))
    ),
    "metadata without ids": lambda index, encoder: (
        index.add(["ice", "fog"], metadatas=[{"year": 7}, None]).added == 2
        and index.browse({"year": [7, 8]})[0].text == "ice"
    ),
    "add(Path)": lambda index, encoder: index.add(notes_of(index)).added == 2,
    "to_list": lambda index, encoder: index.search("honey").to_list()[0]["id"] == "a",
    "hit[...]": lambda index, encoder: index.search("honey")[0]["text"] == TEXTS[0],
    "dict(hit)": lambda index, encoder: (
        dict(index.search("honey")[0]) == index.search("honey")[0].to_json()
    ),
    "a hit as a mapping": lambda index, encoder: (
        set(index.search("honey")[0]) == set(index.search("honey")[0].to_json())
        and "id" in index.search("honey")[0]
    ),
    "keywords of encode": lambda index, encoder: np.array_equal(
        encoder.encode(
            TEXTS, convert_to_numpy=True, show_progress_bar=True, prompt_name="query", device=None
        ),
        encoder.encode(TEXTS, query=True),
    ),
    "tensors": lambda index, encoder: as_tensor(encoder),
    "InformationRetrievalEvaluator": lambda index, encoder: (
        evaluated(encoder)["cosine_accuracy@1"] == 1
    ),
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


def notes_of(index):
    """A folder of two files."""
    folder = index.folder / "../notes"
    folder.mkdir()
    (folder / "one.txt").write_text("One.")
    (folder / "two.md").write_text("Two.")
    return folder


@pytest.mark.parametrize("guess", WORKS.values(), ids=WORKS)
def test_guessed_python_call_works(index, encoder, guess):
    assert guess(index, encoder)


@pytest.mark.parametrize(
    ("guess", "error", "message"),
    [
        (lambda index: index.upsert(TEXTS), AttributeError, "Index has add, which replaces"),
        (lambda index: index.add([("a", "text", None)]), TypeError, "mapping such as"),
        (lambda index: index.add(["a"], metadatas=[]), ValueError, "metadatas: expected one"),
        (lambda index: index.search("a", where={}), TypeError, "expected a text such as"),
        (lambda index: index.search("a", where={"n": object()}), ConfigError, "filter: n: "),
        (lambda index: index.search("a")[0]["nothing"], KeyError, "Hit has no nothing"),
        (lambda index: index.search("a")[0]["content"], KeyError, "Hit has passage"),
        (
            lambda index: index.encoder.encode("a", precision=np.zeros(2)),
            ConfigError,
            "precision: expected 'float32'",
        ),
        (
            lambda index: index.encoder.encode("a", convert_to_numpy=False),
            ConfigError,
            "convert_to_tensor=True",
        ),
        (lambda index: index.encoder.encode("a", prompt_name=["q"]), ConfigError, "prompt_name: "),
        (lambda index: Index.create(":memory:"), ConfigError, "tempfile"),
        (lambda index: index.encoder.encode("a", prompt_name="qa"), ConfigError, "query-prompt="),
        (lambda index: index.encoder.encode("a", prompt="x"), ConfigError, "passage-prompt="),
        (lambda index: index.encoder.encode("a", device="cuda"), ConfigError, "Encoder.load"),
        (lambda index: index.encoder.encode("a", truncate_dim=3), ConfigError, "::dimensions="),
        (lambda index: index.encoder.encode("a", batch=3), TypeError, "did you mean 'batch_size'"),
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
def test_wrong_python_guess_is_refused_with_right_name(index, guess, error, message):
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


def test_every_name_of_the_tables_is_refused_and_names_the_right_word(index, encoder):
    objects = {"Index": index, "Encoder": encoder, "Hit": index.search("honey")[0]}
    assert objects.keys() == ATTRIBUTES.keys()
    for kind, names in ATTRIBUTES.items():
        for name, right_word in names.items():
            with pytest.raises(AttributeError, match=f"{kind} has {re.escape(right_word)}"):
                getattr(objects[kind], name)
            word = re.match(r"\w+", right_word)[0]
            assert word == "no" or hasattr(objects[kind], word), name
    for name, keyword in KEYWORDS.items():
        call = index.add if keyword == "vectors" else index.search
        with pytest.raises(TypeError, match=f"{name}|{keyword}"):
            call("a", **{name: 1})


def test_the_hub_id_of_the_bundled_model_is_the_bundled_model():
    pytest.importorskip("layer_retriever_minilm")
    by_id = Encoder.load("sentence-transformers/all-MiniLM-L6-v2", device="cpu")
    assert by_id.spec.fingerprint == Encoder.load(device="cpu").spec.fingerprint


def test_the_bundled_model_encodes_one_text():
    pytest.importorskip("layer_retriever_minilm")
    encoder = Encoder.load(device="cpu")
    np.testing.assert_allclose(encoder.encode("a cat"), encoder.encode(["a cat"])[0])
