"""Which layers are computed and which hidden states are in memory, for every architecture."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules import module as torch_module

from tests.retriever.encoders.architectures import DEPTHS, architectures

# The class whose forward pass is one layer.
LAYER = {
    "bert": "BertLayer",
    "roberta": "RobertaLayer",
    "xlnet": "XLNetLayer",
    "distilbert": "TransformerBlock",
    "electra": "ElectraLayer",
    "mpnet": "MPNetLayer",
    "albert": "AlbertLayer",
}

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def finished(show):
    """Within the block, `show` is called with each module and its output as its pass ends."""
    handle = torch_module.register_module_forward_hook(lambda one, _, output: show(one, output))
    try:
        yield
    finally:
        handle.remove()


def torch_encoder(load, name, settings):
    return load(name, f"backend=torch::{settings}".removesuffix("::"))


def layer_class(name):
    return LAYER[name.partition("-")[0].rstrip("0123456789")]


@architectures
@pytest.mark.parametrize(
    ("settings", "highest"),
    [("lc:0", 0), ("layers=2,0::fusion=concat", 2), ("", -1)],
)
def test_no_layer_above_the_highest_read_is_computed_and_no_pooler(name, settings, highest, load):
    encoder, ran = torch_encoder(load, name, settings), []
    with finished(lambda one, _: ran.append(one)):
        encoder.encode(["w1 w2 w3"])
    layers = sum(type(one).__name__ == layer_class(name) for one in ran)
    assert layers == highest % (DEPTHS[name] + 1)
    pooler = getattr(encoder._model.backbone.model, "pooler", None)
    poolers = set() if pooler is None else set(pooler.modules())
    assert not poolers & set(ran)


@contextmanager
def alive(name):
    """Within the block, how many layers' outputs are in memory as each layer's pass ends."""
    storages, counts = [], []

    def show(one, output):
        if type(one).__name__ != layer_class(name):
            return
        state = output[0] if isinstance(output, tuple) else output
        storages.append(StorageWeakRef(state.untyped_storage()))
        counts.append(sum(not storage.expired() for storage in storages))

    with finished(show):
        yield counts


@architectures
@pytest.mark.parametrize("settings", ["lc:0,3", "layers=all::fusion=concat", "", "FUSED"])
def test_a_hidden_state_is_gone_once_the_next_layer_has_read_it(name, settings, load):
    fused = f"sbert-wk::wk-variance=fused::start-layer={DEPTHS[name] - 1}"
    settings = settings.replace("FUSED", fused)
    encoder = torch_encoder(load, name, settings)
    with alive(name) as counts:
        encoder.encode(["w1 w2 w3", "w4", "w5 w6"])
    assert len(counts) >= 3
    # The layer's input and its output; SBERT-WK needs the last two.
    assert max(counts) <= 2


@pytest.mark.parametrize("settings", ["", "sbert-wk", "top-bottom"])
def test_the_hidden_states_of_one_batch_are_gone_before_the_next(settings, load):
    encoder = torch_encoder(load, "bert", settings)
    with alive("bert") as counts:
        encoder.encode(["w1 " * one + "w2 " * (62 - one) for one in range(60)])
    assert len(counts) >= 6
    assert set(counts[::3]) == {1}
