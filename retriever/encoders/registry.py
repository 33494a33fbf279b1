"""Registry of the kinds of encoders, and the base class of their models.

To add a kind, write a module with a `KIND`, and two lines in `kind_of`, which imports it on demand.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import DEFAULT_MODEL, AskedDtype, EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from retriever.encoders.computing import Engine
    from retriever.encoders.model_folders import ModelFolder
    from retriever.encoders.settings import Dtype
    from retriever.encoders.transformer.backbone import Backbone
    from retriever.encoders.transformer.model import TransformerModel
    from retriever.encoders.transformer.piece_model import TextStates
    from retriever.encoders.transformer.sharing import BackboneSharing

    MakeBackbone = Callable[[ModelFolder, str | None, Dtype], Backbone]

Span = tuple[int, int]
Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]

# Files whose presence decides the kind of a folder.
META_FILE = "meta.json"
STATIC_FILE = "static.json"


class EncoderModel(ABC):
    """The model of an `Encoder`: a tokenizer, and a function from pieces to vectors."""

    dimensions: int
    # Preferred number of pieces of a call of `embed`; None for the default in torch.
    batch_pieces: int | None = None
    # Number formats and engines that computed vectors so far.
    computed: Collection[tuple[Dtype, Engine]] = ()
    # Vectors of fixed texts, where only these identify the model, as behind a URL.
    probes: NDArray[np.float32] | None = None
    runs_in_torch = False
    # The reason why the model cannot be a source of a meta-embedding; empty if it can.
    not_a_source = ""

    @property
    def depth(self) -> int:
        """Number L of layers, whose hidden states are 0 (embeddings) to L; 0 without layers."""
        return 0

    @property
    def word_dimensions(self) -> int:
        """Number of components of a word's vector; 0 if words have no vectors."""
        return 0

    @property
    def reader(self) -> object:
        """Identity of the tokenizer: models with an equal reader read the same pieces."""
        return self

    @abstractmethod
    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[Any]:
        """Return the pieces of each prompted text for `embed`, cut to `max_length` if it is set."""

    @abstractmethod
    def piece_offsets(self, text: str) -> list[Span]:
        """Return the (start, stop) character offsets of each piece, without special tokens."""

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[Any], list[list[Span]]]:
        """Return the pieces of whole texts, and their offsets; (0, 0) for special tokens."""
        return self.tokenize(texts, query=query), [self.piece_offsets(text) for text in texts]

    @abstractmethod
    def embed(self, pieces: Sequence[Any]) -> NDArray[np.float32]:
        """Return (texts, dimensions) vectors of a batch from `tokenize`, not normalized."""

    def embed_batches(self, pieces: Sequence[Any]) -> Batches | None:
        """Yield rows and their vectors; return None if the engine makes no batches itself."""
        return None

    def piece_batches(self, pieces: Sequence[Any]) -> Batches:
        """Yield rows and the vectors of their pieces, valid until the next batch.

        Vectors at padding are undefined.

        Raises:
            TypeError: the model has no vectors of words.
        """
        raise TypeError(f"{type(self).__name__} has no vectors of words")

    def text_states(
        self, pieces: Sequence[Any], texts: Sequence[str], prompt: int
    ) -> Iterator[TextStates]:
        """Yield the hidden states of each text, in order.

        Args:
            pieces: from `tokenize`.
            texts: the same texts with their prompts.
            prompt: number of characters of a prompt.

        Raises:
            TypeError: the model has no layers.
        """
        raise TypeError(f"{type(self).__name__} has no layers")

    def project(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the head, if there is one, to (texts, width) vectors."""
        return vectors

    def expect_many(self) -> None:
        """Use the bulk engine from the first text on."""
        return

    def in_float32(self) -> EncoderModel:
        """Return the model with float32 as its default number format; itself if it has no other."""
        return self

    def in_torch(self) -> TransformerModel | None:
        """Return the same model in torch; None if it is no transformer."""
        return None


@dataclass(frozen=True, slots=True)
class SizedText:
    """A text, its number of pieces, and whether it is a query."""

    text: str
    pieces: int
    query: bool = False

    def __len__(self) -> int:
        return self.pieces


def after_prompt(offsets: Sequence[Span], prompt: int) -> list[Span]:
    """Subtract the length of a prompt from offsets; (0, 0) for pieces of the prompt."""
    return [
        (max(start - prompt, 0), stop - prompt) if stop > prompt else (0, 0)
        for start, stop in offsets
    ]


class LoadContext(NamedTuple):
    """How to load an encoder: device, downloads, backbone, sharing and number format."""

    device: str | None = None
    download: bool = False
    # Makes the backbone of a transformer in torch; None runs without torch if that is faster.
    make_backbone: MakeBackbone | None = None
    # The backbones that encoders share; None for an encoder on its own.
    sharing: BackboneSharing | None = None
    dtype: AskedDtype = "float32"  # Used if the settings name none.


class EncoderKind(NamedTuple):
    """The functions of a kind of encoders."""

    load: Callable[[EncoderSettings, LoadContext], tuple[EncoderSpec, EncoderModel]]
    # The booleans are `download`.
    weights: Callable[[EncoderSettings, bool], str]
    # Returns its ``backend`` on this machine, or the parts of a ``meta``-embedding.
    describe: Callable[[EncoderSpec], dict[str, Any]] = lambda spec: {}
    # Returns the settings of the specification, except the window.
    resolve: Callable[[EncoderSettings, bool], EncoderSettings] = lambda requested, download: (
        requested
    )


def is_url(model: str | None) -> bool:
    """Return whether a model is behind a URL."""
    return re.match(r"https?://", model or "") is not None


def is_folder_with(file: str, model: str | os.PathLike[str]) -> bool:
    """Return whether a model is a folder that holds a file."""
    return os.path.isfile(os.path.join(model, file))


def kind_of(requested: EncoderSettings) -> EncoderKind:
    """Return the kind of an encoder, imported on demand."""
    model = requested.model or DEFAULT_MODEL
    module = "transformer.loading"
    if model.endswith(".npy"):
        module = "vector_table"
    elif is_url(model):
        module = "remote"
    elif is_folder_with(META_FILE, model):
        module = "meta.model"
    elif (
        requested.static is not None or is_folder_with(STATIC_FILE, model) or os.path.isfile(model)
    ):
        module = "static.model"
    elif os.path.isdir(model):
        from retriever.encoders.model_folders import find_token_table

        if find_token_table(Path(model)) is not None:
            module = "static.model"
    kind: EncoderKind = import_module(f"retriever.encoders.{module}").KIND
    return kind


def load_encoder(
    requested: EncoderSettings, loading: LoadContext
) -> tuple[EncoderSpec, EncoderModel]:
    """Load an encoder; its settings may name fewer dimensions than the model has."""
    spec, model = kind_of(requested).load(replace(requested, dimensions=None), loading)
    dimensions = requested.dimensions
    if dimensions in (None, spec.dimensions):
        return spec, model
    if dimensions > spec.dimensions:
        raise ConfigError(
            f"dimensions: the vectors of {spec} have {spec.dimensions}, found {dimensions}; name "
            "fewer, or leave it out"
        )
    settings = replace(spec.settings, dimensions=dimensions)
    return replace(spec, settings=settings, dimensions=dimensions), model


def find_weights(requested: EncoderSettings, download: bool) -> str:
    """Return the identity of the files that would be loaded."""
    return kind_of(requested).weights(requested, download)


def describe(spec: EncoderSpec) -> dict[str, Any]:
    """Return facts of an encoder to show: ``backend`` and ``meta``, or None for each."""
    facts = {} if spec.is_given else kind_of(spec.settings).describe(spec)
    return {"backend": None, "meta": None, **facts}


def require_trusted(stored: str, requested: str | None) -> None:
    """Refuse a stored URL that the user neither names (`requested`) nor trusts.

    The author of the folder chose the URL. Texts and the key would go there.
    """
    if is_url(stored):
        import_module("retriever.encoders.remote").require_trusted(stored, requested)


def refuse_settings(requested: EncoderSettings, allowed: Collection[str], reason: str) -> None:
    """Refuse settings other than the `allowed` ones."""
    for name in requested.named:
        if name not in allowed:
            key = name.replace("_", "-")
            raise ConfigError(f"{key}: {requested.model} {reason}")


def plain_settings(requested: EncoderSettings, **values: Any) -> EncoderSettings:
    """Return a copy with `values` replaced and default values removed."""
    return replace(
        requested,
        normalize=False if requested.normalize is False else None,
        query_prompt=requested.query_prompt or None,
        passage_prompt=requested.passage_prompt or None,
        **values,
    )
