"""A meta-embedding and its folder.

::

    meta.json                method, level, pooling, sources with their fingerprints; written last
    projection.safetensors   for each source a matrix and a mean; the weights of the sources
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.folder_form import FolderForm, array_digest
from retriever.encoders.meta.linear import Floats, Projection, pool_words
from retriever.encoders.meta.settings import Level, Method, WordPooling
from retriever.encoders.meta.sources import MetaPieces, MetaSource, MetaSources
from retriever.encoders.model_folders import MALFORMED
from retriever.encoders.registry import (
    META_FILE,
    EncoderKind,
    EncoderModel,
    LoadContext,
    is_url,
    kind_of,
    plain_settings,
    refuse_settings,
)
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.sharing import BackboneSharing
from retriever.errors import ConfigError, EncoderMismatchError, ModelError

FORM = FolderForm(
    what="a meta-embedding's folder",
    command="retriever train meta",
    again="train again",
    version=1,
    settings=META_FILE,
    arrays="projection.safetensors",
    keys={
        "format": int,
        "method": str,
        "level": str,
        "pooling": str,
        "sources": list,
        "parameters": dict,
        "provenance": dict,
        "weights": str,
    },
    choices={
        "method": get_args(Method),
        "level": get_args(Level),
        "pooling": get_args(WordPooling),
    },
)
# Settings of a meta-embedding. Its sources have the others.
_ALLOWED_SETTINGS = ("model", "normalize", "max_length")


@dataclass(frozen=True, slots=True, eq=False)
class MetaParts:
    """The parts of a meta-embedding; parameters and provenance are shown to the user."""

    method: Method
    level: Level
    # Pooling of words. Vectors of texts are not pooled.
    pooling: WordPooling
    projection: Projection
    # In the order of the matrices.
    sources: tuple[EncoderSpec, ...]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    # Paths of local sources, relative to the folder's parent; None for other sources. They hold in
    # any working folder, and after sources and folder are moved together.
    places: tuple[str | None, ...] = ()

    def identity(self) -> str:
        """Return the SHA-256 over everything that decides a vector, in hexadecimal."""
        content = {
            "level": self.level,
            "pooling": self.pooling if self.level == "word" else None,
            "sources": [spec.fingerprint for spec in self.sources],
            "projection": {
                name: array_digest(array) for name, array in _tensors(self.projection).items()
            },
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the facts to show, as JSON values."""
        return {
            "method": self.method,
            "level": self.level,
            "pooling": self.pooling if self.level == "word" else None,
            "dimensions": self.projection.dimensions,
            "sources": [
                {
                    "encoder": str(spec),
                    "weight": float(weight),
                    "dimensions": matrix.shape[1],
                    "window": spec.max_length,
                    "fingerprint": spec.fingerprint,
                }
                for spec, weight, matrix in zip(
                    self.sources, self.projection.weights, self.projection.matrices, strict=True
                )
            ],
            "parameters": dict(self.parameters),
            "provenance": dict(self.provenance),
        }


def read_folder(folder: Path) -> MetaParts:
    """Read a folder that `MetaModel.save` wrote, without loading sources."""
    settings = FORM.read_settings(folder)
    tensors = FORM.read_arrays(folder)
    try:
        sources = settings["sources"]
        places = tuple(source.pop("place", None) for source in sources)
        if not all(place is None or isinstance(place, str) for place in places):
            raise TypeError(f"{places!r:.40} as place")
        for source in sources:
            source.pop("fingerprint", None)
        specs = tuple(map(EncoderSpec.from_json, sources))
        if objects := [spec.model for spec in specs if spec.is_given]:
            raise ModelError(
                f"{folder}: its source {objects[0]!r} is a Python object, which is no longer "
                "supported; train again with named encoders"
            )
        numbers = range(len(specs))
        projection = Projection(
            tuple(tensors[f"matrix.{number}"] for number in numbers),
            tuple(tensors[f"mean.{number}"] for number in numbers),
            tensors["weights"],
        )
        parts = MetaParts(
            settings["method"],
            settings["level"],
            settings["pooling"],
            projection,
            specs,
            settings["parameters"],
            settings["provenance"],
            places,
        )
    except (ConfigError, *MALFORMED) as error:
        raise FORM.altered(folder / FORM.settings, repr(error)) from error
    if parts.identity() != settings["weights"]:
        raise FORM.altered(folder, "another SHA-256 than meta.json says")
    return parts


def _tensors(projection: Projection) -> dict[str, Floats]:
    tensors = {f"matrix.{number}": array for number, array in enumerate(projection.matrices)}
    tensors |= {f"mean.{number}": array for number, array in enumerate(projection.means)}
    return tensors | {"weights": projection.weights}


class MetaModel(EncoderModel):
    """A meta-embedding, made with `MetaModel.load` or `fit_meta`."""

    not_a_source = "is a meta-embedding itself; name the sources that it is made of"

    def __init__(self, sources: MetaSources, parts: MetaParts) -> None:
        self.sources = sources
        self.parts = parts
        self.dimensions = parts.projection.dimensions
        self.weights = parts.identity()
        self.batch_pieces = sources.batch_pieces

    @classmethod
    def load(cls, folder: str, loading: LoadContext) -> MetaModel:
        """Load a folder and its sources."""
        parts = read_folder(Path(folder))
        # Sources with the same model share its forward pass.
        sharing_context = loading._replace(sharing=loading.sharing or BackboneSharing())
        weights = Counter(spec.weights for spec in parts.sources)
        loaded: list[MetaSource] = []
        for spec, place in zip(parts.sources, parts.places, strict=True):
            context = loading if weights[spec.weights] == 1 else sharing_context
            source, model = _load_source(spec, place, Path(folder), context)
            if source.fingerprint != spec.fingerprint:
                raise EncoderMismatchError(
                    f"{folder}: its source {spec.model} has changed: expected encoder "
                    f"{spec.fingerprint}, found {source.fingerprint}; install the source that the "
                    "folder was made with, or train again"
                )
            # Keep the name in the folder, even if the source was moved.
            loaded.append(MetaSource(replace(source, settings=spec.settings), model))
        return cls(MetaSources(loaded, parts.level), parts)

    def save(self, folder: Path) -> None:
        """Write map and names of sources into a folder, which appears complete or not at all."""
        FORM.check_target(folder)
        parts = self.parts
        sources = []
        for spec in parts.sources:
            place = None
            if os.path.exists(spec.model):
                place = os.path.relpath(os.path.abspath(spec.model), folder.resolve().parent)
            facts = {"fingerprint": spec.fingerprint, "place": place}
            sources.append({**spec.to_json(), **facts})
        settings = {
            "format": FORM.version,
            "method": parts.method,
            "level": parts.level,
            "pooling": parts.pooling,
            "sources": sources,
            "parameters": dict(parts.parameters),
            "provenance": dict(parts.provenance),
            "weights": self.weights,
        }
        with whole_folder(folder) as new:
            FORM.write_arrays(new, _tensors(parts.projection))
            FORM.write_settings(new, settings)

    def spec(self, requested: EncoderSettings) -> EncoderSpec:
        """Return the specification of the vectors, for settings that name this folder."""
        refuse_settings(
            requested,
            _ALLOWED_SETTINGS,
            "is a meta-embedding, whose sources have their own settings; leave it out, or train "
            "another with the source named as you want it",
        )
        window = requested.max_length or self.sources.window
        if window > self.sources.window:
            raise ConfigError(
                f"max-length: expected at most {self.sources.window}, the smallest window of the "
                f"sources of {requested.model}, found {window}"
            )
        settings = plain_settings(requested, max_length=window)
        return EncoderSpec(settings, self.weights, self.dimensions)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[MetaPieces]:
        """Return the pieces of each text; see `MetaSources.tokenize`."""
        return self.sources.tokenize(texts, max_length, query=query)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the offsets of pieces; see `MetaSources.piece_offsets`."""
        return self.sources.piece_offsets(text)

    def embed(self, pieces: Sequence[MetaPieces]) -> NDArray[np.float32]:
        """Return one vector per text, not normalized."""
        vectors, sentences = self.sources.vectors(pieces)
        return pool_words(
            vectors, sentences, len(pieces), self.parts.projection, self.parts.pooling
        )


def _load_source(
    spec: EncoderSpec, place: str | None, folder: Path, loading: LoadContext
) -> tuple[EncoderSpec, EncoderModel]:
    moved = os.path.join(folder.resolve().parent, place) if place else ""
    name = moved if os.path.exists(moved) else spec.model
    if is_url(name):
        raise ConfigError(f"{folder}: expected sources on this machine, found a URL")
    try:
        settings = replace(spec.settings, model=name)
        return kind_of(settings).load(settings, loading)
    except ModelError as error:
        raise ModelError(f"{folder}: its source {spec.model} cannot be loaded: {error}") from error


def _load(requested: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, MetaModel]:
    model = MetaModel.load(requested.model or "", loading)
    return model.spec(requested), model


def _describe(spec: EncoderSpec) -> dict[str, Any]:
    """Return the facts of a folder, if it is the one of the specification."""
    with suppress(ModelError):
        parts = read_folder(Path(spec.model))
        if parts.identity() == spec.weights:
            return {"meta": parts.describe()}
    return {}


KIND = EncoderKind(
    load=_load,
    weights=lambda requested, download: read_folder(Path(requested.model or "")).identity(),
    describe=_describe,
)
