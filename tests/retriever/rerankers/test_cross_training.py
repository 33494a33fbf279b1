"""Training a cross-encoder, against a plain loop over triples."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from retriever.errors import BadInputError, ConfigError
from retriever.rerankers.cross_training import train_cross_encoder
from retriever.rerankers.scorers import CrossHead
from retriever.rerankers.settings import CrossTrainingSettings
from retriever.training.loop import Step, Trained, kept_epoch
from retriever.training.sampling import (
    JudgedPools,
    SamplingSettings,
    epoch_batches,
)
from tests.retriever.rerankers.cross_samples import (
    PASSAGES,
    POOLS,
    QUESTIONS,
    SETTINGS,
    Training,
    cross_encoder,
    same,
    share_right,
    still,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def epochs_of(settings):
    return [
        list(
            epoch_batches(POOLS, settings.sampling, np.random.default_rng([settings.seed, number]))
        )
        for number in range(settings.epochs)
    ]


class Plain:
    """The same model trained the plain way: each pair alone, each triple in a loop."""

    def __init__(self, folder, settings):
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.transformer = AutoModel.from_pretrained(folder).train()
        torch.manual_seed(settings.seed)
        self.head = CrossHead(16, dropout=0.0)

    def score(self, question, passage):
        inputs = self.tokenizer(question, passage, return_tensors="pt")
        states = self.transformer(**inputs).last_hidden_state
        scores = self.head(states[:, 0])
        return scores[0]

    def loss(self, batch, settings):
        if settings.loss == "pointwise":
            losses = []
            for question, passage, relevant in zip(
                batch.question, batch.passage, batch.relevant, strict=True
            ):
                chance = torch.sigmoid(self.score(QUESTIONS[question], PASSAGES[passage]))
                losses.append(-torch.log(chance if relevant else 1 - chance))
            return torch.stack(losses).mean()
        if settings.loss == "softmax":
            return self.softmax(batch)
        losses = []
        for good, bad in zip(batch.positive, batch.negative, strict=True):
            question = QUESTIONS[batch.question[good]]
            assert batch.question[good] == batch.question[bad]
            better = self.score(question, PASSAGES[batch.passage[good]])
            worse = self.score(question, PASSAGES[batch.passage[bad]])
            losses.append(torch.clamp(settings.margin - better + worse, min=0))
        return torch.stack(losses).mean()

    def softmax(self, batch):
        scores = torch.stack(
            [
                self.score(QUESTIONS[question], PASSAGES[passage])
                for question, passage in zip(batch.question, batch.passage, strict=True)
            ]
        )
        losses = []
        for good in np.unique(batch.positive):
            pool = [good, *batch.negative[batch.positive == good]]
            losses.append(-torch.log_softmax(scores[pool], 0)[0])
        return torch.stack(losses).mean()

    def train(self, settings):
        """The loss of each step."""
        named = dict(self.transformer.named_parameters())
        matrices = [one for one in named.values() if one.ndim == 2]
        vectors = [one for one in named.values() if one.ndim == 1]
        self.transformer.embeddings.word_embeddings.weight.requires_grad_(False)
        if settings.trained.part == "last":
            self.transformer.requires_grad_(False)
            for layer in self.transformer.encoder.layer[-settings.trained.size :]:
                layer.requires_grad_(True)
        head, biases = (
            [one for one in self.head.parameters() if one.ndim == ndim] for ndim in (2, 1)
        )
        optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "lr": settings.learning_rate},
                {"params": vectors, "lr": settings.learning_rate, "weight_decay": 0},
                {"params": head, "lr": settings.head_learning_rate},
                {"params": biases, "lr": settings.head_learning_rate, "weight_decay": 0},
            ],
            weight_decay=settings.weight_decay,
        )
        total = sum(map(len, epochs_of(settings)))
        rising = max(1, settings.warmup * total)
        rates = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda done: min(1, (done + 1) / rising) * (total - done) / total
        )
        found = []
        every = [*self.transformer.parameters(), *self.head.parameters()]
        passed = []
        for batches in epochs_of(settings):
            for batch in batches:
                loss = self.loss(batch, settings)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(every, settings.clip)
                optimizer.step()
                rates.step()
                found.append(loss.item())
                passed.append([one.detach().double() for one in every])
        kept = [min(settings.averaging, step / (step + 1)) for step in range(len(passed))]
        shares = [(1 - one) * math.prod(kept[i + 1 :]) for i, one in enumerate(kept)]
        assert math.isclose(sum(shares), 1)
        with torch.no_grad():
            for one, values in zip(every, zip(*passed, strict=True), strict=True):
                one.copy_(sum(share * value for share, value in zip(shares, values, strict=True)))
        return found


@pytest.fixture(scope="module")
def quiet_bert(models, tmp_path_factory):
    return still(tmp_path_factory.mktemp("still") / "bert", models("bert"))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"warmup": 0.6, "clip": 0.02},
        {"margin": 0.3, "weight_decay": 0.5, "warmup": 0.0},
        {"averaging": 0.0},
        {"averaging": 0.5},
        {"loss": "softmax"},
        {"loss": "pointwise"},
        {"trained": Trained("last", 2)},
    ],
    ids=str,
)
def test_training_is_that_of_a_plain_loop_over_triples(quiet_bert, changed):
    settings = replace(
        SETTINGS, epochs=2, learning_rate=5e-4, head_learning_rate=2e-3, patience=2, **changed
    )
    expected = Plain(quiet_bert, settings)
    losses = expected.train(settings)
    model = cross_encoder(quiet_bert, training=True, dropout=0.0)
    # Epochs get better and better: the last one is kept.
    better = count()
    curve = train_cross_encoder(
        model, QUESTIONS, PASSAGES, POOLS, settings, lambda _: float(next(better))
    )
    in_epoch = len(losses) // 2
    np.testing.assert_allclose(
        [one.loss for one in curve[1:]],
        [np.mean(losses[:in_epoch]), np.mean(losses[in_epoch:])],
        atol=2e-5,
    )
    expected.transformer.eval()
    with torch.inference_mode():
        plain = [expected.score(QUESTIONS[0], passage).item() for passage in PASSAGES]
    found = model.score([QUESTIONS[0]] * len(PASSAGES), PASSAGES)
    # No loss depends on what all scores have in common, and rounding moves it.
    np.testing.assert_allclose(found - found.mean(), plain - np.mean(plain), atol=2e-4)
    # It is no coincidence: training has changed them by far more.
    before = Plain(quiet_bert, settings)
    with torch.inference_mode():
        start = [before.score(QUESTIONS[0], passage).item() for passage in PASSAGES]
    assert np.abs((found - found.mean()) - (start - np.mean(start))).max() > 0.02


def test_active_is_the_share_of_triples_that_had_a_loss(quiet_bert):
    # At a rate of 0 nothing changes, and every score can be had afterwards.
    settings = replace(SETTINGS, learning_rate=0.0, head_learning_rate=0.0, margin=0.05, epochs=1)
    model = cross_encoder(quiet_bert, training=True, dropout=0.0)
    _, epoch = train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, lambda _: 0.0)
    losses, active = [], []
    for batch in epochs_of(settings)[0]:
        scores = model.score(
            [QUESTIONS[row] for row in batch.question], [PASSAGES[row] for row in batch.passage]
        )
        each = np.maximum(0, 0.05 - scores[batch.positive] + scores[batch.negative])
        losses.append(each.mean())
        active.append((each > 0).mean())
    assert 0 < np.mean(active) < 1
    assert epoch.loss == pytest.approx(np.mean(losses), abs=1e-6)
    assert epoch.active == pytest.approx(np.mean(active))


@pytest.mark.parametrize("loss", ["hinge", "softmax", "pointwise"])
def test_what_can_be_told_apart_is_learnt(models, loss):
    settings = replace(SETTINGS, epochs=12, patience=12, loss=loss)
    found, curve = Training(models("bert"), settings=settings)()
    assert curve[0].dev < 1
    assert max(one.dev for one in curve) == 1
    assert curve[-1].loss < 0.8 * curve[1].loss
    assert all(one.isfinite().all() for one in found.values())


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "distilbert", "albert"])
@pytest.mark.parametrize("words", [False, True])
def test_all_but_word_embeddings_and_the_pooler_is_trained(name, words, models):
    model = cross_encoder(models(name), training=True)
    before = weights(model)
    settings = replace(SETTINGS, epochs=1, train_word_embeddings=words)
    train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, lambda _: 0.0)
    same_as_before = {
        one for one, value in weights(model).items() if torch.equal(value, before[one])
    }
    embedded = {one for one in before if "word_embedding" in one}
    assert len(embedded) == 1
    # No score depends on the rest of these.
    unread = {one for one in before if "pooler" in one or "mask_emb" in one}
    assert same_as_before == unread | (set() if words else embedded)


@pytest.mark.parametrize(
    ("trained", "changed"),
    [
        ("last:1", r"encoder\.layer\.2\."),
        ("lora:2", r"encoder\.layer\.\d\..*(query|key|value|dense)\.weight"),
    ],
)
def test_only_the_weights_that_are_asked_for_are_trained(models, trained, changed):
    model = cross_encoder(models("bert"), training=True)
    before = weights(model)
    settings = replace(SETTINGS, trained=Trained.parse(trained))
    train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, share_right)
    # Adapters are merged: the parameters are those of an ordinary model.
    after = weights(model)
    assert after.keys() == before.keys()
    found = {name for name in before if not torch.equal(after[name], before[name])}
    asked = {name for name in before if re.match(rf"head\.|backbone\.{changed}", name)}
    assert found == asked


@pytest.mark.parametrize(
    ("tolerance", "scripted", "kept"),
    [
        (0.0, [0.0, 0.1, 0.5, 0.5, 0.2, 0.4], 3),
        (0.1, [0.0, 0.1, 0.5, 0.5, 0.2, 0.4], 5),
        (0.1, [0.0, 0.5, 0.45, 0.3, 0.55, 0.44], 4),
        # A model whose MLP is random is not kept, however good it is by chance.
        (0.0, [0.9, 0.5, 0.4, 0.3], 1),
    ],
)
def test_the_last_epoch_near_the_best_is_kept(models, tolerance, scripted, kept):
    seen = []

    def dev(model):
        seen.append(weights(model))
        return scripted[len(seen) - 1]

    settings = replace(SETTINGS, epochs=5, patience=2, tolerance=tolerance)
    found, curve = Training(models("bert"), settings=settings)(dev=dev)
    assert [one.dev for one in curve] == scripted
    assert [one.epoch for one in curve] == list(range(len(scripted)))
    assert [same(found, one) for one in seen] == [one.epoch == kept for one in curve]
    told = kept_epoch(curve, tolerance, untrained=False)
    assert told is not None
    assert told.epoch == kept


def test_each_step_and_epoch_is_told(models):
    steps = []
    epochs = []
    settings = replace(SETTINGS, epochs=2)
    _, curve = Training(models("bert"), settings=settings)(
        on_step=steps.append, on_epoch=epochs.append
    )
    assert tuple(epochs) == curve
    pairs = [len(batch.question) for batches in epochs_of(settings) for batch in batches]
    assert steps == [Step(number, len(pairs), n) for number, n in enumerate(pairs, start=1)]


def test_a_seed_decides_every_bit(models, undisturbed):
    # What was drawn before does not matter, and what is drawn afterwards is not changed.
    torch.manual_seed(77)
    expected = torch.rand(3)
    torch.manual_seed(77)
    found, curve = Training(models("bert"))()
    assert torch.equal(torch.rand(3), expected)
    assert same(found, undisturbed[0])
    assert curve == undisturbed[1]
    other, _ = Training(models("bert"), settings=replace(SETTINGS, seed=1))()
    assert not same(found, other)


def test_bfloat16_trains_float32_weights(models):
    settings = replace(SETTINGS, epochs=6, patience=6, precision="bfloat16")
    model = cross_encoder(models("bert"), training=True)
    curve = train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, share_right)
    assert model.autocast
    assert {one.dtype for one in weights(model).values()} == {torch.float32}
    assert curve[-1].loss < curve[1].loss - 0.1
    single = cross_encoder(models("bert"), training=True)
    other = train_cross_encoder(
        single,
        QUESTIONS,
        PASSAGES,
        POOLS,
        replace(settings, precision="float32"),
        share_right,
    )
    assert not single.autocast
    assert curve[1].loss != other[1].loss
    assert curve[1].loss == pytest.approx(other[1].loss, abs=0.05)


def test_negatives_that_all_happen_to_answer_are_no_loss(models):
    pools = JudgedPools.of([[0]], [[]], 1)
    sampling = SamplingSettings("random", count=2, questions=1)
    model = cross_encoder(models("bert"), training=True)
    curve = train_cross_encoder(
        model, ["w1"], ["w2"], pools, replace(SETTINGS, sampling=sampling), lambda _: 1.0
    )
    assert {(one.loss, one.active) for one in curve} == {(0.0, 0.0)}


def test_the_pointwise_loss_learns_from_questions_without_a_relevant_passage(
    quiet_bert,
):
    pools = JudgedPools.of([[0], []], [[1], [2]], 3)
    texts = (["w1", "w2"], ["w3", "w4", "w5"])
    settings = replace(
        SETTINGS, learning_rate=0.0, head_learning_rate=0.0, epochs=1, loss="pointwise"
    )
    model = cross_encoder(quiet_bert, training=True, dropout=0.0)
    _, epoch = train_cross_encoder(model, *texts, pools, settings, lambda _: 0.0)
    scores = model.score(["w1", "w1", "w2"], ["w3", "w4", "w5"])
    signs = np.array([-1, 1, 1])
    assert epoch.loss == pytest.approx(np.log1p(np.exp(signs * scores)).mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("loss", "mse", "loss: expected hinge, softmax or pointwise, found 'mse'"),
        ("layer_decay", 0.0, "layer_decay: expected more than 0 and at most 1, found 0"),
        ("layer_decay", 1.5, "layer_decay: expected more than 0 and at most 1, found 1.5"),
        ("layer_decay", float("nan"), "layer_decay: expected more than 0 and at most 1, found nan"),
        ("margin", -0.1, "margin: expected 0 or more, found -0.1"),
        ("learning_rate", -1.0, "learning_rate: expected 0 or more, found -1"),
        ("head_learning_rate", float("nan"), "head_learning_rate: expected 0 or more, found nan"),
        ("weight_decay", -1.0, "weight_decay: expected 0 or more, found -1"),
        ("warmup", 1.5, "warmup: expected 0 to 1, found 1.5"),
        ("averaging", 1.0, "averaging: expected 0 to below 1, found 1"),
        ("tolerance", -0.5, "tolerance: expected 0 or more, found -0.5"),
        ("epochs", 0, "epochs: expected 1 or more, found 0"),
        ("patience", 0, "patience: expected 1 or more, found 0"),
        ("seed", -1, "seed: expected 0 or more, found -1"),
        ("clip", 0.0, "clip: expected more than 0, found 0"),
    ],
)
def test_a_setting_that_is_out_of_range_is_refused(name, value, message):
    with pytest.raises(ConfigError) as caught:
        replace(SETTINGS, **{name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize("loss", ["softmax", "pointwise"])
def test_a_margin_is_refused_with_a_loss_that_has_none(loss):
    with pytest.raises(ConfigError, match=f"the hinge loss, found loss {loss}; leave one"):
        CrossTrainingSettings(loss=loss, margin=0.5)


def rates_of(folder, settings, monkeypatch):
    """The learning rate of each parameter by its name, before warm-up and decay."""
    made = []
    original = torch.optim.AdamW

    def adamw(*arguments, **options):
        made.append(original(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(torch.optim, "AdamW", adamw)
    model = cross_encoder(folder, training=True)
    train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, lambda _: 0.0)
    named = [*model.backbone.model.named_parameters(), *model.head.named_parameters()]
    names = {id(one): name for name, one in named}
    # Adapters were merged, and have no name any more.
    return {
        names.get(id(one), str(id(one))): group["peak"]
        for group in made[0].param_groups
        for one in group["params"]
    }


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("bert", ["encoder.layer.0.", "encoder.layer.1.", "encoder.layer.2."]),
        ("distilbert", ["transformer.layer.0.", "transformer.layer.1.", "transformer.layer.2."]),
        # One layer, computed three times.
        ("albert", ["encoder.albert_layer_groups.0."]),
    ],
)
def test_rates_fall_by_a_factor_from_each_layer_to_the_one_below(models, monkeypatch, name, layers):
    settings = replace(SETTINGS, epochs=1, layer_decay=0.5)
    found = rates_of(models(name), settings, monkeypatch)
    seen = set()
    for parameter, rate in found.items():
        place = [parameter.startswith(one) for one in [*layers, "dense.", "out."]]
        if any(place[-2:]):
            assert rate == settings.head_learning_rate
            continue
        layer = place.index(True) + 1 if any(place) else 0
        assert layer or "embed" in parameter
        assert rate == pytest.approx(settings.learning_rate * 0.5 ** (len(layers) - layer))
        seen.add(layer)
    assert seen == set(range(len(layers) + 1))


def test_adapters_learn_at_ten_times_the_rate_of_their_layer(models, monkeypatch):
    settings = replace(SETTINGS, epochs=1, layer_decay=0.4, trained=Trained("lora", 2))
    found = rates_of(models("bert"), settings, monkeypatch)
    rates = [10 * settings.learning_rate * 0.4**below for below in (2, 1, 0)]
    assert sorted(set(found.values())) == pytest.approx(
        sorted([*rates, settings.head_learning_rate])
    )


def test_rates_that_decay_need_layers_that_are_known(models):
    model = cross_encoder(models("modernbert"), training=True)
    settings = replace(SETTINGS, epochs=1, layer_decay=0.9)
    with pytest.raises(ConfigError, match="the layers of a modernbert model cannot be read"):
        train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, settings, lambda _: 0.0)


@pytest.mark.parametrize("rate", [1e20, 1e30])
def test_a_loss_that_is_not_finite_ends_the_training(quiet_bert, rate):
    broken = replace(SETTINGS, learning_rate=rate, warmup=0.0, epochs=2)
    model = cross_encoder(quiet_bert, training=True)
    with pytest.raises(BadInputError, match=r"expected a finite loss, found \S+ at step \d+"):
        train_cross_encoder(model, QUESTIONS, PASSAGES, POOLS, broken, lambda _: 0.5)
