"""A cross-encoder's scores against sentence-transformers' and against plain transformers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from retriever.encoders.computing import BATCH_PIECES, token_batches
from retriever.rerankers.cross import CrossEncoder
from tests.retriever.encoders.architectures import CLOSE, DEPTHS, OTHERS
from tests.retriever.rerankers.cross_samples import cross_encoder

pytestmark = pytest.mark.usefixtures("one_thread")
Models = Callable[[str], Path]

SHALLOW = [name for name in (*DEPTHS, *OTHERS) if name not in ("bert12", "roberta24")]
LONG = " ".join(f"w{number}" for number in range(40))
# Both cut and whole at a window of 30, of many lengths, so that batches are padded.
PAIRS = [
    ("w1 w2 w3?", "w7 w3, w8"),
    ("w4", "w1"),
    ("Hello", LONG),
    (LONG, "w9 w2"),
    (LONG, LONG + " w1"),
    ("w5 w9 w30", "w2 w11 w0 w39 w4 w21 w8"),
    ("", "w3"),
    ("w3", ""),
    ("w3", "w1"),
]
QUESTIONS, TEXTS = [left for left, _ in PAIRS], [right for _, right in PAIRS]
WINDOW = 30
CUT = 3


def plain(folder: Path, model: CrossEncoder) -> NDArray[np.float64]:
    """Each pair alone through transformers, and the head as numpy writes it."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    transformer = AutoModel.from_pretrained(folder).eval()
    head = {name: one.double().numpy() for name, one in model.head.state_dict().items()}
    scores = []
    for left, right in PAIRS:
        inputs = tokenizer(
            # Outside a batch an empty passage would be taken for a missing one.
            [left],
            [right],
            truncation=True,
            max_length=model.max_length,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = transformer(**inputs).last_hidden_state[0].double().numpy()
        ids = inputs["input_ids"][0].tolist()
        first = tokenizer.cls_token_id
        cls = states[ids.index(first) if first in ids else 0]
        hidden = np.tanh(head["dense.weight"] @ cls + head["dense.bias"])
        scores.append((head["out.weight"] @ hidden + head["out.bias"])[0])
    return np.array(scores)


@pytest.mark.parametrize(
    "size",
    [
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
    ],
    ids=["tiny", "shape of all-MiniLM-L6-v2"],
)
def test_scores_are_those_of_sentence_transformers(
    tmp_path: Path, models: Models, size: dict[str, int]
) -> None:
    from sentence_transformers import CrossEncoder as Theirs
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(models("bert"))
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer),
        intermediate_size=4 * size["hidden_size"],
        max_position_embeddings=64,
        initializer_range=0.1,
        num_labels=1,
        **size,
    )
    whole = BertForSequenceClassification(config).eval()
    whole.save_pretrained(tmp_path)
    model = cross_encoder(tmp_path, max_length=WINDOW)
    model.head.dense.load_state_dict(whole.bert.pooler.dense.state_dict())
    model.head.out.load_state_dict(whole.classifier.state_dict())
    theirs = Theirs(str(tmp_path), device="cpu", max_length=WINDOW)
    expected = theirs.predict(PAIRS, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    found = model.score(QUESTIONS, TEXTS)
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.parametrize("name", SHALLOW)
def test_scores_are_those_of_transformers_and_a_head_beside_it(name: str, models: Models) -> None:
    model = cross_encoder(models(name), max_length=WINDOW)
    found = model.score(QUESTIONS, TEXTS)
    assert found.dtype == np.float32
    assert np.ptp(found) > 0.01
    np.testing.assert_allclose(found, plain(models(name), model), **CLOSE)


@pytest.mark.parametrize("name", ["bert", "xlnet", "roberta"])
def test_a_model_that_is_trained_scores_as_one_that_is_not(name: str, models: Models) -> None:
    quick = cross_encoder(models(name), max_length=WINDOW)
    model = cross_encoder(models(name), max_length=WINDOW, training=True)
    found = model.score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(found, quick.score(QUESTIONS, TEXTS), **CLOSE)
    # Dropout is off while it scores, and on afterwards.
    np.testing.assert_array_equal(model.score(QUESTIONS, TEXTS), found)
    assert model.head.training
    assert model.backbone.model.training
    assert not quick.head.training
    assert not quick.backbone.model.training


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "albert"])
def test_a_pair_gets_the_same_score_in_any_batch_and_order(name: str, models: Models) -> None:
    model = cross_encoder(models(name), max_length=WINDOW)
    alone = np.array([model.score([left], [right])[0] for left, right in PAIRS])
    chance = random.Random(name)
    for size in (2, 9, 90):
        rows = chance.choices(range(len(PAIRS)), k=size)
        found = model.score([QUESTIONS[row] for row in rows], [TEXTS[row] for row in rows])
        np.testing.assert_allclose(found, alone[rows], **CLOSE)


def test_question_and_passage_do_not_change_places(models: Models) -> None:
    model = cross_encoder(models("bert"))
    assert abs(model.score(["w1"], ["w2"]) - model.score(["w2"], ["w1"])) > 1e-4


def test_nothing_gives_no_scores(models: Models) -> None:
    model = cross_encoder(models("bert"))
    scores = model.score([], [])
    assert scores.shape == (0,)
    assert scores.dtype == np.float32
    assert model.cut == 0


def test_pairs_are_counted_that_are_cut_and_only_those(models: Models) -> None:
    model = cross_encoder(models("bert"), max_length=WINDOW)
    model.score(QUESTIONS, TEXTS)
    assert model.cut == CUT
    model.score(QUESTIONS, TEXTS)
    assert model.cut == 2 * CUT
    # [CLS], [SEP] and [SEP] leave room for 27 words.
    for words, cut in ((26, 0), (27, 1)):
        model.cut = 0
        model.score(["w1"], [" ".join(["w2"] * words)])
        assert model.cut == cut


def test_of_a_pair_that_is_too_long_the_longer_text_loses_its_end(models: Models) -> None:
    model = cross_encoder(models("bert"), max_length=WINDOW)
    words = LONG.split()
    for left, right, shorter in (
        (LONG, "w9 w2", (" ".join(words[:25]), "w9 w2")),
        ("w9 w2", LONG, ("w9 w2", " ".join(words[:25]))),
    ):
        expected = model.score([shorter[0]], [shorter[1]])
        np.testing.assert_allclose(model.score([left], [right]), expected, **CLOSE)
    assert model.cut == 2


def test_each_batch_is_told_when_it_is_done(models: Models) -> None:
    model = cross_encoder(models("bert"), max_length=WINDOW)
    done: list[int] = []
    model.score(QUESTIONS * 20, TEXTS * 20, done.append)
    lengths = [len(ids) for ids in model.backbone.tokenize_pairs(QUESTIONS, TEXTS, WINDOW).ids]
    batches = token_batches(lengths * 20, BATCH_PIECES["float32"])
    assert done == [len(rows) for rows in batches]
    assert len(done) > 1


@pytest.mark.parametrize("way", ["dtype", "autocast"])
def test_bfloat16_is_close_to_float32(way: str, models: Models) -> None:
    expected = cross_encoder(models("bert"), max_length=WINDOW).score(QUESTIONS, TEXTS)
    if way == "dtype":
        model = cross_encoder(models("bert"), max_length=WINDOW, dtype="bfloat16")
    else:
        model = cross_encoder(models("bert"), max_length=WINDOW, training=True)
        model.autocast = True
    found = model.score(QUESTIONS, TEXTS)
    assert found.dtype == np.float32
    assert (found != expected).any()
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.1)
    assert np.corrcoef(found, expected)[0, 1] > 0.98
