"""The kinds of encoders in one place: which one a model is of, and what each kind offers.

A kind is a module with a `KIND`, which is imported on demand, and two lines of `kind_of`.
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

    MakeBackbone = Callable[[ModelFolder, str | None, Dtype], Backbone]

Span = tuple[int, int]
Batches = Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]

# The files whose presence tells a folder's kind.
META_FILE = "meta.json"
STATIC_FILE = "static.json"


class EncoderModel(ABC):
    """What an `Encoder` is made of: a tokenizer, and pieces to vectors; each kind has its own."""

    dimensions: int
    # The best number of pieces of one call of `embed`; None for that of a transformer in torch.
    batch_pieces: int | None = None
    # The number formats and engines that computed vectors so far.
    computed: Collection[tuple[Dtype, Engine]] = ()
    # Vectors of fixed texts, where these tell models apart.
    probes: NDArray[np.float32] | None = None
    runs_in_torch = False
    # Why it cannot be a source of a meta-embedding.
    not_a_source = ""

    @property
    def word_dimensions(self) -> int:
        """Components of a word's vector; 0 if the model has none for words."""
        return 0

    @property
    def reader(self) -> object:
        """Models with the same one read the same pieces of every text."""
        return self

    @abstractmethod
    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[Any]:
        """The pieces of each prompted text, cut at a number of them: what `embed` reads."""

    @abstractmethod
    def piece_offsets(self, text: str) -> list[Span]:
        """(start, stop) character offsets of each piece, special tokens left out."""

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[Any], list[list[Span]]]:
        """The pieces of whole texts, and the offsets of each; (0, 0) for special tokens."""
        return self.tokenize(texts, query=query), [self.piece_offsets(text) for text in texts]

    @abstractmethod
    def embed(self, pieces: Sequence[Any]) -> NDArray[np.float32]:
        """(texts, dimensions) for one batch of what `tokenize` gave; not normalized."""

    def embed_batches(self, pieces: Sequence[Any]) -> Batches | None:
        """Rows and their vectors by an engine that makes batches; None without such an engine."""
        return None

    def piece_batches(self, pieces: Sequence[Any]) -> Batches:
        """Rows and the vectors of their pieces: undefined at padding, valid until the next.

        TypeError: the model has no `word_dimensions`, so that no word is asked for.
        """
        raise TypeError(f"{type(self).__name__} has no vectors of words")

    def expect_many(self) -> None:
        """Leave out what computes a few texts sooner and many texts slowly."""
        return

    def in_float32(self) -> EncoderModel:
        """The model without a default number format other than float32; itself if it has none."""
        return self

    def in_torch(self) -> TransformerModel | None:
        """The same model in torch; None if it is no transformer."""
        return None


@dataclass(frozen=True, slots=True)
class SizedText:
    """A text, how many pieces it has, and whether it is a query."""

    text: str
    pieces: int
    query: bool = False

    def __len__(self) -> int:
        return self.pieces


def after_prompt(offsets: Sequence[Span], prompt: int) -> list[Span]:
    """Offsets in the text after a prompt of so many characters; (0, 0) for pieces of the prompt."""
    return [
        (max(start - prompt, 0), stop - prompt) if stop > prompt else (0, 0)
        for start, stop in offsets
    ]


class LoadContext(NamedTuple):
    """Where and with what an encoder is loaded."""

    device: str | None = None
    download: bool = False
    # Makes or shares the backbone of a transformer; None runs without torch where that pays.
    backbone_of: MakeBackbone | None = None
    dtype: AskedDtype = "float32"  # Where the settings name none.


class Kind(NamedTuple):
    """What a kind of encoders offers."""

    load: Callable[[EncoderSettings, LoadContext], tuple[EncoderSpec, EncoderModel]]
    # The booleans are `download`.
    weights: Callable[[EncoderSettings, bool], str]
    # Its ``backend`` on this machine, or the parts of a ``meta``-embedding.
    describe: Callable[[EncoderSpec], dict[str, Any]] = lambda spec: {}
    # The settings as a specification has them, the window aside.
    resolve: Callable[[EncoderSettings, bool], EncoderSettings] = lambda asked, download: asked


def is_url(model: str | None) -> bool:
    """Whether a model is behind a URL."""
    return re.match(r"https?://", model or "") is not None


def is_folder_with(file: str, model: str | os.PathLike[str]) -> bool:
    """Whether a model is a folder that holds a file."""
    return os.path.isfile(os.path.join(model, file))


def kind_of(asked: EncoderSettings) -> Kind:
    """The kind of an encoder, imported now."""
    model = asked.model or DEFAULT_MODEL
    module = "transformer.loading"
    if model.endswith(".npy"):
        module = "given"
    elif is_url(model):
        module = "remote"
    elif is_folder_with(META_FILE, model):
        module = "meta.model"
    elif asked.static is not None or is_folder_with(STATIC_FILE, model) or os.path.isfile(model):
        module = "static.model"
    elif os.path.isdir(model):
        from retriever.encoders.model_folders import find_token_table

        if find_token_table(Path(model)) is not None:
            module = "static.model"
    kind: Kind = import_module(f"retriever.encoders.{module}").KIND
    return kind


def load_encoder(asked: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, EncoderModel]:
    """Load an encoder; where its dimensions are fewer than the model's, the first ones count."""
    spec, model = kind_of(asked).load(replace(asked, dimensions=None), loading)
    wanted = asked.dimensions
    if wanted in (None, spec.dimensions):
        return spec, model
    if wanted > spec.dimensions:
        raise ConfigError(
            f"dimensions: the vectors of {spec} have {spec.dimensions}, found {wanted}; name "
            "fewer, or leave it out"
        )
    settings = replace(spec.settings, dimensions=wanted)
    return replace(spec, settings=settings, dimensions=wanted), model


def find_weights(asked: EncoderSettings, download: bool) -> str:
    """The identity of the files that would be loaded."""
    return kind_of(asked).weights(asked, download)


def describe(spec: EncoderSpec) -> dict[str, Any]:
    """Facts of an encoder for a person: ``backend`` and ``meta``, each None if it has none."""
    found = {} if spec.is_given else kind_of(spec.settings).describe(spec)
    return {"backend": None, "meta": None, **found}


def require_asked(stored: str, asked: str | None) -> None:
    """Refuse a URL that a folder names (`stored`), unless the user names (`asked`) or trusts it.

    Whoever made the folder chose it; texts and the key would go there.
    """
    if is_url(stored):
        import_module("retriever.encoders.remote").require_asked(stored, asked)


def refuse_settings(asked: EncoderSettings, own: Collection[str], reason: str) -> None:
    """Refuse settings that a kind of encoders does not have."""
    for name in asked.named:
        if name not in own:
            key = name.replace("_", "-")
            raise ConfigError(f"{key}: {asked.model} {reason}")


def plain_settings(asked: EncoderSettings, **values: Any) -> EncoderSettings:
    """Settings with others in place of some, which name no value that is the plain one."""
    return replace(
        asked,
        normalize=False if asked.normalize is False else None,
        query_prompt=asked.query_prompt or None,
        passage_prompt=asked.passage_prompt or None,
        **values,
    )
