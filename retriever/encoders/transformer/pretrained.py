"""A model's files through transformers, checked and without noise, and made faster on processors.

PyTorch passes a plain weight to oneDNN or MKL, which lay it out again on every call. The operators
that torch.compile packs weights with do it once. Results differ by rounding alone.
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


def load_pretrained(
    folder: ModelFolder, dtype: Dtype, *, training: bool, auto: str = "AutoModel"
) -> tuple[Any, Any, dict[str, Any]]:
    """Load the tokenizer, the module and the report of what its weights lack."""
    import torch
    import transformers

    trainable: dict[str, Any] = {}
    if training:
        # Attention with a fast gradient, without the dropout that costs a fifth of the time.
        trainable = {"attn_implementation": "eager"}
        trainable |= dict.fromkeys(attention_dropout(folder), 0.0)
    try:
        with quiet_transformers():
            # Code that comes with a model is never run: a prompt would offer to.
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder.path, local_files_only=True, trust_remote_code=False
            )
            model, report = getattr(transformers, auto).from_pretrained(
                folder.path,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=getattr(torch, dtype),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **trainable,
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
