"""A pretrained transformer and its tokenizer: text to word pieces, word pieces to hidden states."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.encoders.fusion.pooling import SpecialTokens
from retriever.encoders.model_folders import LAYERS, WIDTHS, ModelFolder
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.four_bits import is_four_bit, load_four_bit
from retriever.encoders.transformer.tokenizer import PairTokenizer, find_special_tokens
from retriever.encoders.transformer.tokenizer_classes import NO_LIMIT, PROBE
from retriever.encoders.transformer.tokenizer_file import check_limit, check_tokenizer_file
from retriever.errors import ConfigError, ModelError, require_torch

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

# Function of a layer's number and its hidden state.
Visit = Callable[[int, "torch.Tensor"], None]
# Maximum number of characters of a library's message that an error quotes.
_LONGEST_REASON = 240
# Options of a tokenizer that returns only ids.
_IDS_ONLY = {"return_attention_mask": False, "return_token_type_ids": False}
# Keys of configurations for the dropout of attention weights.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")
# Number of rows that the packed layout of weights is optimized for.
_PACKED_ROWS = 1536
# Maximum number of layers of a model whose layers share their weights.
_MOST_SHARED_LAYERS = 1000


def read_special_tokens(tokenizer: Any) -> SpecialTokens:
    """Find the special tokens around a text by encoding it with and without them."""
    encoded = tokenizer(PROBE, return_token_type_ids=True)
    has_types = "token_type_ids" in tokenizer.model_input_names
    return find_special_tokens(
        encoded["input_ids"],
        tokenizer(PROBE, add_special_tokens=False)["input_ids"],
        encoded["token_type_ids"] if has_types else (),
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
    )


class TopLayerReachedError(Exception):
    """Raised in a hook to stop the forward pass after the highest needed layer."""


def _register_hooks(
    first: torch.nn.Module,
    modules: Sequence[torch.nn.Module],
    pieces_first: bool,
    layers: Collection[int],
    visit: Visit,
) -> list[RemovableHandle]:
    """Register hooks that pass each hidden state of `layers` to `visit`.

    The input of `first` is hidden state 0, and the outputs of `modules` are the others. The highest
    layer raises TopLayerReachedError, which ends the forward pass.
    """
    highest = max(layers)
    calls = 0

    def report_state(layer: int, state: torch.Tensor) -> None:
        if layer in layers:
            visit(layer, state.transpose(0, 1) if pieces_first else state)
        if layer == highest:
            raise TopLayerReachedError

    def report_input(_: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if calls == 0:
            report_state(0, positional[0] if positional else keywords["hidden_states"])

    def report_output(_: Any, __: Any, output: Any) -> None:
        nonlocal calls
        calls += 1
        report_state(calls, output[0] if isinstance(output, tuple) else output)

    return [
        first.register_forward_pre_hook(report_input, with_kwargs=True),
        *(module.register_forward_hook(report_output) for module in modules),
    ]


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded inputs of a model, and the number of word pieces of each text."""

    inputs: dict[str, torch.Tensor]
    lengths: torch.Tensor
    longest: int


class Backbone(PairTokenizer):
    """A pretrained model in torch on a device, and its tokenizer."""

    def __init__(
        self,
        folder: ModelFolder,
        device: str | None = None,
        dtype: Dtype = "float32",
        *,
        training: bool = False,
        auto: str = "AutoModel",
    ) -> None:
        require_torch(f"running {folder.name} in torch")
        import torch

        # The process that may compute on several threads.
        self._process = os.getpid()
        # Whether `run` multiplies float32 weights in bfloat16.
        self.autocast = False
        self._trainable = training
        self._dropout = _attention_dropout(folder)
        self.device = _open_device(device)
        loaded = _load_pretrained(folder, dtype, training=training, auto=auto)
        self._tokenizer, model, report = loaded
        # Some parameters do not follow the requested type, such as in XLNet's attention.
        self.model: Any = model.train(training).to(self.device, getattr(torch, dtype))
        if hasattr(model.config, "use_mems_eval"):
            # Otherwise XLNet keeps the states of every layer for the next text.
            model.config.use_mems_eval = False
        if not training:
            pack_linear(self.model)
        self._path = folder.path
        self._architecture = folder.architecture
        # Whether the file has weights for a pooler.
        self._has_pooler = getattr(model, "pooler", None) is not None and not any(
            str(name).startswith("pooler.") for name in report["missing_keys"]
        )
        self.depth = int(model.config.num_hidden_layers)
        self.width = int(model.config.hidden_size)
        self.positions = _count_positions(model)
        self.max_length = min(self.positions, check_limit(self._tokenizer.model_max_length))
        with _report_faults(folder.path):
            self.special = read_special_tokens(self._tokenizer)
        self.pads_left = self._tokenizer.padding_side == "left"
        self._padding_id = int(self._tokenizer.pad_token_id or 0)

    def register_layers(self, layers: Collection[int]) -> None:
        """Register the hidden states that an encoder reads; see `SharedBackbone`."""

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Return the word-piece ids of each text with special tokens, cut to `max_length` ids."""
        truncation = {"truncation": max_length is not None, "max_length": max_length}
        ids: list[list[int]] = (
            self._call_tokenizer(list(texts), **_IDS_ONLY, **truncation)["input_ids"]
            if texts
            else []
        )
        return ids

    def _call_tokenizer(self, *texts: Any, **options: Any) -> Any:
        with _report_faults(self._path):
            return self._tokenizer(*texts, verbose=False, **options)

    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        if not left:
            return [], []
        truncation = {"truncation": max_length is not None, "max_length": max_length}
        encoded = self._call_tokenizer(
            list(left), list(right), return_token_type_ids=True, **truncation
        )
        return encoded["input_ids"], encoded["token_type_ids"]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each word piece, without special tokens."""
        encoded = self._call_tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return the ids of whole texts and their offsets, (0, 0) for special tokens."""
        if not texts:
            return [], []
        encoded = self._call_tokenizer(list(texts), return_offsets_mapping=True, **_IDS_ONLY)
        special = self.special
        # Only special tokens around the text get (0, 0); [UNK] keeps the offsets of its text.
        for row in encoded["offset_mapping"]:
            row[: special.before] = [(0, 0)] * special.before
            row[len(row) - special.after :] = [(0, 0)] * special.after
        return encoded["input_ids"], encoded["offset_mapping"]

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Return word pieces in the tokenizer's spelling."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(ids))
        return names

    def batch(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] = ()) -> Batch:
        """Pad word-piece ids, special tokens included, to the longest text."""
        import torch

        self._limit_threads_after_fork()
        lengths = [len(row) for row in ids]
        longest = max(lengths)
        highest = max(map(max, ids))
        embedding_count = self.model.get_input_embeddings().num_embeddings
        if highest >= embedding_count:
            raise ModelError(
                f"{self._path}: the tokenizer has the token {highest:,}, but the model has "
                f"vectors of {embedding_count:,}; copy, download or save the model again"
            )
        rows = [list(row) + [self._padding_id] * (longest - len(row)) for row in ids]
        inputs = {"input_ids": torch.tensor(rows, device=self.device)}
        sizes = torch.tensor(lengths, device=self.device)
        if min(lengths) < longest:
            positions = torch.arange(longest, device=self.device)
            inputs["attention_mask"] = (positions < sizes[:, None]).long()
        if self.special.types and not types:
            types = [self.special.token_types(length) for length in lengths]
        if types and "token_type_ids" in self._tokenizer.model_input_names:
            self._require_types(types)
            padded = [list(row) + [0] * (longest - len(row)) for row in types]
            inputs["token_type_ids"] = torch.tensor(padded, device=self.device)
        return Batch(inputs, sizes, longest)

    def _limit_threads_after_fork(self) -> None:
        """Compute on one thread in a forked process, which lacks the threads of its parent."""
        import torch

        if self._process != os.getpid():
            torch.set_num_threads(1)
            self._process = os.getpid()

    def _require_types(self, types: Sequence[Sequence[int]]) -> None:
        """Raise ModelError for a token type that has no vector."""
        count = getattr(self.model.config, "type_vocab_size", 0)
        highest = max(map(max, types))
        if count and highest >= count:
            raise ModelError(
                f"{self._path}: a text has the token type {highest:,}, but the model has vectors "
                f"of {count:,}; copy, download or save the model again"
            )

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """Compute hidden states up to the highest of `layers`; pass each to `visit`."""
        if not self.autocast:
            self._run(batch, layers, visit)
            return
        import torch

        states: list[tuple[int, torch.Tensor]] = []
        with torch.autocast(self.device.type, torch.bfloat16):
            self._run(batch, layers, lambda *arguments: states.append(arguments))
        # `visit` runs in full precision.
        for layer, state in states:
            visit(layer, state)

    def _run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        if self._architecture is None:
            # The only hidden state that every architecture returns.
            visit(max(layers), self.model(**batch.inputs).last_hidden_state)
            return
        modules = self.layers()
        first = modules[0]
        if self._architecture.final_norm:
            modules = [*modules[:-1], self.model.get_submodule(self._architecture.final_norm)]
        pieces_first = self._architecture.pieces_first
        handles = _register_hooks(first, modules, pieces_first, layers, visit)
        # No context manager: since Python 3.12 an exception thrown into a generator stays in a
        # cycle with its traceback, which keeps the tensors of every layer.
        try:
            self.model(**batch.inputs)
        except TopLayerReachedError:
            pass
        finally:
            for handle in handles:
                handle.remove()

    def top_cls(self, batch: Batch) -> torch.Tensor:
        """Return the last hidden state of [CLS], (texts, width), with gradients if needed.

        For a model without [CLS], return the state of the first piece.
        """
        import torch

        states: torch.Tensor = self.model(**batch.inputs).last_hidden_state
        position = self.special.cls or 0
        positions = batch.lengths + position if position < 0 else torch.zeros_like(batch.lengths)
        return states[torch.arange(len(positions), device=states.device), positions]

    def save(self, folder: Path, model: Any = None, window: int | None = None) -> None:
        """Write model and tokenizer in the format of transformers, weights as safetensors.

        If `model` is given, it is written instead of the backbone's own model, which it contains.
        `window` is stored with the tokenizer.
        """
        if not self._trainable:
            raise ConfigError("a model that was not loaded for training cannot be saved")
        model = self.model if model is None else model
        limit = self._tokenizer.model_max_length
        with _quiet_transformers():
            # Restore the dropout that training sets to 0.
            model.config.update(self._dropout)
            # Reset the truncation of the last call, which the tokenizer would save.
            self.tokenize([""])
            model.save_pretrained(folder)
            self._tokenizer.model_max_length = window or limit
            self._tokenizer.save_pretrained(folder)
            self._tokenizer.model_max_length = limit
        for path in folder.glob("*.safetensors"):
            # safetensors makes files readable by their owner only; use the usual permissions.
            path.chmod((folder / "config.json").stat().st_mode)

    def layers(self) -> list[torch.nn.Module]:
        """Return the distinct modules that compute the layers, from the lowest up."""
        self.require_layers()
        assert self._architecture is not None
        return list(self.model.get_submodule(self._architecture.layers))

    def require_layers(self) -> None:
        """Raise ConfigError unless every hidden state can be read."""
        if self._architecture is None:
            raise ConfigError(
                f"layers: the layers of a {self.model.config.model_type} model cannot be read one "
                "by one; name another model"
            )

    def require_pooler(self) -> None:
        """Raise ConfigError unless the model has a pooler with weights."""
        if not self._has_pooler:
            raise ConfigError(
                f"head: this {self.model.config.model_type} model has neither a pooler with "
                "weights nor a projection of its own; leave head out"
            )

    def pooler(self, vectors: torch.Tensor) -> torch.Tensor:
        """Apply the model's pooler, trained on the last [CLS], to (texts, width) float32."""
        vectors = vectors.to(self.model.dtype)
        activation = getattr(self.model, "pooler_activation", None)
        if activation is not None:
            pooled: torch.Tensor = activation(self.model.pooler(vectors))
        else:
            pooled = self.model.pooler(vectors.unsqueeze(1))
        return pooled.float()


def _load_pretrained(
    folder: ModelFolder, dtype: Dtype, *, training: bool, auto: str = "AutoModel"
) -> tuple[Any, Any, dict[str, Any]]:
    """Load tokenizer and model; return them with transformers' report of missing weights."""
    import torch

    _require_plausible_sizes(folder)
    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    options |= {"ignore_mismatched_sizes": True, "output_loading_info": True}
    settings: dict[str, Any] = {}
    if training:
        # Attention with a fast gradient. Its dropout would cost a fifth of the time.
        options |= {"attn_implementation": "eager"}
        settings |= dict.fromkeys(_attention_dropout(folder), 0.0)
    load = load_four_bit if is_four_bit(folder) else _load_files
    try:
        with _quiet_transformers():
            tokenizer, model, report = load(folder, auto, settings, **options)
    except (MemoryError, ModelError):
        raise
    except Exception as error:
        # The libraries raise various errors for damaged files.
        reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
        raise ModelError(f"{folder.path}: the model cannot be loaded: {reason}") from error
    if model.config.is_encoder_decoder or not hasattr(model.config, "hidden_size"):
        raise ModelError(
            f"{folder.path}: expected a text encoder such as BERT or RoBERTa, found "
            f"{model.config.model_type}; name another model with --model"
        )
    _require_weights(folder, report)
    return tokenizer, model, report


def _load_files(
    folder: ModelFolder, auto: str, settings: dict[str, Any], **options: Any
) -> tuple[Any, Any, Any]:
    """Load tokenizer and model from the files of transformers; see `load_four_bit`."""
    import transformers

    # Never run code that comes with a model; without this, transformers would ask.
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    check_tokenizer_file(folder.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, **local)
    model, report = getattr(transformers, auto).from_pretrained(
        folder.path, use_safetensors=True, **local, **options, **settings
    )
    return tokenizer, model, report


def _require_plausible_sizes(folder: ModelFolder) -> None:
    """Refuse sizes in config.json that exceed the weights, before memory is allocated."""
    config = folder.config
    stored = sum(file.stat().st_size for file in folder.path.glob("*.safetensors"))
    layers, width, embeddings = (
        # Null means the same as a missing key.
        max((config.get(name) or 1 for name in names), default=1)
        for names in (LAYERS, WIDTHS, ("vocab_size",))
    )
    if folder.architecture is not None:
        # Unknown architectures may compute positions.
        for name in ("max_position_embeddings", "type_vocab_size"):
            rows = config.get(name)
            embeddings += rows if isinstance(rows, int) and rows > 0 else 0
    # ALBERT stores one layer.
    shares_layers = config.get("model_type") == "albert"
    numbers = max(
        width * width * (1 if shares_layers else layers),
        embeddings * (config.get("embedding_size") or width),
    )
    # A number takes at least one byte, or half of one in 4 bits.
    least_bytes = numbers // 2 if is_four_bit(folder) else numbers
    if 0 < stored < least_bytes or (shares_layers and layers > _MOST_SHARED_LAYERS):
        raise ModelError(
            f"{folder.path}: the model cannot be loaded, since the weights do not fit "
            f"config.json: {layers:,} layers of width {width:,} and {embeddings:,} embeddings do "
            f"not fit into {stored:,} bytes of safetensors; copy, download or save the model again"
        )


def _attention_dropout(folder: ModelFolder) -> dict[str, Any]:
    """Return the dropout of attention weights in a model's configuration, by key."""
    return {name: folder.config[name] for name in _ATTENTION_DROPOUT if name in folder.config}


def _require_weights(folder: ModelFolder, report: dict[str, Any]) -> None:
    """Refuse missing weights, which transformers draws at random; a pooler's may be missing."""
    missing = [str(name) for name in report["missing_keys"] if not str(name).startswith("pooler.")]
    misshapen = [str(name) for name, *_ in report["mismatched_keys"]]
    for fault, names in (("are missing", missing), ("have another shape", misshapen)):
        if names:
            raise ModelError(
                f"{folder.path}: the weights do not fit config.json: {len(names)} tensors {fault}, "
                f"such as {min(names)}; copy, download or save the model again"
            )


@contextmanager
def _report_faults(folder: Path) -> Iterator[None]:
    """Raise ModelError for a tokenizer that cannot read a text."""
    try:
        yield
    except BaseException as error:
        # The library raises the base class, or panics.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ModelError(
            f"{folder}: the tokenizer cannot read a text: {reason}; copy, download or save the "
            "model again"
        ) from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress transformers' loading report and progress bar."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    has_progress_bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_progress_bar:
            logging.enable_progress_bar()


def pack_linear(model: Any) -> None:
    """Replace the linear layers of a model on the CPU by packed ones, in place.

    PyTorch passes a plain weight to oneDNN or MKL, which change its layout on every call. The
    operators of torch.compile change it once. Results differ only by rounding.
    """
    import torch

    operators: Any = torch.ops.mkldnn
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if model.device.type != "cpu" or not all(hasattr(operators, name) for name in names):
        return
    packable_dtypes = [torch.float32, *[torch.bfloat16] * operators._is_mkldnn_bf16_supported()]
    if model.dtype not in packable_dtypes:
        return

    class PackedLinear(torch.nn.Module):
        def __init__(self, linear: torch.nn.Linear) -> None:
            super().__init__()
            self.weight = operators._reorder_linear_weight(linear.weight.detach(), _PACKED_ROWS)
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


def _open_device(name: str | None) -> torch.device:
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


def _count_positions(model: Any) -> int:
    """Return the number of positions for word pieces, special tokens included."""
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if limit <= 0:
        limit = NO_LIMIT
    embeddings = getattr(model.base_model, "embeddings", None)
    embeddings = getattr(embeddings, "position_embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    if offset is not None:
        # RoBERTa and related models number positions from padding_idx + 1.
        limit -= int(offset) + 1
    return limit
