"""Layers computed and hidden states in memory, for every architecture."""

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
    "modernbert": "ModernBertEncoderLayer",
}

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def watched(name):
    """Within the block: each module that ran, and how many layers' outputs were left after each."""
    kind = LAYER[name.partition("-")[0].rstrip("0123456789")]
    ran, storages, counts = [], [], []

    def show(one, _, output):
        ran.append(one)
        if type(one).__name__ == kind:
            state = output[0] if isinstance(output, tuple) else output
            storages.append(StorageWeakRef(state.untyped_storage()))
            counts.append(sum(not storage.expired() for storage in storages))

    handle = torch_module.register_module_forward_hook(show)
    try:
        yield ran, counts
    finally:
        handle.remove()


def torch_encoder(load, name, settings):
    return load(name, f"backend=torch::{settings}".removesuffix("::"))


@architectures
@pytest.mark.parametrize(
    ("settings", "highest"),
    [
        *(("lc:0", 0), ("layers=2,0::fusion=concat", 2), ("lc:0,3", 3), ("", -1)),
        *(("layers=all::fusion=concat", -1), ("FUSED", -1)),
    ],
)
def test_layers_above_highest_are_skipped_and_states_are_freed(name, settings, highest, load):
    fused = f"sbert-wk::wk-variance=fused::start-layer={DEPTHS[name] - 1}"
    encoder = torch_encoder(load, name, settings.replace("FUSED", fused))
    with watched(name) as (ran, counts):
        encoder.encode(["w1 w2 w3", "w4", "w5 w6"])
    assert len(counts) == highest % (DEPTHS[name] + 1)
    pooler = getattr(encoder._model.backbone.model, "pooler", None)
    poolers = set() if pooler is None else set(pooler.modules())
    assert not poolers & set(ran)
    # The layer's input and its output; SBERT-WK needs the last two.
    assert max(counts, default=0) <= 2


@pytest.mark.parametrize("settings", ["", "sbert-wk", "top-bottom"])
def test_the_hidden_states_of_one_batch_are_gone_before_the_next(settings, load):
    encoder = torch_encoder(load, "bert", settings)
    with watched("bert") as (_, counts):
        encoder.encode(["w1 " * one + "w2 " * (62 - one) for one in range(60)])
    assert len(counts) >= 6
    assert set(counts[::3]) == {1}
