"""The folder of a trained encoder: read by sentence-transformers and here, whole or not at all."""

from __future__ import annotations

import json

import pytest

from retriever.encoders import Encoder, find_model
from retriever.encoders.training import TrainableEncoder, read_training, write_encoder
from retriever.encoders.training.model import TRAINING
from retriever.errors import ConfigError, ModelError
from tests.retriever.encoders.architectures import TEXTS
from tests.retriever.encoders.sentence_models import (
    dense,
    pooling,
    sentence_transformer,
    sentence_transformers_vectors,
)
from tests.retriever.encoders.training.encoder_samples import RANKED, settings, train
from tests.retriever.training.training_samples import scripted_scores

pytestmark = pytest.mark.usefixtures("one_thread")


def train_and_save(folder, output, part="last:2", encoder=""):
    """Train an encoder for one epoch, save it whatever its score, and return the folder."""
    asked = settings(train=part, epochs=1)
    found, _ = train(f"{folder}{encoder}", RANKED, asked, scripted_scores([0, 1]))
    write_encoder(output, found, {"identity": {"seed": 0}})
    return output


@pytest.mark.parametrize(
    ("name", "part"), [("bert", "last:2"), ("roberta", "full"), ("mpnet", "last:1")]
)
def test_saved_encoder_equals_sentence_transformers(tmp_path, folders, name, part):
    output = train_and_save(folders(name), tmp_path / "new", part)
    vectors = Encoder.load(output, device="cpu").encode(TEXTS)
    before = Encoder.load(str(folders(name)), device="cpu").encode(TEXTS)
    assert (vectors * sentence_transformers_vectors(output)).sum(axis=1) == pytest.approx(
        1, abs=1e-5
    )
    assert (vectors * before).sum(axis=1).min() < 0.9999


@pytest.mark.parametrize("mode", ["mean", "max", "cls"])
def test_pooling_window_and_prompts_are_kept(tmp_path, folders, mode):
    settings_text = f"::pooling={mode}::max-length=12::query-prompt=w9 w8: ::passage-prompt=w7 "
    output = train_and_save(folders("bert"), tmp_path / "new", encoder=settings_text)
    encoder = Encoder.load(str(output), device="cpu")
    own = Encoder.load(f"{output}{settings_text}", device="cpu")
    assert encoder.spec.fingerprint == own.spec.fingerprint
    model = sentence_transformer(output)
    assert model.max_seq_length == 12
    trainable = TrainableEncoder.load(f"{output}{settings_text}", device="cpu")
    for query, name in ((True, "query"), (False, "document")):
        pieces = trainable.tokenize(TEXTS[:3], 12, query=query)
        assert pieces == own.truncate(TEXTS[:3], query=query)
        expected = model.encode(list(TEXTS[:3]), prompt_name=name, normalize_embeddings=True)
        vectors = encoder.encode(TEXTS[:3], query=query)
        assert (vectors * expected).sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_a_model_of_sentence_transformers_is_trained_as_it_is(tmp_path, folders, make):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    words = Transformer(str(folders("bert")), max_seq_length=16)
    SentenceTransformer(modules=[words, Pooling(16, pooling_mode="cls")]).save(
        str(tmp_path / "theirs")
    )
    output = train_and_save(tmp_path / "theirs", tmp_path / "new", "full")
    encoder = Encoder.load(str(output), device="cpu")
    assert (encoder.spec.max_length, encoder.spec.effective_value("pooling")) == (16, "cls")
    vectors = encoder.encode(TEXTS[:3])
    assert (vectors * sentence_transformers_vectors(output, TEXTS[:3])).sum(
        axis=1
    ) == pytest.approx(1, abs=1e-5)
    # Projections are kept.
    projected = train_and_save(make(pooling(), dense(5)), tmp_path / "projected")
    vectors = Encoder.load(str(projected), device="cpu").encode(TEXTS)
    assert vectors.shape[1] == 5
    assert (vectors * sentence_transformers_vectors(projected)).sum(axis=1) == pytest.approx(
        1, abs=1e-5
    )


def test_saved_encoder_differs_from_base_only_in_weights(tmp_path, folders):
    output = train_and_save(folders("bert"), tmp_path / "new")
    for name in ("config.json", "tokenizer.json"):
        before, after = (json.loads((one / name).read_text()) for one in (folders("bert"), output))
        assert after.items() >= before.items() if name == "config.json" else after == before
    assert not [path for path in output.rglob("*") if path.suffix in (".bin", ".pkl", ".pt")]
    assert len({path.stat().st_mode for path in output.iterdir() if path.is_file()}) == 1


def test_training_record_is_ignored_with_other_weights(tmp_path, folders):
    output = train_and_save(folders("bert"), tmp_path / "new")
    found = read_training(output)
    assert found is not None
    assert found["identity"] == {"seed": 0}
    assert found["weights"] == find_model(str(output)).weights
    train_and_save(folders("bert"), tmp_path / "other", "full")
    (output / "model.safetensors").write_bytes(
        (tmp_path / "other" / "model.safetensors").read_bytes()
    )
    assert read_training(output) is None
    assert read_training(folders("bert")) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [("[]", "expected what"), ('{"format": 9}', "upgrade"), ("{", "cannot be read")],
)
def test_a_record_of_another_form_is_refused(tmp_path, content, message):
    (tmp_path / TRAINING).write_text(content)
    with pytest.raises(ModelError, match=message):
        read_training(tmp_path)


def test_a_folder_that_holds_something_else_is_refused(tmp_path, folders):
    encoder = TrainableEncoder.load(str(folders("bert")), device="cpu")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"found a\.txt in it; change --output"):
        write_encoder(tmp_path / "notes", encoder, {})
    assert (tmp_path / "notes/a.txt").read_text() == "mine"
