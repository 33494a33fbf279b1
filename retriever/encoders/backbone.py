"""A pretrained transformer and its tokenizer: text to word pieces, word pieces to hidden states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retriever.encoders.attention import use_quick_attention
from retriever.encoders.layer_hooks import ReachedError, Visit, find_layers
from retriever.encoders.models import ModelFolder
from retriever.encoders.packing import pack_linear
from retriever.encoders.settings import Dtype
from retriever.encoders.special_tokens import read_special_tokens
from retriever.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

# Characters of a library's own message that are shown: some of them fill a screen.
_REASON = 240
# The window of a model whose positions have no end, unless its tokenizer names one.
NO_LIMIT = 10**9


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded inputs of a model.

    Attributes:
        inputs: what the model is called with, each (texts, pieces) int64.
        lengths: (texts,) int64, the real word pieces of each text.
        longest: the greatest of them.
    """

    inputs: dict[str, torch.Tensor]
    lengths: torch.Tensor
    longest: int


class Backbone:
    """A model in evaluation mode on one device, and its tokenizer.

    Args:
        folder: where the model lies.
        device: a torch device such as ``cpu`` or ``cuda``; None takes a GPU where there is one.
        dtype: of weights and hidden states.

    Attributes:
        depth: transformer layers L; hidden states are numbered 0 (embeddings) to L.
        width: components of a hidden state.
        max_length: the most word pieces, special tokens included, that there are positions for.
        special: the special tokens around a text.

    Raises:
        ModelError: the files do not make a model.
        ConfigError: the device does not exist.
    """

    def __init__(
        self, folder: ModelFolder, device: str | None = None, dtype: Dtype = "float32"
    ) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self.device = _device(device)
        try:
            with _quiet_transformers():
                # Code that comes with a model is never run: a prompt would offer to.
                self._tokenizer = AutoTokenizer.from_pretrained(
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
        # Not all parameters follow the type that was asked for (XLNet's attention does not).
        self._model = model.eval().to(self.device, getattr(torch, dtype))
        if hasattr(model.config, "use_mems_eval"):
            # XLNet would keep every layer's states for a text to come.
            model.config.use_mems_eval = False
        pack_linear(self._model)
        use_quick_attention(self._model)
        self._layers = find_layers(model)
        self._has_pooler = _has_pooler(model, report)
        self.depth = int(model.config.num_hidden_layers)
        self.width = int(model.config.hidden_size)
        self.max_length = _positions(model, self._tokenizer)
        self.special = read_special_tokens(self._tokenizer)
        self._pad = int(self._tokenizer.pad_token_id or 0)

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Word-piece ids of each text with special tokens; cut at `max_length` ids if given."""
        if not texts:
            return []
        encoded = self._tokenizer(
            list(texts),
            truncation=max_length is not None,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Word pieces as the tokenizer writes them."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(ids))
        return names

    def batch(self, ids: Sequence[Sequence[int]]) -> Batch:
        """Pad word-piece ids, special tokens included, to the longest."""
        import torch

        lengths = [len(row) for row in ids]
        longest = max(lengths)
        rows = [list(row) + [self._pad] * (longest - len(row)) for row in ids]
        inputs = {"input_ids": torch.tensor(rows, device=self.device)}
        sizes = torch.tensor(lengths, device=self.device)
        if min(lengths) < longest:
            places = torch.arange(longest, device=self.device)
            inputs["attention_mask"] = (places < sizes[:, None]).long()
        if self.special.types:
            types = [
                self.special.token_types(length) + [0] * (longest - length) for length in lengths
            ]
            inputs["token_type_ids"] = torch.tensor(types, device=self.device)
        return Batch(inputs, sizes, longest)

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """Compute hidden states from the lowest up to the highest of `layers`, and no further.

        Args:
            batch: what to run on.
            layers: the hidden states that are wanted, at least one.
            visit: called with each of them in ascending order while it is alive: its number, and
                (texts, pieces, width) of the model's dtype, undefined at padding.
        """
        if self._layers is None:
            # The one hidden state that every architecture gives.
            visit(max(layers), self._model(**batch.inputs).last_hidden_state)
        else:
            with suppress(ReachedError), self._layers.visited(layers, visit):
                self._model(**batch.inputs)

    def require_layers(self) -> None:
        """Make sure that every hidden state can be read.

        Raises:
            ConfigError: the architecture is not known.
        """
        if self._layers is None:
            raise ConfigError(
                f"layers: those of a {self._model.config.model_type} model cannot be read one by "
                "one; name another model"
            )

    def require_pooler(self) -> None:
        """Make sure that `pooler` can be called.

        Raises:
            ConfigError: the model has no pooler, or no weights for it.
        """
        if not self._has_pooler:
            raise ConfigError(
                f"head: this {self._model.config.model_type} model has neither a pooler with "
                "weights nor a projection of its own; leave head out"
            )

    def pooler(self, vectors: torch.Tensor) -> torch.Tensor:
        """The model's own pooler, made for the top layer's [CLS]; (texts, width) float32 each."""
        vectors = vectors.to(self._model.dtype)
        activation = getattr(self._model, "pooler_activation", None)
        if activation is not None:
            pooled: torch.Tensor = activation(self._model.pooler(vectors))
        else:
            pooled = self._model.pooler(vectors.unsqueeze(1))
        return pooled.float()


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


def _has_pooler(model: Any, report: dict[str, Any]) -> bool:
    """Whether there is a pooler that the file has weights for."""
    made_up = any(str(name).startswith("pooler.") for name in report["missing_keys"])
    return getattr(model, "pooler", None) is not None and not made_up


def _device(name: str | None) -> torch.device:
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}") from error
    return device


def _positions(model: Any, tokenizer: Any) -> int:
    """The most word pieces, special tokens included, that the model has positions for."""
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if limit <= 0:
        limit = NO_LIMIT
    embeddings = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    if offset is not None:
        # RoBERTa and its kin number positions from padding_idx + 1.
        limit -= int(offset) + 1
    return min(limit, int(tokenizer.model_max_length))


@contextmanager
def _quiet_transformers() -> Iterator[None]:
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
