"""A pretrained transformer and its tokenizer: text to word pieces, word pieces to hidden states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.encoders.fusion.pooling import SpecialTokens
from retriever.encoders.model_folders import LAYERS, WIDTHS, ModelFolder
from retriever.encoders.settings import Dtype
from retriever.encoders.transformer.word_pieces import PairReader
from retriever.errors import ConfigError, ModelError, require_torch

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

_PROBE = "a"
Visit = Callable[[int, "torch.Tensor"], None]
# The window of a model whose positions have no end, unless its tokenizer names one.
NO_LIMIT = 10**9
# Characters of a library's own message that are shown: some of them fill a screen.
_REASON = 240
# What configurations call the dropout of attention weights.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")
# The number of rows that the layout is chosen for; others work as well.
_ROWS = 1536
# Layers that share their weights, of a model in use.
_MOST_LAYERS = 1000


def read_special_tokens(tokenizer: Any) -> SpecialTokens:
    """Find out by comparing a text with and without them."""
    encoded = tokenizer(_PROBE, return_token_type_ids=True)
    ids = list(encoded["input_ids"])
    bare = list(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])
    before = next(
        (start for start in range(len(ids)) if ids[start : start + len(bare)] == bare), len(ids)
    )
    after = max(0, len(ids) - before - len(bare))
    ends = [(place, ids[place]) for place in range(before)]
    ends += [(place, ids[place]) for place in range(-after, 0)]
    kinds = []
    if "token_type_ids" in tokenizer.model_input_names:
        kinds = [encoded["token_type_ids"][place] for place, _ in ends]
    return SpecialTokens(
        before,
        after,
        _place(ends, tokenizer.cls_token_id),
        _place(ends[::-1], tokenizer.sep_token_id),
        tuple(kinds) if any(kinds) else (),
    )


def _place(ends: Sequence[tuple[int, int]], wanted: int | None) -> int | None:
    return next((place for place, id_ in ends if id_ == wanted), None)


class ReachedError(Exception):
    """The highest layer that is needed is computed: the model can stop."""


def _register_hooks(
    modules: Sequence[torch.nn.Module], pieces_first: bool, layers: Collection[int], visit: Visit
) -> list[RemovableHandle]:
    """Make a forward pass show each hidden state of `layers` to `visit`, and stop after the last.

    It stops with ReachedError.
    """
    highest = max(layers)
    calls = 0

    def show(layer: int, state: torch.Tensor) -> None:
        if layer in layers:
            visit(layer, state.transpose(0, 1) if pieces_first else state)
        if layer == highest:
            raise ReachedError

    def before(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if calls == 0:
            show(0, arguments[0] if arguments else named["hidden_states"])

    def after(_: Any, __: Any, output: Any) -> None:
        nonlocal calls
        calls += 1
        show(calls, output[0] if isinstance(output, tuple) else output)

    return [
        modules[0].register_forward_pre_hook(before, with_kwargs=True),
        *(module.register_forward_hook(after) for module in modules),
    ]


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded inputs of a model, and the number of real word pieces of each text."""

    inputs: dict[str, torch.Tensor]
    lengths: torch.Tensor
    longest: int


class Backbone(PairReader):
    """A model on one device, and its tokenizer."""

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

        # Whether `run` multiplies in bfloat16 although the weights are float32.
        self.autocast = False
        self._trainable = training
        self._dropout = _attention_dropout(folder)
        self.device = _device(device)
        loaded = _load_pretrained(folder, dtype, training=training, auto=auto)
        self._tokenizer, model, report = loaded
        # Not all parameters follow the requested type (XLNet's attention does not).
        self.model: Any = model.train(training).to(self.device, getattr(torch, dtype))
        if hasattr(model.config, "use_mems_eval"):
            # XLNet would keep every layer's states for a text to come.
            model.config.use_mems_eval = False
        if not training:
            pack_linear(self.model)
        self._path = folder.path
        self._architecture = folder.architecture
        # Whether there is one that the file has weights for.
        self._has_pooler = getattr(model, "pooler", None) is not None and not any(
            str(name).startswith("pooler.") for name in report["missing_keys"]
        )
        self.depth = int(model.config.num_hidden_layers)
        self.width = int(model.config.hidden_size)
        self.positions = _positions(model)
        self.max_length = min(self.positions, int(self._tokenizer.model_max_length))
        self.special = read_special_tokens(self._tokenizer)
        self.pads_left = self._tokenizer.padding_side == "left"
        self._pad = int(self._tokenizer.pad_token_id or 0)

    def want(self, layers: Collection[int]) -> None:
        """An encoder of this model reads these hidden states; see `SharedBackbone`."""

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Word-piece ids of each text with special tokens; cut at `max_length` ids if given."""
        cut = {"truncation": max_length is not None, "max_length": max_length}
        ids: list[list[int]] = self._read(texts, **cut)["input_ids"] if texts else []
        return ids

    def _read(self, texts: Sequence[str], **options: Any) -> Any:
        plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        return self._tokenizer(list(texts), **plain, **options)

    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        if not left:
            return [], []
        cut = {"truncation": max_length is not None, "max_length": max_length}
        plain = {"return_token_type_ids": True, "verbose": False}
        encoded = self._tokenizer(list(left), list(right), **cut, **plain)
        return encoded["input_ids"], encoded["token_type_ids"]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Ids of whole texts, and offsets of each piece, (0, 0) for special tokens."""
        if not texts:
            return [], []
        encoded = self._read(texts, return_offsets_mapping=True)
        special = self.special
        # A special token that stands for a piece of text, such as [UNK], has its offsets.
        for row in encoded["offset_mapping"]:
            row[: special.before] = [(0, 0)] * special.before
            row[len(row) - special.after :] = [(0, 0)] * special.after
        return encoded["input_ids"], encoded["offset_mapping"]

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Word pieces as the tokenizer writes them."""
        names: list[str] = self._tokenizer.convert_ids_to_tokens(list(ids))
        return names

    def batch(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] = ()) -> Batch:
        """Pad word-piece ids, special tokens included, to the longest."""
        import torch

        lengths = [len(row) for row in ids]
        longest = max(lengths)
        highest = max(map(max, ids))
        embedded = self.model.get_input_embeddings().num_embeddings
        if highest >= embedded:
            raise ModelError(
                f"{self._path}: the tokenizer has the word piece {highest:,}, but the model has "
                f"vectors of {embedded:,}; copy, download or save the model again"
            )
        rows = [list(row) + [self._pad] * (longest - len(row)) for row in ids]
        inputs = {"input_ids": torch.tensor(rows, device=self.device)}
        sizes = torch.tensor(lengths, device=self.device)
        if min(lengths) < longest:
            places = torch.arange(longest, device=self.device)
            inputs["attention_mask"] = (places < sizes[:, None]).long()
        if self.special.types and not types:
            types = [self.special.token_types(length) for length in lengths]
        if types and "token_type_ids" in self._tokenizer.model_input_names:
            padded = [list(row) + [0] * (longest - len(row)) for row in types]
            inputs["token_type_ids"] = torch.tensor(padded, device=self.device)
        return Batch(inputs, sizes, longest)

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """Compute hidden states from the lowest up to the highest of `layers`, and no further."""
        if not self.autocast:
            self._run(batch, layers, visit)
            return
        import torch

        states: list[tuple[int, torch.Tensor]] = []
        with torch.autocast(self.device.type, torch.bfloat16):
            self._run(batch, layers, lambda *seen: states.append(seen))
        # What is done with the states is done in full precision.
        for layer, state in states:
            visit(layer, state)

    def _run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        if self._architecture is None:
            # The one hidden state that every architecture gives.
            visit(max(layers), self.model(**batch.inputs).last_hidden_state)
            return
        pieces_first = self._architecture.pieces_first
        handles = _register_hooks(self.layers(), pieces_first, layers, visit)
        # Not in a context manager: since Python 3.12 an exception that is thrown into a generator
        # stays in a cycle with its traceback, which holds every layer's tensors.
        try:
            self.model(**batch.inputs)
        except ReachedError:
            pass
        finally:
            for handle in handles:
                handle.remove()

    def top_cls(self, batch: Batch) -> torch.Tensor:
        """The last hidden state of [CLS], (texts, width), with gradients if they are needed.

        Of a model without [CLS] it is that of the first piece.
        """
        import torch

        states: torch.Tensor = self.model(**batch.inputs).last_hidden_state
        place = self.special.cls or 0
        places = batch.lengths + place if place < 0 else torch.zeros_like(batch.lengths)
        return states[torch.arange(len(places), device=states.device), places]

    def save(self, folder: Path, model: Any = None, window: int | None = None) -> None:
        """Write model and tokenizer as transformers does, weights as safetensors.

        In place of its own model it writes one that contains it; the tokenizer gets the window.
        """
        if not self._trainable:
            raise ConfigError("a model that was not loaded for training cannot be saved")
        model = self.model if model is None else model
        limit = self._tokenizer.model_max_length
        with _quiet_transformers():
            # As it was before training.
            model.config.update(self._dropout)
            # A tokenizer would save the window of its last call.
            self.tokenize([""])
            model.save_pretrained(folder)
            self._tokenizer.model_max_length = window or limit
            self._tokenizer.save_pretrained(folder)
            self._tokenizer.model_max_length = limit
        for path in folder.glob("*.safetensors"):
            # safetensors writes files that only their owner can read; use the usual permissions.
            path.chmod((folder / "config.json").stat().st_mode)

    def layers(self) -> list[torch.nn.Module]:
        """The distinct modules that compute the layers, from the lowest one up."""
        self.require_layers()
        assert self._architecture is not None
        return list(self.model.get_submodule(self._architecture.layers))

    def require_layers(self) -> None:
        """Check that every hidden state can be read."""
        if self._architecture is None:
            raise ConfigError(
                f"layers: the layers of a {self.model.config.model_type} model cannot be read one "
                "by one; name another model"
            )

    def require_pooler(self) -> None:
        """Check that `pooler` can be called."""
        if not self._has_pooler:
            raise ConfigError(
                f"head: this {self.model.config.model_type} model has neither a pooler with "
                "weights nor a projection of its own; leave head out"
            )

    def pooler(self, vectors: torch.Tensor) -> torch.Tensor:
        """The model's own pooler, made for the top layer's [CLS]; (texts, width) float32 each."""
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
    """Load the tokenizer, the module and the report of what its weights lack."""
    import torch
    import transformers

    _require_plausible(folder)
    trainable: dict[str, Any] = {}
    if training:
        # Attention with a fast gradient, without the dropout that costs a fifth of the time.
        trainable = {"attn_implementation": "eager"}
        trainable |= dict.fromkeys(_attention_dropout(folder), 0.0)
    try:
        with _quiet_transformers():
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


def _require_plausible(folder: ModelFolder) -> None:
    """Refuse sizes in config.json that the weights cannot have, before memory is taken for them."""
    config = folder.config
    stored = sum(file.stat().st_size for file in folder.path.glob("*.safetensors"))
    layers, width, words = (
        # Null is the same as nothing.
        max((config.get(name) or 1 for name in names), default=1)
        for names in (LAYERS, WIDTHS, ("vocab_size",))
    )
    if folder.architecture is not None:
        # Others may compute positions.
        for name in ("max_position_embeddings", "type_vocab_size"):
            rows = config.get(name)
            words += rows if isinstance(rows, int) and rows > 0 else 0
    # The layers of ALBERT are one. A number takes a byte at least.
    shared = config.get("model_type") == "albert"
    numbers = max(
        width * width * (1 if shared else layers), words * (config.get("embedding_size") or width)
    )
    if 0 < stored < numbers or (shared and layers > _MOST_LAYERS):
        raise ModelError(
            f"{folder.path}: the model cannot be loaded: the weights do not fit config.json: "
            f"{layers:,} layers of width "
            f"{width:,} and {words:,} embeddings do not fit into {stored:,} bytes of safetensors; "
            "copy, download or save the model again"
        )


def _attention_dropout(folder: ModelFolder) -> dict[str, Any]:
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


def pack_linear(model: Any) -> None:
    """Replace the linear layers of a model on the CPU, in place; elsewhere do nothing.

    PyTorch passes a plain weight to oneDNN or MKL, which lay it out again on every call. The
    operators that torch.compile packs weights with do it once. Results differ by rounding alone.
    """
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


def _positions(model: Any) -> int:
    """The most word pieces, special tokens included, that the model has positions for."""
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if limit <= 0:
        limit = NO_LIMIT
    embeddings = getattr(model.base_model, "embeddings", None)
    embeddings = getattr(embeddings, "position_embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    if offset is not None:
        # RoBERTa and its kin number positions from padding_idx + 1.
        limit -= int(offset) + 1
    return limit


class SharedBackbone(Backbone):
    """Keeps the word pieces and hidden states of its last batch.

    Encoders that get the same batch one after the other cost one forward pass.
    """

    def __init__(self, folder: ModelFolder, device: str | None, dtype: Dtype) -> None:
        super().__init__(folder, device, dtype)
        self._wanted: set[int] = set()
        self._ids: list[list[int]] = []
        self._batch: Batch | None = None
        self._states: dict[int, torch.Tensor] = {}
        self._asked: tuple[list[str], int | None] = ([], None)
        self._found: list[list[int]] = []

    def want(self, layers: Collection[int]) -> None:
        """Compute these hidden states too from the next batch on."""
        self._wanted |= set(layers)

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """See `Backbone`; the texts of the last call are not tokenized again."""
        asked = (list(texts), max_length)
        if asked != self._asked:
            self._asked = asked
            self._found = super().tokenize(texts, max_length)
        return list(self._found)

    def batch(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] = ()) -> Batch:
        """See `Backbone`; returns the last batch if the word pieces are the same."""
        if types:
            return super().batch(ids, types)
        rows = [list(row) for row in ids]
        if self._batch is None or rows != self._ids:
            self._states = {}
            self._ids = rows
            self._batch = super().batch(rows)
        return self._batch

    def run(self, batch: Batch, layers: Collection[int], visit: Visit) -> None:
        """See `Backbone`; the states of the last batch are computed only once."""
        if batch is not self._batch:
            super().run(batch, layers, visit)
            return
        if not self._states.keys() >= set(layers):
            states: dict[int, torch.Tensor] = {}
            super().run(batch, self._wanted | set(layers), states.__setitem__)
            self._states = states
        for layer in sorted(set(layers)):
            visit(layer, self._states[layer])


def sharing() -> Callable[[ModelFolder, str | None, Dtype], SharedBackbone]:
    """A maker of backbones that gives the same one for the same weights and number format."""
    backbones: dict[tuple[str, Dtype], SharedBackbone] = {}

    def backbone_of(folder: ModelFolder, device: str | None, dtype: Dtype) -> SharedBackbone:
        key = (folder.weights, dtype)
        if key not in backbones:
            backbones[key] = SharedBackbone(folder, device, dtype)
        return backbones[key]

    return backbone_of
