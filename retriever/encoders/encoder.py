"""Encode texts as vectors: a model, its window and its prompts behind one interface."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.compatible import (
    SentenceTransformersMethods,
    check_encode_keywords,
    is_query_prompt,
)
from retriever.encoders.computing import (
    BATCH_PIECES,
    describe_engine,
    describe_unbounded,
    filled_batches,
    find_unbounded,
    scale_to_unit,
)
from retriever.encoders.registry import (
    Batches,
    EncoderModel,
    LoadContext,
    find_weights,
    kind_of,
    load_encoder,
    require_trusted,
)
from retriever.encoders.settings import (
    COMPUTING,
    SECTIONS,
    AskedDtype,
    EncoderSettings,
    format_setting,
    parse_encoder,
)
from retriever.encoders.spec import Done, EncoderSpec, TextEncoder
from retriever.errors import (
    BadInputError,
    ConfigError,
    EncoderMismatchError,
    ModelError,
    RetrieverError,
    require_several,
    string_fault,
    unknown_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from retriever.encoders.meta.model import MetaParts
    from retriever.encoders.transformer.piece_model import TextStates


class Encoder(SentenceTransformersMethods):
    """An encoder of texts, made with `Encoder.load`. Its `spec` decides the vectors.

    Threads may share it. It serves one thread at a time, with all cores.
    """

    def __init__(
        self, spec: EncoderSpec | None = None, model: EncoderModel | None = None, **keywords: object
    ) -> None:
        if not isinstance(spec, EncoderSpec) or model is None or keywords:
            name = "" if spec is None else f"{spec!r:.60}"
            raise TypeError(f"Encoder: expected Encoder.load({name}), found a call of the class")
        if spec.dimensions < 1:
            raise ConfigError(
                f"encoder {spec.model}: expected vectors of one dimension or more, found "
                f"{spec.dimensions}; use another encoder, or --mode bm25"
            )
        self.spec = spec
        self._model = model
        # (3, dimensions) float32 vectors of fixed texts, if these identify the model.
        self.probes = model.probes
        self._busy = threading.RLock()
        self._twin: weakref.ref[Encoder] | None = None
        self._original: Encoder | None = None

    @classmethod
    def load(
        cls,
        encoder: str | Path | EncoderSettings = "",
        *,
        device: str | None = None,
        download: bool = False,
        dtype: AskedDtype = "float32",
    ) -> Encoder:
        """Load an encoder.

        Args:
            encoder: settings, or their text form such as ``all-MiniLM-L6-v2::lc:0,6`` (see
                `retriever.encoders.settings`), or a folder; default is the bundled model.
            device: torch device; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            dtype: number format if the settings name none; auto: docs/reference/computing.md.

        Raises:
            ModelError: the model is missing, altered or not supported.
            EncoderMismatchError: a source of a meta-embedding has changed.
            MissingExtraError: a bundled model's package is not installed.
            ConfigError: the model does not support the settings, or the device does not exist.
        """
        requested = parse_encoder(encoder).with_number_format(dtype)
        return cls(*load_encoder(requested, LoadContext(device, download, dtype=dtype)))

    @classmethod
    def from_spec(
        cls,
        spec: EncoderSpec,
        *,
        device: str | None = None,
        download: bool = False,
        requested_model: str | None = None,
        dtype: AskedDtype = "auto",
    ) -> Encoder:
        """Load the encoder that a stored specification describes.

        `requested_model` is the model that the user names. A stored URL is used only if the user
        names it. `dtype` is the number format if the specification names none.

        Raises:
            EncoderMismatchError: the model has changed since the specification was made.
            Other errors: see `load`.
        """
        if spec.is_given:
            raise EncoderMismatchError(
                f"the index was made with an encoder from Python code ({spec.model}): open it in "
                "Python with Index.open(folder, encoder=...), or search with --mode bm25"
            )
        require_trusted(spec.model, requested_model)
        loading = LoadContext(device, download, dtype=dtype)
        encoder = cls(*load_encoder(spec.settings.with_number_format(dtype), loading))
        if encoder.spec != spec and encoder.spec.fingerprint != spec.fingerprint:
            raise EncoderMismatchError(
                f"the model {spec.model} has changed: expected encoder {spec.fingerprint}, found "
                f"{encoder.spec.fingerprint}; install the model the index was made with, or make "
                "the index again with --recreate"
            )
        return encoder

    def tokenize(
        self, texts: Sequence[str], *, query: bool = False, max_length: int | None = None
    ) -> list[Any]:
        """Return the pieces of each text, cut to `max_length` pieces if it is set.

        The pieces of a transformer are word-piece ids, with prompt and special tokens. The pieces
        of a static encoder are ids of words. A meta-embedding returns an object whose length is the
        number of pieces.
        """
        require_several("texts", texts)
        texts = list(texts)
        _check_strings(texts)
        settings = self.spec.settings
        prompt = settings.query_prompt if query else settings.passage_prompt
        if prompt:
            texts = [prompt + text for text in texts]
        with self._busy:
            return self._model.tokenize(texts, max_length, query=query)

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[Any]:
        """Return the pieces of each text, cut to the window; see `tokenize`."""
        return self.tokenize(texts, query=query, max_length=self.spec.max_length)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each word piece, without the prompt."""
        with self._busy:
            return self._model.piece_offsets(text)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(self, name)

    @property
    def dimensions(self) -> int:
        """Number of components of every vector."""
        return self.spec.dimensions

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        query: bool = False,
        batch_size: int | None = None,
        normalize_embeddings: bool | None = None,
        prompt_name: str | None = None,
        convert_to_tensor: bool = False,
        **keywords: object,
    ) -> NDArray[np.float32]:
        """Encode texts; cut those longer than the window, with a warning that counts them.

        Args:
            texts: texts, or a single text.
            query: whether they are queries, which may have another prompt than passages.
            batch_size: maximum number of texts of a batch; None limits batches by word pieces.
            normalize_embeddings: whether to scale vectors to length 1; None follows the settings.
            prompt_name: ``query`` is ``query=True``; ``document``, ``passage``, None: see `query`.
            convert_to_tensor: whether to return a torch tensor on the CPU.
            keywords: others of sentence-transformers; values that change vectors are refused.

        Returns:
            (texts, dimensions) float32 in the order of `texts`, or (dimensions,) for a single text.
            It is a C-contiguous NumPy array, or a tensor. Rows have length 1 unless the settings
            say otherwise. A text without a known word or a pooled piece has the zero vector.
            A row depends on the other texts only by rounding (about 1e-6).

        Raises:
            TypeError: a text is no string, or a keyword is unknown.
            BadInputError: a text holds a lone surrogate.
            ConfigError: `batch_size` is below 1, or a keyword has a value that is set elsewhere.
            ModelError: a vector holds NaN or infinity, or its squared length exceeds float32.
        """
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"batch_size: expected 1 or more, found {batch_size}")
        if convert_to_tensor:
            keywords.pop("convert_to_numpy", None)
        if prompt_name is not None or keywords:
            query = query or is_query_prompt(prompt_name)
            check_encode_keywords(keywords)
        pieces = self._tokenize_with_warning([texts] if isinstance(texts, str) else texts, query)
        vectors = _encode_in_blocks(self, pieces, batch_size, normalize_embeddings)
        if isinstance(texts, str):
            (vectors,) = vectors
        if convert_to_tensor:
            import torch

            return cast("NDArray[np.float32]", torch.from_numpy(vectors))
        return vectors

    def _tokenize_with_warning(self, texts: Sequence[str], query: bool = False) -> list[Any]:
        """Return the pieces of texts, cut to the window; warn if a text is cut."""
        pieces = self.tokenize(texts, query=query)
        long = [i for i, ids in enumerate(pieces) if len(ids) > self.spec.max_length]
        if long:
            warnings.warn(
                f"{len(long)} of {len(texts)} texts are longer than the window of "
                f"{self.spec.max_length} tokens and were cut",
                stacklevel=3,
            )
            shorter = self.truncate([texts[i] for i in long], query=query)
            for i, ids in zip(long, shorter, strict=True):
                pieces[i] = ids
        return pieces

    def encode_pieces(
        self,
        pieces: Sequence[Any],
        done: Done = lambda texts, pieces: None,
        normalize: bool | None = None,
    ) -> NDArray[np.float32]:
        """Encode pieces from `tokenize` or `truncate`; encode equal texts once.

        `done` is called after each batch with its numbers of texts and of word pieces.

        Raises:
            RetrieverError: memory is too small even for a single text.
        """
        distinct, rows_of_pieces = _deduplicate(pieces)
        # The vectors of texts without pieces stay zero.
        vectors = np.zeros((len(distinct), self.spec.dimensions), np.float32)
        batches = self._model.embed_batches(distinct)
        if batches is None:
            model = self._model.in_torch() or self._model
            batches = self._batches(model.embed, distinct)
        remaining_texts = len(pieces)
        remaining_pieces = sum(map(len, pieces))
        for rows, batch_vectors in batches:
            vectors[rows] = batch_vectors[..., : self.spec.dimensions]
            size = sum(len(distinct[row]) for row in rows)
            done(len(rows), size)
            remaining_texts = remaining_texts - len(rows)
            remaining_pieces = remaining_pieces - size
        if remaining_texts:
            # Repeated texts and texts without pieces.
            done(remaining_texts, remaining_pieces)
        if len(distinct) < len(pieces):
            vectors = vectors[rows_of_pieces]
        if self.spec.settings.normalize is not False if normalize is None else normalize:
            scale_to_unit(vectors)
        return vectors

    def expect_many(self) -> None:
        """Use the bulk engine from the first text on, as a long-running service does."""
        self._model.expect_many()

    def in_float32(self) -> Encoder:
        """Return the encoder with float32 as its default number format.

        Return this encoder if float32 is its default already. Else both encoders share the
        tokenizer and the weights.
        """
        model = self._model.in_float32()
        if model is self._model:
            return self
        twin = None if self._twin is None else self._twin()
        if twin is None:
            twin = Encoder(self.spec, model)
            # Keeps this encoder, and with it the weak reference, alive as long as its twin.
            twin._original = self
            self._twin = weakref.ref(twin)
        return twin

    @property
    def computed(self) -> frozenset[str]:
        """Number formats and engines used so far, such as ``float32 by openvino 2026.4.1``."""
        # Iterate over a copy, since another thread may add an engine.
        return frozenset(describe_engine(*engine) for engine in tuple(self._model.computed))

    @property
    def depth(self) -> int:
        """Number L of transformer layers; hidden states are 0 (embeddings) to L."""
        return self._require_layers().depth

    def project(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the head that the settings name to (texts, width) vectors."""
        with self._busy:
            return self._require_layers().project(vectors)

    def hidden_states(self, texts: Sequence[str]) -> Iterator[TextStates]:
        """Yield all hidden states of each text as a passage, in the order of `texts`.

        A single batch is in memory at a time.

        Raises:
            ConfigError: the encoder is no transformer.
        """
        model = self._require_layers()
        pieces = self._tokenize_with_warning(texts)
        prompt = self.spec.settings.passage_prompt or ""
        return model.text_states(pieces, [prompt + text for text in texts], len(prompt))

    def _require_layers(self) -> EncoderModel:
        """Return the model; raise ConfigError if it has no layers."""
        if not self._model.depth:
            raise ConfigError(
                f"{self.spec}: a static encoder, a meta-embedding or an encoder behind a URL has "
                "no layers of its own; name a transformer"
            )
        return self._model

    def meta_parts(self) -> MetaParts:
        """Return the parts of a meta-embedding.

        Raises:
            ConfigError: the encoder is no meta-embedding.
        """
        from retriever.encoders.meta.model import MetaModel

        if not isinstance(self._model, MetaModel):
            raise ConfigError(
                f"{self.spec}: expected a meta-embedding, which `retriever train meta` makes"
            )
        return self._model.parts

    def _batches(
        self, embed: Callable[[Sequence[Any]], NDArray[np.float32]], pieces: Sequence[Any]
    ) -> Batches:
        limit = self._model.batch_pieces or BATCH_PIECES[self.spec.settings.number_format]
        for rows in filled_batches(pieces, limit):
            with self._busy:
                vectors = _embed_in_halves(embed, [pieces[row] for row in rows])
            yield rows, vectors


def _deduplicate(pieces: Sequence[Any]) -> tuple[Sequence[Any], list[int]]:
    """Return the distinct lists of ids, and the row of each text among them.

    Pieces that are no lists are returned unchanged, without rows.
    """
    if not all(isinstance(ids, list) for ids in pieces):
        return pieces, []
    row_of: dict[tuple[int, ...], int] = {}
    rows = [row_of.setdefault(tuple(ids), len(row_of)) for ids in pieces]
    return [list(ids) for ids in row_of], rows


def _encode_in_blocks(
    encoder: Encoder, pieces: Sequence[Any], block_size: int | None, normalize: bool | None
) -> NDArray[np.float32]:
    """Encode pieces in blocks of a number of texts; None encodes them in one block."""
    size = block_size or max(1, len(pieces))
    blocks = [
        encoder.encode_pieces(pieces[start : start + size], normalize=normalize)
        for start in range(0, max(1, len(pieces)), size)
    ]
    vectors = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    row = find_unbounded(vectors)
    if row is not None:
        raise ModelError(f"{encoder.spec}: text {row + 1}: {describe_unbounded(vectors[row])}")
    return vectors


def _check_strings(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"text {number}: expected a string, found {type(text).__name__}")
        fault = string_fault(text)
        if fault is not None:
            raise BadInputError(f"text {number} {fault}")


def _embed_in_halves(
    embed: Callable[[Sequence[Any]], NDArray[np.float32]], pieces: Sequence[Any]
) -> NDArray[np.float32]:
    """Embed a batch; halve it as often as memory is too small for it."""
    try:
        return embed(pieces)
    except (MemoryError, RuntimeError) as error:
        # Python and NumPy raise MemoryError, torch OutOfMemoryError or a plain RuntimeError.
        is_out_of_memory = (
            isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        )
        if not is_out_of_memory and "can't allocate memory" not in str(error):
            raise
        if len(pieces) == 1:
            raise RetrieverError(
                f"memory is too small to encode one text of {len(pieces[0])} tokens: "
                "set a smaller --max-length"
            ) from error
    # Outside the handler, which would keep the tensors of the failed batch alive.
    half = len(pieces) // 2
    return np.concatenate(
        [_embed_in_halves(embed, pieces[:half]), _embed_in_halves(embed, pieces[half:])]
    )


def wrap_encoder(encoder: Encoder | TextEncoder | None) -> Encoder | None:
    """Return an encoder in the form that an index uses; None stays None."""
    if encoder is None or hasattr(encoder, "encode_pieces"):
        return encoder  # type: ignore[return-value]
    if isinstance(encoder, str | type) or not hasattr(encoder, "encode"):
        raise TypeError(
            f"encoder: expected an Encoder, or an object with encode(texts), found {encoder!r:.60};"
            " give the name or the folder of a model as model"
        )
    from retriever.encoders.callable_encoder import CallableEncoder

    model = CallableEncoder(encoder)
    return Encoder(model.spec, model)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The encoder that a user names for an index, and how to load it; see `Encoder.load`."""

    encoder: Any = ""  # A text, Path or settings; stored as text form.
    device: str | None = None
    download: bool = False
    dtype: AskedDtype = "auto"  # If `encoder` names none.
    settings: EncoderSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settings = parse_encoder(self.encoder).with_number_format(self.dtype)
        object.__setattr__(self, "encoder", str(self.encoder))
        object.__setattr__(self, "settings", settings)

    def load(self) -> Encoder:
        """Load the encoder for a new index.

        Its specification names a number format only if the user does.
        """
        dtype = self.dtype
        settings = self.settings
        if settings.dtype == "auto":
            dtype = "auto"
            settings = replace(settings, dtype=None)
        return Encoder.load(settings, device=self.device, download=self.download, dtype=dtype)

    def weights(self) -> str:
        """Return the identity of the model's files."""
        return find_weights(self.settings, self.download)

    def completed(self, spec: EncoderSpec) -> ModelChoice:
        """Return the choice, completed with the settings of `spec` if it names no model."""
        requested = self.settings
        if requested.model is not None:
            return self
        require_trusted(spec.model, None)
        return replace(self, encoder=str(replace(spec.settings, **requested.named)))

    def check(self, spec: EncoderSpec, folder: object) -> None:
        """Raise EncoderMismatchError unless the choice is the encoder of an index."""
        model = self.settings.model
        ignored = ("model", *SECTIONS[COMPUTING])
        differences = [
            format_setting(name, value)
            for name, value in self.settings.named.items()
            if name not in ignored
            and value != spec.effective_value(name)
            and not (name in ("layers", "fusion") and self._is_equivalent(spec, **{name: value}))
        ]
        if model is not None:
            same_method = EncoderSettings(model=model, static=spec.settings.static)
            weights = find_weights(same_method, self.download)
            if weights != spec.weights:
                differences.insert(0, f"the model {model} with weights {weights[:12]}")
        if differences:
            raise EncoderMismatchError(
                f"{folder}: the index was made with {spec} with weights {spec.weights[:12]}, but "
                f"{' and '.join(differences)} was asked for; leave the option out, or make the "
                "index again with --recreate"
            )

    def _is_equivalent(self, spec: EncoderSpec, **setting: Any) -> bool:
        """Return whether a setting resolves to the value in a specification, as layers can."""
        with suppress(ConfigError):
            requested = replace(spec.settings, model=self.settings.model or spec.model, **setting)
            settings = kind_of(requested).resolve(requested, self.download)
            return replace(spec, settings=settings).fingerprint == spec.fingerprint
        return False


def probe_lists(encoder: Encoder) -> list[list[float]]:
    """Return the vectors of the probe texts as nested lists; empty if the encoder has none."""
    probes = getattr(encoder, "probes", None)
    return [] if probes is None else probes.tolist()
