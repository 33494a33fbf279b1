"""Which weights are trained, and low-rank adapters before and after they are merged."""

from __future__ import annotations

import pytest
import torch

from retriever.encoders.model_folders import find_model
from retriever.encoders.transformer.backbone import Backbone
from retriever.errors import ConfigError
from retriever.training.adapters import LowRank, choose_weights, merge_adapters


def backbone_of(folders, name="bert"):
    backbone = Backbone(find_model(str(folders(name))), "cpu", training=True)
    backbone.model.eval()
    return backbone


def chosen(backbone, text):
    return choose_weights(backbone, text, words=False)


def top(backbone):
    batch = backbone.batch(backbone.tokenize(["w1 w2 w3", "w4"]))
    return backbone.model(**batch.inputs).last_hidden_state.detach()


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", "albert"])
def test_adapters_change_nothing_at_first_nor_when_merged(folders, name):
    backbone = backbone_of(folders, name)
    before, keys = top(backbone), set(backbone.model.state_dict())
    found = chosen(backbone, "lora:3")
    assert {one.rpartition(".")[2] for one in found} == {"a", "b"}
    assert torch.equal(top(backbone), before)
    torch.manual_seed(0)
    for weight in found.values():
        weight.data += torch.randn_like(weight) * 0.1
    trained = top(backbone)
    assert not torch.allclose(trained, before, atol=1e-2)
    merge_adapters(backbone.model)
    torch.testing.assert_close(top(backbone), trained, rtol=0, atol=1e-5)
    assert set(backbone.model.state_dict()) == keys


def test_a_merged_weight_is_the_sum_of_the_paper(folders):
    backbone = backbone_of(folders)
    linear = backbone.layers()[0].attention.self.query
    before = linear.weight.detach().clone()
    found = chosen(backbone, "lora:4")
    name = "encoder.layer.0.attention.self.query.parametrizations.weight.0"
    found[f"{name}.b"].data.normal_()
    expected = before + 16 / 4 * found[f"{name}.b"].detach() @ found[f"{name}.a"].detach()
    merge_adapters(backbone.model)
    torch.testing.assert_close(linear.weight, expected)
    assert isinstance(linear.weight, torch.nn.Parameter)


def test_adapters_are_not_rounded_by_autocast():
    adapter = LowRank(8, 8, 2)
    adapter.b.data.normal_()
    weight = torch.randn(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = adapter(weight)
    assert torch.equal(found, adapter(weight))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bert", "last:4", "train: expected last:1 to last:3, .* found last:4"),
        ("albert", "last:1", "layers with weights of their own"),
        ("modernbert", "last:1", "cannot be read one by one"),
        ("xlnet", "last:9", "train: expected last:1 to last:3"),
        ("modernbert", "lora:2", "cannot be read one by one"),
    ],
)
def test_what_a_model_does_not_have_is_refused(folders, name, text, message):
    with pytest.raises(ConfigError, match=message):
        chosen(backbone_of(folders, name), text)
