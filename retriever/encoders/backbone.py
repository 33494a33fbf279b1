"""A pretrained transformer and its tokenizer: text to word pieces, word pieces to hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retriever.encoders.models import ModelFolder
from retriever.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

# Characters of a library's own message that are shown: some of them fill a screen.
_REASON = 240


class Backbone:
    """A model in evaluation mode, in float32, on one device.

    Args:
        folder: where the model lies.
        device: a torch device such as ``cpu`` or ``cuda``; None takes a GPU where there is one.

    Raises:
        ModelError: the files do not make a model.
        ConfigError: the device does not exist.
    """

    def __init__(self, folder: ModelFolder, device: str | None = None) -> None:
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
                    dtype=torch.float32,
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
        self._model = model.eval().to(self.device)
        self.dimensions = int(model.config.hidden_size)
        self.max_length = _positions(model, self._tokenizer)
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
        """(start, stop) character offsets of each word piece of `text`, no special tokens."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def last_hidden_state(
        self, ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The top layer for one batch.

        Args:
            ids: word-piece ids, special tokens included; padded here to the longest.

        Returns:
            (texts, pieces, dimensions) float32, and (texts, pieces) int64 with 0 at padding, or
            None where nothing is padded.
        """
        import torch

        lengths = [len(row) for row in ids]
        longest = max(lengths)
        rows = [list(row) + [self._pad] * (longest - len(row)) for row in ids]
        input_ids = torch.tensor(rows, device=self.device)
        mask = None
        if min(lengths) < longest:
            places = torch.arange(longest, device=self.device)
            mask = (places < torch.tensor(lengths, device=self.device)[:, None]).long()
        output = self._model(input_ids=input_ids, attention_mask=mask)
        return output.last_hidden_state, mask


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
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 10**9)
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
