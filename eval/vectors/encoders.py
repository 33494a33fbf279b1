"""Many encoders by their text forms, and their vectors of sets of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from eval.vectors.cache import Embedded, embed
from eval.vectors.embedding import TextVectors, embed_all
from eval.vectors.layers import layer_form, split_layers
from eval.vectors.shared_backbone import load_encoders
from retriever.encoders.encoder import Encoder
from retriever.encoders.models.finding import DEFAULT_MODEL
from retriever.encoders.settings import EncoderSettings, Pooling, over_model, parse_encoder
from retriever.encoders.static.folder import FITTED, is_static_folder
from retriever.encoders.static.model import fit_static
from retriever.errors import ConfigError, require_several

Done = Callable[[int], object]

LISTS: Mapping[str, tuple[str, ...]] = {
    "paper": (
        "last",
        "last::pooling=cls",
        "last::pooling=max",
        "last4",
        "layers=all",
        "top-bottom",
        "sbert-wk",
        "sbert-wk::wk-preset=released",
        "lc:0,-1",
        "static=sif",
        "static=usif",
        "static=p-mean",
        "static=average",
    )
}
"""Name of a list of encoders to their settings, all over one model."""


@dataclass(frozen=True, slots=True, eq=False)
class SentenceVectors:
    """The vectors of texts under one encoder.

    Attributes:
        name: the encoder's text form, as it was given.
        vectors: by text.
        cut: number of texts that are longer than the window and lost their ends.
    """

    name: str
    vectors: TextVectors
    cut: int


@dataclass(frozen=True, slots=True)
class Loading:
    """Where models come from, and where vectors are cached.

    Attributes:
        device: a torch device; None takes a GPU if there is one.
        download: download models that are not in the local hub cache.
        cache: a folder that keeps vectors, see `default_cache`; None keeps none.
    """

    device: str | None = None
    download: bool = False
    cache: Path | None = None

    def load(self, encoder: str | EncoderSettings) -> Encoder:
        """Load an encoder by its text form or settings; raises what `Encoder.load` raises."""
        return Encoder.load(encoder, device=self.device, download=self.download)

    def load_together(self, encoders: Sequence[str]) -> list[Encoder]:
        """Load encoders that share the forward passes of a model; see `load_encoders`."""
        return load_encoders(encoders, device=self.device, download=self.download)


def named_encoders(
    encoders: Sequence[str], lists: Sequence[str] = (), model: str | None = None
) -> tuple[str, ...]:
    """The text forms of encoders, those of lists first.

    Args:
        encoders: text forms; one without a model (``::lc:0,6``) gets `model`.
        lists: names in `LISTS`.
        model: of the lists, and of forms without one; None is the bundled model.

    Raises:
        ConfigError: a list or setting is unknown, an encoder is named twice, or there is none.
        TypeError: one string instead of several.
    """
    require_several("encoders", encoders)
    require_several("lists", lists)
    model = model or DEFAULT_MODEL
    listed = [f"::{setting}" for name in lists for setting in _listed(name)]
    forms = [over_model(form, model) for form in (*listed, *encoders)]
    if not forms:
        raise ConfigError(
            f"encoder: expected at least one, found none; name one with --encoder, such as {model}"
        )
    seen: dict[EncoderSettings, str] = {}
    for form in forms:
        asked = parse_encoder(form)
        if asked in seen:
            raise ConfigError(f"encoder: {form} is {seen[asked]} again; name each once")
        seen[asked] = form
    return tuple(forms)


class SentenceEncoders:
    """Encoders, loaded once for all sets of texts.

    An encoder with ``static=sif`` or ``static=usif`` over a model or a file of word vectors is
    fitted on the texts of each set, as in the papers of both. A folder that `retriever fit static`
    wrote is used as it is.

    Args:
        forms: the text forms, see `named_encoders`.
        loading: where they come from.

    Raises:
        What `Encoder.load` raises.
    """

    def __init__(self, forms: Sequence[str], loading: Loading) -> None:
        self.names = tuple(forms)
        self._loading = loading
        self._fitted = {form for form in forms if is_fitted(form)}
        ready = [form for form in forms if form not in self._fitted]
        self._ready = dict(zip(ready, self._load(ready), strict=True))

    def vectors(
        self, texts: Sequence[str], fit_on: Sequence[str], done: Done = lambda vectors: None
    ) -> Iterator[SentenceVectors]:
        """The vectors of texts under one encoder after the other.

        Args:
            texts: distinct texts.
            fit_on: the texts that encoders are fitted on.
            done: called with the number of new vectors; `names` times `texts` in all.

        Raises:
            SourceError: no text has a word that an encoder to be fitted knows.
            StorageError: the cache cannot be used.
        """
        encoders = [
            self._fit(form, fit_on) if form in self._fitted else self._ready[form]
            for form in self.names
        ]
        found = embed_all(encoders, texts, self._loading.cache, done)
        for name, one in zip(self.names, found, strict=True):
            yield SentenceVectors(name, TextVectors(texts, one.vectors), one.cut)

    def _load(self, forms: Sequence[str]) -> list[Encoder]:
        return self._loading.load_together(forms)

    def _fit(self, form: str, texts: Sequence[str]) -> Encoder:
        asked = parse_encoder(form)
        assert asked.static is not None
        model = fit_static(
            asked.model or DEFAULT_MODEL, asked.static, texts, download=self._loading.download
        )
        with TemporaryDirectory() as folder:
            saved = Path(folder) / "fitted"
            model.save(saved)
            (encoder,) = self._load([str(replace(asked, model=str(saved), static=None))])
        return encoder


class LayerEncoders:
    """Every hidden state of models, with several poolings.

    Args:
        forms: text forms of models, with prompts, window, number format and special tokens; layers,
            fusion, pooling, head and normalization are refused.
        poolings: over the word pieces of a layer.
        loading: where they come from.

    Raises:
        ConfigError: a form has a setting that is refused, or a pooling is unknown or named twice.
        What `Encoder.load` raises.
    """

    def __init__(self, forms: Sequence[str], poolings: Sequence[Pooling], loading: Loading) -> None:
        require_several("poolings", poolings)
        if len(set(poolings)) < len(poolings) or not set(poolings) <= set(get_args(Pooling)):
            raise ConfigError(
                f"poolings: expected some of {', '.join(get_args(Pooling))}, each once, found "
                f"{', '.join(poolings)}"
            )
        self.names = tuple(forms)
        self.poolings = tuple(poolings)
        self._loading = loading
        layered = [layer_form(form, pooling) for form in forms for pooling in poolings]
        self._encoders = loading.load_together(layered)

    def depth(self, name: str) -> int:
        """Transformer layers of a model; it has one more hidden state."""
        return self._encoders[self.names.index(name) * len(self.poolings)].depth

    def vectors(
        self, texts: Sequence[str], done: Done = lambda vectors: None
    ) -> Iterator[tuple[Pooling, SentenceVectors]]:
        """Pooling and vectors, (hidden states, width) for each text, model by model.

        `texts` and `done` are as in `SentenceEncoders.vectors`, with each pooling as an encoder.
        """
        found = embed_all(self._encoders, texts, self._loading.cache, done)
        for number, (encoder, one) in enumerate(zip(self._encoders, found, strict=True)):
            model, pooling = divmod(number, len(self.poolings))
            states = split_layers(one.vectors, encoder.depth)
            vectors = SentenceVectors(self.names[model], TextVectors(texts, states), one.cut)
            yield self.poolings[pooling], vectors

    def queries(
        self, texts: Sequence[str], done: Done = lambda vectors: None
    ) -> Iterator[Embedded]:
        """(texts, hidden states, width) of texts as queries, in the order of `vectors`."""
        for encoder in self._encoders:
            found = embed(encoder, texts, self._loading.cache, query=True, done=done)
            yield Embedded(split_layers(found.vectors, encoder.depth), found.cut)


def _listed(name: str) -> tuple[str, ...]:
    if name not in LISTS:
        raise ConfigError(f"encoders: expected {', '.join(LISTS)}, found {name!r}")
    return LISTS[name]


def is_fitted(form: str) -> bool:
    """Whether an encoder is fitted on each set of texts."""
    asked = parse_encoder(form)
    return asked.static in FITTED and not is_static_folder(asked.model or DEFAULT_MODEL)


def fitted_remark(forms: Sequence[str], texts: str) -> list[str]:
    """A remark on the encoders that are fitted on `texts` of each set; none if there are none."""
    fitted = [form for form in forms if is_fitted(form)]
    return [f"fitted on each set, on {texts}: {', '.join(fitted)}"] if fitted else []
