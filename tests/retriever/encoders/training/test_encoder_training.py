"""Training an encoder: against a plain loop, and what each setting does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retriever.encoders.training.model import TrainableEncoder
from retriever.encoders.training.trainer import (
    EncoderTrainingSettings,
    LabeledExamples,
    ScoredExamples,
    paired_texts,
)
from retriever.errors import BadInputError, ConfigError
from retriever.training.loop import Epoch, Trained
from retriever.training.sampling import SamplingSettings, epoch_batches
from tests.retriever.encoders.training.encoder_samples import (
    ANCHORS,
    LABELED,
    NEGATIVES,
    POSITIVES,
    RANKED,
    SCORED,
    Training,
    gap,
    same,
    settings,
    weights,
)
from tests.retriever.rerankers.cross_samples import still

pytestmark = pytest.mark.usefixtures("one_thread")
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def bert(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout."""
    return still(tmp_path_factory.mktemp("still") / "bert", folders("bert"))


class Plain:
    """The same training in transformers alone, a batch at a time, texts one by one."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).train()

    def vector(self, text: str) -> torch.Tensor:
        states = self.model(**self.tokenizer(text, return_tensors="pt")).last_hidden_state
        vector: torch.Tensor = states[0].mean(dim=0)
        return vector

    def mnr(self, batch: Any) -> torch.Tensor:
        texts = [RANKED.passages[row] for row in dict.fromkeys(batch.passage.tolist())]
        keys = torch.stack([self.vector(text) for text in texts])
        losses = []
        for row in dict.fromkeys(batch.question.tolist()):
            query = self.vector(ANCHORS[row])
            cosines = torch.nn.functional.cosine_similarity(query[None], keys)
            target = torch.tensor(texts.index(POSITIVES[row]))
            losses.append(torch.nn.functional.cross_entropy(20 * cosines, target))
        return torch.stack(losses).mean()

    def train(self, asked: EncoderTrainingSettings) -> list[float]:
        """The loss of each step."""
        self.model.embeddings.word_embeddings.weight.requires_grad_(False)
        every = [one for name, one in self.model.named_parameters() if "pooler" not in name]
        groups = [
            {"params": [one for one in every if one.ndim == 2], "weight_decay": 0.01},
            {"params": [one for one in every if one.ndim == 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=asked.learning_rate)
        total, done, found = 3 * asked.epochs, 0, []
        for epoch in range(asked.epochs):
            chance = np.random.default_rng([asked.seed, epoch])
            for batch in epoch_batches(RANKED.pools, asked.sampling, chance):
                rising = min(1, (done + 1) / max(1, asked.warmup * total))
                for group in optimizer.param_groups:
                    group["lr"] = asked.learning_rate * rising * (total - done) / total
                loss = self.mnr(batch)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(every, asked.clip)
                optimizer.step()
                found.append(loss.item())
                done += 1
        return found


def test_it_trains_as_a_plain_loop_does(bert: Path) -> None:
    asked = settings(averaging=0.0)
    # Each epoch is kept: dev rises.
    scores = iter(range(10))
    encoder, curve = Training(bert, settings=asked)(dev=lambda _: float(next(scores)))
    plain = Plain(bert)
    losses = np.array(plain.train(asked)).reshape(3, 3).mean(axis=1)
    assert [one.loss for one in curve[1:]] == pytest.approx(losses, abs=1e-5)
    for name, expected in plain.model.named_parameters():
        if name.endswith("key.bias"):
            # Attention does not depend on it: Adam makes steps of rounding noise.
            continue
        torch.testing.assert_close(weights(encoder)[name], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("objective", "examples"),
    [("mnr", RANKED), ("hinge", RANKED), ("sts", SCORED)],
)
@pytest.mark.parametrize("trained", ["full", "last:1", "lora:4"])
def test_objectives_of_the_cosine_bring_positives_nearer(
    bert: Path, objective: Any, examples: Any, trained: str
) -> None:
    asked = settings(
        objective=objective,
        trained=Trained.parse(trained),
        epochs=6,
        patience=6,
        head_learning_rate=1e-2,
    )
    encoder, curve = Training(bert, examples=examples, settings=asked)()
    assert [one.epoch for one in curve] == list(range(7))
    assert max(one.dev for one in curve[1:]) > curve[0].dev + 0.02
    assert gap(encoder) == pytest.approx(max(one.dev for one in curve), abs=1e-6)


def test_the_classifier_learns_the_labels(bert: Path) -> None:
    def accuracy(encoder: TrainableEncoder) -> float:
        return float((encoder.classify(LABELED.left, LABELED.right) == LABELED.labels).mean())

    asked = settings(objective="nli", epochs=15, head_learning_rate=2e-2, patience=15)
    _, curve = Training(bert, examples=LABELED, settings=asked)(dev=accuracy)
    assert curve[0].dev < 0.8
    assert max(one.dev for one in curve) >= 0.9


def test_what_is_not_trained_stays(bert: Path) -> None:
    before = weights(TrainableEncoder.load(str(bert), device="cpu"))
    scores = iter(range(10))
    encoder, _ = Training(bert, settings=settings(trained=Trained("last", 1)))(
        dev=lambda _: float(next(scores))
    )
    changed = {name for name, one in weights(encoder).items() if not torch.equal(one, before[name])}
    assert changed
    assert {name.split(".")[2] for name in changed} == {"2"}


@pytest.mark.parametrize("trained", ["full", "lora:2"])
def test_without_a_better_epoch_the_encoder_is_what_it_was(bert: Path, trained: str) -> None:
    before = TrainableEncoder.load(str(bert), device="cpu")
    scores = iter([0.5, 0.4, 0.5, 0.3])
    encoder, curve = Training(bert, settings=settings(trained=Trained.parse(trained)))(
        dev=lambda _: next(scores)
    )
    assert same(weights(encoder), weights(before))
    assert curve[0] == Epoch(0, 0.0, 0.0, 0.5)


def test_the_best_epoch_is_kept(bert: Path) -> None:
    found: list[dict[str, torch.Tensor]] = []
    scores = iter([0.1, 0.2, 0.9, 0.3])

    def dev(encoder: TrainableEncoder) -> float:
        found.append(weights(encoder))
        return next(scores)

    encoder, _ = Training(bert)(dev=dev)
    assert same(weights(encoder), found[2])


def test_training_stops_when_patience_ends(bert: Path) -> None:
    scores = iter([0.5, 0.4, 0.3])
    _, curve = Training(bert, settings=settings(epochs=9, patience=2))(dev=lambda _: next(scores))
    assert len(curve) == 3


def test_equal_seeds_give_equal_weights_and_others_do_not(folders: Folders) -> None:
    first, again, other = (
        weights(Training(folders("bert"), settings=settings(seed=seed))()[0]) for seed in (1, 1, 2)
    )
    assert same(first, again)
    assert not same(first, other)


def test_random_numbers_of_the_caller_go_on_as_before(folders: Folders) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    Training(folders("bert"))()
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("trained", ["full", "last:1", "lora:2"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_parts_that_are_computed_again_give_the_same_weights(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, trained: str, precision: Any
) -> None:
    asked = settings(trained=Trained.parse(trained), precision=precision)
    expected, curve = Training(folders("bert"), settings=asked)()
    monkeypatch.setattr("retriever.encoders.training.model._MOST_STATES", 0)
    found, again = Training(folders("bert"), settings=asked)()
    assert same(weights(found), weights(expected))
    assert again == curve


def test_bfloat16_rounds_products_and_keeps_weights_in_float32(bert: Path) -> None:
    exact, _ = Training(bert)()
    rounded, _ = Training(bert, settings=settings(precision="bfloat16"))()
    assert all(one.dtype == torch.float32 for one in weights(rounded).values())
    assert not same(weights(exact), weights(rounded))
    np.testing.assert_allclose(exact.encode(ANCHORS), rounded.encode(ANCHORS), rtol=0, atol=0.15)


@pytest.mark.parametrize(
    ("objective", "examples", "fitting"),
    [
        ("nli", SCORED, "choose sts"),
        ("sts", RANKED, "choose mnr or hinge"),
        ("mnr", LABELED, "choose nli"),
        ("hinge", SCORED, "choose sts"),
    ],
)
def test_an_objective_that_does_not_fit_the_data_is_refused(
    bert: Path, objective: Any, examples: Any, fitting: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^objective: {objective} is trained on .*{fitting}$"):
        Training(bert, examples=examples, settings=settings(objective=objective))()


def test_examples_that_say_nothing_are_refused() -> None:
    with pytest.raises(BadInputError, match="different scores"):
        ScoredExamples.of(["a", "b"], ["c", "d"], np.ones(2))
    with pytest.raises(BadInputError, match="at least two classes"):
        LabeledExamples.of(["a", "b"], ["c", "d"], ["yes", "yes"])


def test_scores_of_any_scale_become_zero_to_one() -> None:
    found = ScoredExamples.of(["a"] * 3, ["b"] * 3, np.array([1.0, 2.0, 5.0]))
    assert found.scores.tolist() == [0.0, 0.25, 1.0]


def test_equal_texts_are_one_anchor_or_passage_and_no_negative_of_their_own() -> None:
    found = paired_texts(["a", "a", "b"], ["x", "y", "x"], ["z", "x", None])
    assert found.questions == ["a", "b"]
    assert found.passages == ["x", "y", "z"]
    rows = np.arange(2)
    assert found.pools.relevant(rows, np.arange(3)).tolist() == [
        [True, True, False],
        [True, False, False],
    ]
    assert found.pools.negatives.tolist() == [2]


def test_anchors_without_negatives_are_trained_by_mnr_alone(bert: Path) -> None:
    bare = paired_texts(ANCHORS, POSITIVES, [None] * len(ANCHORS))
    _, curve = Training(bert, examples=bare)()
    assert curve[1].loss > 0
    with pytest.raises(BadInputError, match="found none"):
        Training(bert, examples=bare, settings=settings(objective="hinge"))()


def test_texts_are_cut_at_the_window_of_training(bert: Path) -> None:
    long = paired_texts(
        [f"{one} w3" for one in ANCHORS], [f"{one} w4 w5 w6 w7 w8" for one in POSITIVES], NEGATIVES
    )
    cut = paired_texts(
        [f"{one} w3" for one in ANCHORS], [f"{one} w4 w5 w6" for one in POSITIVES], NEGATIVES
    )
    short, same_text = (
        Training(bert, examples=one, settings=settings(max_length=8))()[0] for one in (long, cut)
    )
    assert same(weights(short), weights(same_text))
    assert short.spec.max_length == 64


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("objective", "triplet", "objective: expected nli, sts, mnr, hinge, found 'triplet'"),
        ("scale", 0.0, "scale: expected more than 0, found 0"),
        ("margin", -1.0, "margin: expected more than 0, found -1"),
        ("max_length", 4, "max_length: expected 8 or more, found 4"),
        ("epochs", 0, "epochs: expected 1 or more, found 0"),
    ],
)
def test_a_setting_that_is_out_of_range_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**{name: value})
    assert str(caught.value) == message


def test_the_hinge_needs_negatives_of_the_question() -> None:
    with pytest.raises(ConfigError, match=r"^negatives: a pairwise loss"):
        settings(objective="hinge", sampling=SamplingSettings(negatives="batch"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("::lc:0,2", "expected an encoder of the last layer"),
        ("::dtype=bfloat16", "expected an encoder of the last layer"),
        ("::pooling=sep", "pools by mean, max or cls, found sep"),
        ("::static=average", "a static encoder has no weights to train"),
    ],
)
def test_an_encoder_that_a_folder_cannot_hold_is_refused(
    bert: Path, asked: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainableEncoder.load(f"{bert}{asked}", device="cpu")
