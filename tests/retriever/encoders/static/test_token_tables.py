"""Tables of token vectors that model2vec and sentence-transformers save are static encoders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from retriever import Encoder, Index
from retriever.encoders.static import StaticModel, fit_static
from retriever.errors import ConfigError, ModelError

TOKENS = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(30)), "##a", "##b"]
TEXTS = ["w1 w2 w3", "", "zoo w4", "zoo", "W5, w6?", "w7a w7 w7ab w29"]
CLUSTERS, WIDTH = 5, 8
PLAIN = "::normalize=no"


@pytest.fixture
def tokenizer():
    found = Tokenizer(models.WordPiece({one: n for n, one in enumerate(TOKENS)}, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return found


def arrays(kind):
    chance = np.random.default_rng(3)
    rows = CLUSTERS if kind == "clustered" else len(TOKENS)
    found = {"embeddings": chance.standard_normal((rows, WIDTH), np.float32)}
    if kind == "int8":
        found["embeddings"] = (found["embeddings"] * 30).astype(np.int8)
    if kind == "clustered":
        found["mapping"] = chance.integers(0, CLUSTERS, len(TOKENS))
        found["weights"] = chance.random(len(TOKENS))
    return found


@pytest.fixture
def write_model2vec(tokenizer, tmp_path):
    """Function that writes a folder in model2vec's format."""

    def make(kind="plain", window=None, config=None):
        folder = tmp_path / kind
        folder.mkdir()
        save_file(arrays(kind), folder / "model.safetensors")
        if window is not None:
            tokenizer.enable_truncation(window)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps(config or {"model_type": "model2vec"}))
        return folder

    return make


def expected(kind, tokenizer):
    """The mean of the tokens' weighted rows, without those of the unknown one."""
    found, vectors = arrays(kind), np.zeros((len(TEXTS), WIDTH))
    mapping = found.get("mapping", np.arange(len(TOKENS)))
    weights = found.get("weights", np.ones(len(TOKENS)))
    for row, text in enumerate(TEXTS):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        rows = [found["embeddings"][mapping[id_]] * weights[id_] for id_ in ids if id_ != 1]
        if rows:
            vectors[row] = np.mean(rows, axis=0)
    return vectors


@pytest.mark.parametrize("kind", ["plain", "clustered", "int8"])
def test_model2vec_vector_is_mean_of_weighted_rows(kind, write_model2vec, tokenizer):
    folder = write_model2vec(kind)
    encoder = Encoder.load(f"{folder}{PLAIN}")
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, expected(kind, tokenizer), rtol=1e-6, atol=1e-6)
    assert str(encoder.spec) == f"{folder}::static=average::normalize=no::max-length=512"
    assert not vectors[1].any()
    assert not vectors[3].any()


@pytest.mark.parametrize("kind", ["plain", "clustered", "int8"])
def test_static_encoder_equals_model2vec_library(kind, write_model2vec, tokenizer, tmp_path):
    theirs = pytest.importorskip("model2vec").StaticModel
    found = arrays(kind)
    more = {"weights": found.get("weights"), "token_mapping": found.get("mapping")}
    model = theirs(found["embeddings"], tokenizer, normalize=True, max_length=100, **more)
    model.save_pretrained(tmp_path / "saved")
    ours = Encoder.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(ours.encode(TEXTS), model.encode(TEXTS), rtol=1e-6, atol=1e-6)
    assert ours.spec.max_length == 100


def test_static_embedding_equals_sentence_transformers(tokenizer, tmp_path):
    theirs = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    table = modules.StaticEmbedding(tokenizer, embedding_weights=arrays("plain")["embeddings"])
    for extra, asked in (([], PLAIN), ([modules.Normalize()], "")):
        folder = tmp_path / f"saved{len(extra)}"
        model = theirs.SentenceTransformer(modules=[table, *extra], device="cpu")
        model.prompts = {"query": "w9 ", "document": "zoo "}
        model.save_pretrained(str(folder))
        encoder = Encoder.load(f"{folder}{asked}")
        for query, encode in ((True, model.encode_query), (False, model.encode_document)):
            vectors = encoder.encode(TEXTS, query=query)
            np.testing.assert_allclose(vectors, encode(TEXTS), rtol=1e-6, atol=1e-6)
        # Its unknown token has a vector.
        assert vectors[3].any()


def test_the_window_is_the_tokenizers_and_an_index_opens_again(write_model2vec, tmp_path):
    folder = write_model2vec(window=9)
    documents = [{"id": f"{number}", "text": text} for number, text in enumerate(TEXTS) if text]
    with Index.create(tmp_path / "index", model=str(folder)) as index:
        index.add(documents)
        assert index.encoder_spec.max_length == 9
    with Index.open(tmp_path / "index", str(folder)) as index:
        assert index.search("w29 w7", mode="dense")[0].id == "5"


def test_it_is_fitted_and_saved_like_other_word_vectors(write_model2vec, tmp_path):
    folder = write_model2vec("clustered")
    sif = fit_static(folder, "sif", TEXTS)
    sif.save(tmp_path / "sif")
    assert StaticModel.load(tmp_path / "sif").weights == sif.weights
    average = fit_static(folder, "average", ())
    average.save(tmp_path / "average")
    specs = [Encoder.load(str(one)).spec for one in (folder, tmp_path / "average")]
    assert specs[0].fingerprint == specs[1].fingerprint


def test_a_hub_id_needs_the_setting(write_model2vec, monkeypatch):
    import huggingface_hub

    folder = write_model2vec()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    with pytest.raises(ModelError, match=r"someone/table: .* add ::static=average$"):
        Encoder.load("someone/table")
    assert Encoder.load("someone/table::static=average").dimensions == WIDTH


def test_unsupported_token_table_is_refused_in_one_line(write_model2vec):
    folder = write_model2vec()
    with pytest.raises(ConfigError, match="a static encoder does not run the model"):
        Encoder.load(f"{folder}::pooling=cls")
    modules = [{"type": f"x.{kind}", "path": ""} for kind in ("StaticEmbedding", "Dense")]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="needs a Dense module after its token vectors"):
        Encoder.load(str(folder))
    (folder / "modules.json").unlink()
    for file, content in (("tokenizer.json", b"{}"), ("model.safetensors", b"broken")):
        (folder / file).write_bytes(content)
        with pytest.raises(
            ModelError, match=r"expected model.safetensors with embeddings"
        ) as error:
            Encoder.load(str(folder))
        assert "\n" not in str(error.value)
    (folder / "model.safetensors").unlink()
    save_file({"rows": arrays("plain")["embeddings"]}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="save the model again"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("vocabulary", [1.5, 7, None])
def test_vocabulary_that_is_no_table_is_refused(vocabulary, write_model2vec):
    folder = write_model2vec()
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] = vocabulary
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="as model2vec"):
        Encoder.load(f"{folder}::static=average")
