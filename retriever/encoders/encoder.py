"""Text to vectors: a model, its window and its prompts behind one small interface."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retriever.encoders.compatible import (
    ModelCardData,
    check_encode_keywords,
    is_query_prompt,
)
from retriever.encoders.computing import (
    BATCH_PIECES,
    describe_unbounded,
    filled_batches,
    find_unbounded,
    scale_to_unit,
    way,
)
from retriever.encoders.registry import (
    Batches,
    EncoderModel,
    LoadContext,
    find_weights,
    kind_of,
    load_encoder,
    require_asked,
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

    from retriever.encoders.meta.model import MetaModel, MetaParts
    from retriever.encoders.transformer.model import TextStates, TransformerModel


class Encoder:
    """Turns texts into vectors; make one with `Encoder.load`. `spec` decides the vectors.

    Threads may share it: it serves one at a time, with all its cores.
    """

    def __init__(
        self, spec: EncoderSpec | None = None, model: EncoderModel | None = None, **others: object
    ) -> None:
        if not isinstance(spec, EncoderSpec) or model is None or others:
            name = "" if spec is None else f"{spec!r:.60}"
            raise TypeError(f"Encoder: expected Encoder.load({name}), found a call of the class")
        if spec.dimensions < 1:
            raise ConfigError(
                f"encoder {spec.model}: expected vectors of one dimension or more, found "
                f"{spec.dimensions}; use another encoder, or --mode bm25"
            )
        self.spec = spec
        self._model = model
        # (3, dimensions) float32: vectors of fixed texts, where these tell models apart.
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
                `retriever.encoders.settings`), or a folder; the bundled model where none is named.
            device: torch device; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            dtype: number format where the settings name none; auto as in docs/computing.md.

        Raises:
            ModelError: the model is missing, altered or not supported.
            EncoderMismatchError: a source of a meta-embedding is another one than it was made with.
            MissingExtraError: a bundled model's package is not installed.
            ConfigError: the model cannot do what the settings say, or the device does not exist.
        """
        asked = parse_encoder(encoder).computed_in(dtype)
        return cls(*load_encoder(asked, LoadContext(device, download, dtype=dtype)))

    @classmethod
    def from_spec(
        cls,
        spec: EncoderSpec,
        *,
        device: str | None = None,
        download: bool = False,
        asked: str | None = None,
        dtype: AskedDtype = "auto",
    ) -> Encoder:
        """Load the encoder that a stored specification describes; errors as of `load`.

        `asked` is the model that the user names: a URL is used only if the user names it too.
        `dtype` is the number format where the specification names none.

        Raises:
            EncoderMismatchError: the model of that name is not the one the specification was
                made with.
        """
        if spec.is_given:
            raise EncoderMismatchError(
                f"the index was made with an encoder that a program gave ({spec.model}): open it "
                "in Python with Index.open(folder, encoder=...), or search with --mode bm25"
            )
        require_asked(spec.model, asked)
        loading = LoadContext(device, download, dtype=dtype)
        encoder = cls(*load_encoder(spec.settings.computed_in(dtype), loading))
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
        """The pieces of each text, cut at `max_length` if given.

        Of a transformer they are word-piece ids with prompt and special tokens, of a static encoder
        ids of words; of a meta-embedding an object whose length is the number of pieces.
        """
        require_several("texts", texts)
        texts = list(texts)
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise TypeError(f"text {number}: expected a string, found {type(text).__name__}")
            fault = string_fault(text)
            if fault is not None:
                raise BadInputError(f"text {number} {fault}")
        settings = self.spec.settings
        prompt = settings.query_prompt if query else settings.passage_prompt
        if prompt:
            texts = [prompt + text for text in texts]
        with self._busy:
            return self._model.tokenize(texts, max_length, query=query)

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[Any]:
        """As `tokenize`, cut to the window."""
        return self.tokenize(texts, query=query, max_length=self.spec.max_length)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece of the text itself."""
        with self._busy:
            return self._model.piece_offsets(text)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(self, name)

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
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
        **others: object,
    ) -> NDArray[np.float32]:
        """One vector per text; texts longer than the window are cut, and a warning counts them.

        Args:
            texts: what to encode; a single text gives one vector.
            query: whether they are queries, which may have another prompt than passages.
            batch_size: at most so many texts are encoded together; None fills batches by their
                word pieces.
            normalize_embeddings: whether to bring vectors to length 1; None follows the settings.
            prompt_name: as in sentence-transformers: ``query`` is ``query=True``; ``document``,
                ``passage`` and None follow `query`.
            convert_to_tensor: whether to return a torch tensor on the CPU.
            others: other keywords of sentence-transformers' `encode`, with values that change
                nothing here.

        Returns:
            (texts, dimensions) float32, or (dimensions,) of a single text: a C-contiguous NumPy
            array, or a tensor if asked for; rows in the order of `texts`; of length 1 unless the
            settings say otherwise, except of a text that has nothing to pool (no word that is
            known, no piece that is kept), whose vector is zero.
            A row does not depend on the other texts by more than rounding (about 1e-6).

        Raises:
            TypeError: one of the texts is no string, or a keyword is unknown.
            BadInputError: a text holds a lone surrogate.
            ConfigError: `batch_size` is below 1, or a keyword of sentence-transformers has a value
                that is set elsewhere here; the message says where.
            ModelError: a vector holds NaN or infinity, or is so long that float32 does not hold
                the square of its length.
        """
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"batch_size: expected 1 or more, found {batch_size}")
        if convert_to_tensor:
            others.pop("convert_to_numpy", None)
        if prompt_name is not None or others:
            query = query or is_query_prompt(prompt_name)
            check_encode_keywords(others)
        pieces = self._cut([texts] if isinstance(texts, str) else texts, query)
        step = batch_size or max(1, len(pieces))
        parts = [
            self.encode_pieces(pieces[start : start + step], normalize=normalize_embeddings)
            for start in range(0, max(1, len(pieces)), step)
        ]
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
        row = find_unbounded(vectors)
        if row is not None:
            raise ModelError(f"{self.spec}: text {row + 1}: {describe_unbounded(vectors[row])}")
        if isinstance(texts, str):
            (vectors,) = vectors
        if convert_to_tensor:
            import torch

            return cast("NDArray[np.float32]", torch.from_numpy(vectors))
        return vectors

    def encode_query(self, texts: str | Sequence[str], **keywords: Any) -> NDArray[np.float32]:
        """`encode` with ``query=True``."""
        return self.encode(texts, query=True, **keywords)

    def encode_document(self, texts: str | Sequence[str], **keywords: Any) -> NDArray[np.float32]:
        """`encode`, by the name of sentence-transformers."""
        return self.encode(texts, **keywords)

    # What evaluators of sentence-transformers read of a model.
    similarity_fn_name = "cosine"
    model_card_data = ModelCardData()

    def similarity(self, first: ArrayLike, second: ArrayLike) -> Any:
        """Return the cosines of (n, dimensions) with (m, dimensions) vectors; 0 of a zero vector.

        They are (n, m) float32: a torch tensor if `first` is one, else a NumPy array.
        """
        rows = np.array(np.asarray(first), np.float32, ndmin=2)
        columns = np.array(np.asarray(second), np.float32, ndmin=2)
        scale_to_unit(rows)
        scale_to_unit(columns)
        cosines = rows @ columns.T
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(first, torch.Tensor):
            return torch.from_numpy(cosines)
        return cosines

    def _cut(self, texts: Sequence[str], query: bool = False) -> list[Any]:
        pieces = self.tokenize(texts, query=query)
        long = [i for i, ids in enumerate(pieces) if len(ids) > self.spec.max_length]
        if long:
            warnings.warn(
                f"{len(long)} of {len(texts)} texts are longer than the window of "
                f"{self.spec.max_length} word pieces and were cut",
                stacklevel=3,
            )
            cut = self.truncate([texts[i] for i in long], query=query)
            for i, ids in zip(long, cut, strict=True):
                pieces[i] = ids
        return pieces

    def encode_pieces(
        self,
        pieces: Sequence[Any],
        done: Done = lambda texts, pieces: None,
        normalize: bool | None = None,
    ) -> NDArray[np.float32]:
        """As `encode`, for what `tokenize` or `truncate` gave; equal texts are encoded once.

        `done` is called after each batch with the texts and word pieces it held.

        Raises:
            RetrieverError: memory is too small even for a single text.
        """
        distinct: Sequence[Any] = pieces
        places: list[int] = []
        if all(isinstance(ids, list) for ids in pieces):
            place_of: dict[tuple[int, ...], int] = {}
            places = [place_of.setdefault(tuple(ids), len(place_of)) for ids in pieces]
            distinct = [list(ids) for ids in place_of]
        # Those of texts without pieces stay zero.
        vectors = np.zeros((len(distinct), self.spec.dimensions), np.float32)
        batches = self._model.embed_batches(distinct)
        if batches is None:
            model = self._model.in_torch() or self._model
            batches = self._batches(model.embed, distinct)
        texts = len(pieces)
        read = sum(map(len, pieces))
        for rows, found in batches:
            vectors[rows] = found[..., : self.spec.dimensions]
            size = sum(len(distinct[row]) for row in rows)
            done(len(rows), size)
            texts = texts - len(rows)
            read = read - size
        if texts:
            done(texts, read)
        if len(distinct) < len(pieces):
            vectors = vectors[places]
        if self.spec.settings.normalize is not False if normalize is None else normalize:
            scale_to_unit(vectors)
        return vectors

    def expect_many(self) -> None:
        """Compute also the first few texts as many are computed, as a process does that stays."""
        self._model.expect_many()

    def in_float32(self) -> Encoder:
        """Return the encoder with float32 as its default number format.

        It is this one where that is so anyway; else both share the tokenizer and the weights.
        """
        model = self._model.in_float32()
        if model is self._model:
            return self
        twin = None if self._twin is None else self._twin()
        if twin is None:
            twin = Encoder(self.spec, model)
            # Whoever looks for this encoder finds it as long as the other is used.
            twin._original = self
            self._twin = weakref.ref(twin)
        return twin

    @property
    def computed(self) -> frozenset[str]:
        """How vectors were computed so far, such as ``float32 by openvino 2026.4.1``."""
        # A copy: another thread may add one meanwhile.
        return frozenset(way(*one) for one in tuple(self._model.computed))

    @property
    def depth(self) -> int:
        """Transformer layers L of the model; its hidden states are 0 (embeddings) to L."""
        return self._transformer().backbone.depth

    def project(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The model's head, which the settings have on, applied to (texts, width) vectors."""
        with self._busy:
            return self._transformer().project(vectors)

    def hidden_states(self, texts: Sequence[str]) -> Iterator[TextStates]:
        """All hidden states of each text as a passage, in order; one batch is in memory at a time.

        Raises:
            ConfigError: it is no transformer.
        """
        model = self._transformer()
        pieces = self._cut(texts)
        prompt = self.spec.settings.passage_prompt or ""
        return model.text_states(pieces, [prompt + text for text in texts], len(prompt))

    def meta_parts(self) -> MetaParts:
        """What a meta-embedding consists of; `ConfigError` if it is none."""
        return self._meta().parts

    def _batches(
        self, embed: Callable[[Sequence[Any]], NDArray[np.float32]], pieces: Sequence[Any]
    ) -> Batches:
        limit = self._model.batch_pieces or BATCH_PIECES[self.spec.settings.number_format]
        for rows in filled_batches(pieces, limit):
            with self._busy:
                found = _halving(embed, [pieces[row] for row in rows])
            yield rows, found

    def _meta(self) -> MetaModel:
        from retriever.encoders.meta.model import MetaModel

        if not isinstance(self._model, MetaModel):
            raise ConfigError(
                f"{self.spec}: expected a meta-embedding, which `retriever train meta` makes"
            )
        return self._model

    def _transformer(self) -> TransformerModel:
        model = self._model.in_torch()
        if model is None:
            raise ConfigError(
                f"{self.spec}: a static encoder, a meta-embedding or an encoder behind a URL has "
                "no layers of its own; name a transformer"
            )
        model.backbone.require_layers()
        return model


def _halving(
    embed: Callable[[Sequence[Any]], NDArray[np.float32]], pieces: Sequence[Any]
) -> NDArray[np.float32]:
    """Embed a batch, in halves if memory is too small for it."""
    try:
        return embed(pieces)
    except (MemoryError, RuntimeError) as error:
        # Python's and NumPy's, or torch's on an accelerator or on a processor.
        known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if not known and "can't allocate memory" not in str(error):
            raise
        if len(pieces) == 1:
            raise RetrieverError(
                f"memory is too small to encode one text of {len(pieces[0])} word pieces: "
                "set a smaller --max-length"
            ) from error
    # Outside the handler, so that the failed batch's tensors are released first.
    half = len(pieces) // 2
    return np.concatenate([_halving(embed, pieces[:half]), _halving(embed, pieces[half:])])


def adopt(encoder: Encoder | TextEncoder | None) -> Encoder | None:
    """An encoder in the form that an index uses; None for none."""
    if encoder is None or hasattr(encoder, "encode_pieces"):
        return encoder  # type: ignore[return-value]
    if isinstance(encoder, str | type) or not hasattr(encoder, "encode"):
        raise TypeError(
            f"encoder: expected an Encoder, or an object with encode(texts), found {encoder!r:.60};"
            " give the name or the folder of a model as model"
        )
    from retriever.encoders.given import GivenModel

    model = GivenModel(encoder)
    return Encoder(model.spec, model)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which encoder an index is to use, and how to load it; see `Encoder.load`."""

    encoder: Any = ""  # A text, Path or settings; then their text form.
    device: str | None = None
    download: bool = False
    dtype: AskedDtype = "auto"  # Where `encoder` names none.
    settings: EncoderSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settings = parse_encoder(self.encoder).computed_in(self.dtype)
        object.__setattr__(self, "encoder", str(self.encoder))
        object.__setattr__(self, "settings", settings)

    def load(self) -> Encoder:
        """Load it for a new index, whose specification names a number format only if asked for."""
        dtype = self.dtype
        settings = self.settings
        if settings.dtype == "auto":
            dtype = "auto"
            settings = replace(settings, dtype=None)
        return Encoder.load(settings, device=self.device, download=self.download, dtype=dtype)

    def weights(self) -> str:
        """The identity of the model's files."""
        return find_weights(self.settings, self.download)

    def completed(self, spec: EncoderSpec) -> ModelChoice:
        """The given settings; those of `spec` for the rest if no model is named."""
        asked = self.settings
        if asked.model is not None:
            return self
        require_asked(spec.model, None)
        return replace(self, encoder=str(replace(spec.settings, **asked.named)))

    def check(self, spec: EncoderSpec, folder: object) -> None:
        """Refuse an encoder that is not the one an index was made with."""
        model = self.settings.model
        outside = ("model", *SECTIONS[COMPUTING])
        wanted = [
            format_setting(name, value)
            for name, value in self.settings.named.items()
            if name not in outside
            and value != spec.meaning(name)
            and not (name in ("layers", "fusion") and self._is_meant(spec, **{name: value}))
        ]
        if model is not None:
            same_kind = EncoderSettings(model=model, static=spec.settings.static)
            weights = find_weights(same_kind, self.download)
            if weights != spec.weights:
                wanted.insert(0, f"the model {model} with weights {weights[:12]}")
        if wanted:
            raise EncoderMismatchError(
                f"{folder}: the index was made with {spec} with weights {spec.weights[:12]}, but "
                f"{' and '.join(wanted)} was asked for; leave the option out, or make the index "
                "again with --recreate"
            )

    def _is_meant(self, spec: EncoderSpec, **setting: Any) -> bool:
        """Whether a setting says in other words what a specification does, as layers can."""
        with suppress(ConfigError):
            asked = replace(spec.settings, model=self.settings.model or spec.model, **setting)
            settings = kind_of(asked).resolve(asked, self.download)
            return replace(spec, settings=settings).fingerprint == spec.fingerprint
        return False
