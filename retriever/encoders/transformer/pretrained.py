"""A model's files through transformers, checked and without noise, and made faster on processors.

PyTorch passes a plain weight to oneDNN or MKL, which lay it out again on every call. The operators
that torch.compile packs weights with do it once. Results differ by rounding alone.

PyTorch's fused attention gains nothing from bfloat16 there. This one is the same function, two
matrix products with a softmax between them: keys are padded to a multiple of the vector width,
since softmax is three times as slow on other lengths, and few enough heads are computed at a time
that what is between the products stays in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.settings import Dtype
from retriever.errors import ModelError

# Characters of a library's own message that are shown: some of them fill a screen.
_REASON = 240
# What configurations call the dropout of attention weights.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")
# The number of rows that the layout is chosen for; others work as well.
_ROWS = 1536
# The attention's name in transformers, and the multiple that the number of keys is padded to.
_NAME = "retriever_bfloat16"
_VECTOR = 32
# Scores computed at a time; for more, the memory is returned and allocated again each time.
_CELLS = 2**20
# Of those that this package reads layer by layer, the ones that let their attention be chosen.
_MODELS = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")


def load_pretrained(
    folder: ModelFolder, dtype: Dtype, *, training: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Load the tokenizer, the module and the report of what its weights lack."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    try:
        with quiet_transformers():
            # Code that comes with a model is never run: a prompt would offer to.
            tokenizer = AutoTokenizer.from_pretrained(
                folder.path, local_files_only=True, trust_remote_code=False
            )
            model, report = AutoModel.from_pretrained(
                folder.path,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=getattr(torch, dtype),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **(_trainable(folder) if training else {}),
            )
    except MemoryError:
        raise
    except Exception as error:
        # The libraries have an error of their own for each thing that a file can have wrong.
        reason = " ".join(str(error).split())[:_REASON] or type(error).__name__
        raise ModelError(f"{folder.path}: the model cannot be loaded: {reason}") from error
    if model.config.is_encoder_decoder or not hasattr(model.config, "hidden_size"):
        raise ModelError(
            f"{folder.path}: expected a text encoder such as BERT or RoBERTa, found "
            f"{model.config.model_type}; name another model with --model"
        )
    _require_weights(folder, report)
    return tokenizer, model, report


def has_pooler(model: Any, report: dict[str, Any]) -> bool:
    """Whether there is a pooler that the file has weights for."""
    made_up = any(str(name).startswith("pooler.") for name in report["missing_keys"])
    return getattr(model, "pooler", None) is not None and not made_up


def _trainable(folder: ModelFolder) -> dict[str, Any]:
    """Attention with a fast gradient, without the dropout that costs a fifth of the time."""
    return {"attn_implementation": "eager", **dict.fromkeys(attention_dropout(folder), 0.0)}


def attention_dropout(folder: ModelFolder) -> dict[str, Any]:
    """The dropout of attention weights in a model's configuration, by its name there."""
    return {name: folder.config[name] for name in _ATTENTION_DROPOUT if name in folder.config}


def _require_weights(folder: ModelFolder, report: dict[str, Any]) -> None:
    """Refuse what transformers fills up with random numbers; the pooler's output is not read."""
    missing = [str(name) for name in report["missing_keys"] if not str(name).startswith("pooler.")]
    misshapen = [str(name) for name, *_ in report["mismatched_keys"]]
    for what, names in (("are missing", missing), ("have another shape", misshapen)):
        if names:
            raise ModelError(
                f"{folder.path}: the weights do not fit config.json: {len(names)} tensors {what}, "
                f"such as {min(names)}; copy, download or save the model again"
            )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' loading report and progress bar off the caller's terminal."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def pack_linear(model: Any) -> None:
    """Replace the linear layers of a model on the CPU, in place; elsewhere do nothing."""
    import torch

    operators: Any = torch.ops.mkldnn
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if model.device.type != "cpu" or not all(hasattr(operators, name) for name in names):
        return
    packed = [torch.float32, *[torch.bfloat16] * operators._is_mkldnn_bf16_supported()]
    if model.dtype not in packed:
        return

    class PackedLinear(torch.nn.Module):
        def __init__(self, linear: torch.nn.Linear) -> None:
            super().__init__()
            self.weight = operators._reorder_linear_weight(linear.weight.detach(), _ROWS)
            self.bias = None if linear.bias is None else linear.bias.detach()

        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = operators._linear_pointwise(
                vectors, self.weight, self.bias, "none", [], None
            )
            return output

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, PackedLinear(child))


def use_quick_attention(model: Any) -> None:
    """Let a model in bfloat16 on the CPU use this attention; leave others as they are."""
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
    """As transformers asks for it."""
    import torch
    from torch.nn.functional import pad

    texts, heads, pieces, width = query.shape
    spare = -pieces % _VECTOR
    keys = torch.ones(texts, 1, 1, pieces, dtype=torch.bool)
    if attention_mask is not None:
        keys = attention_mask[:, :, :1]
    bias = torch.zeros(keys.shape, dtype=query.dtype).masked_fill_(~keys, float("-inf"))
    bias = pad(bias, (0, spare), value=float("-inf")).expand(-1, heads, -1, -1)
    query, bias = query.reshape(-1, pieces, width), bias.reshape(texts * heads, 1, -1)
    key, value = (
        pad(states.reshape(-1, pieces, width), (0, 0, 0, spare)) for states in (key, value)
    )
    mixed = torch.empty_like(query)
    step = max(1, _CELLS // (pieces + spare) ** 2)
    for first in range(0, len(query), step):
        part = slice(first, first + step)
        scores = torch.baddbmm(
            bias[part], query[part], key[part].transpose(1, 2), alpha=scaling or width**-0.5
        )
        torch.bmm(torch.softmax(scores, dim=-1), value[part], out=mixed[part])
    return mixed.view(texts, heads, pieces, width).transpose(1, 2).contiguous(), None
