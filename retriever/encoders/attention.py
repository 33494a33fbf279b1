"""Attention in bfloat16 on processors: two matrix products with a float32 softmax between them.

PyTorch's fused kernel gains nothing from bfloat16 there: its softmax over rows whose length is no
multiple of the vector width takes longer than both products. This is the same function, computed
with one rounding less, in half the time.
"""

from __future__ import annotations

from typing import Any

_NAME = "retriever_bfloat16"
# Of those that this package reads layer by layer, the ones that let their attention be chosen.
_MODELS = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")


def use_quick_attention(model: Any) -> None:
    """Let a model in bfloat16 on the CPU use this attention; leave others as they are.

    Args:
        model: a bidirectional transformers model in evaluation mode.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.device.type != "cpu" or model.dtype != torch.bfloat16:
        return
    if model.config.model_type in _MODELS:
        AttentionInterface.register(_NAME, _attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """As transformers asks for it.

    Args:
        module: the layer that asks.
        query: (texts, heads, pieces, width); key and value likewise.
        key: see there.
        value: see there.
        attention_mask: bool (texts, 1, pieces, pieces), False at keys that are padding and so the
            same for every query; or None.
        scaling: of the products; the inverse root of the width if None.

    Returns:
        (texts, pieces, heads, width), and None for the weights.
    """
    import torch

    texts, heads, pieces, width = query.shape
    query, key, value = (states.reshape(texts * heads, -1, width) for states in (query, key, value))
    bias = query.new_zeros(1, 1, 1)
    if attention_mask is not None:
        keys = attention_mask[:, :, :1]
        bias = torch.zeros(keys.shape, dtype=query.dtype).masked_fill_(~keys, float("-inf"))
        bias = bias.expand(texts, heads, 1, -1).reshape(texts * heads, 1, -1)
    scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scaling or width**-0.5)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    mixed = torch.bmm(weights, value).view(texts, heads, pieces, width)
    return mixed.transpose(1, 2).contiguous(), None
