"""A meta-embedding in a folder of its own.

::

    meta.json                method, level, pooling, sources with their fingerprints; written last
    projection.safetensors   per source a matrix and a mean, and the weights of the sources
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from indexes import whole_folder
from retriever.encoders.meta.linear import Floats, Projection, WordPooling
from retriever.encoders.meta.sources import Level
from retriever.encoders.models.folder_form import FolderForm, array_digest
from retriever.encoders.registry import META_FILE
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError

Method = Literal["conc", "avg", "svd", "gcca", "sup", "unsup"]

_FORM = FolderForm(
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


@dataclass(frozen=True, slots=True, eq=False)
class MetaParts:
    """What a meta-embedding consists of.

    Attributes:
        method: how the map was found.
        level: whether it maps words, which are then pooled, or texts.
        pooling: of words; texts are not pooled.
        projection: the map.
        sources: the specification of each source, in the order of the map's parts.
        parameters: the settings of the method, for a person; they decide nothing.
        provenance: what it was fitted on, likewise.
        places: of sources that are on this disk, where they are seen from the folder's parent, so
            that they are found from any working folder and move together; None for the others.
    """

    method: Method
    level: Level
    pooling: WordPooling
    projection: Projection
    sources: tuple[EncoderSpec, ...]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    places: tuple[str | None, ...] = ()

    def identity(self) -> str:
        """SHA-256 over everything that decides a vector, in hexadecimal.

        `EncoderSpec.PROBED` precedes it where a program passes a source.
        """
        content = {
            "level": self.level,
            "pooling": self.pooling if self.level == "word" else None,
            "sources": [spec.fingerprint for spec in self.sources],
            "projection": {
                name: array_digest(one) for name, one in _tensors(self.projection).items()
            },
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        given = any(spec.is_given for spec in self.sources)
        return f"{EncoderSpec.PROBED}{digest}" if given else digest

    def describe(self) -> dict[str, Any]:
        """What a person wants to know, as JSON values."""
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


def check_target(folder: Path) -> None:
    """Refuse a folder that a meta-embedding cannot be written to.

    Raises:
        ConfigError: it holds something else, is a file, or is in a folder that does not exist.
    """
    _FORM.check_target(folder)


def write_folder(folder: Path, parts: MetaParts) -> None:
    """Write a meta-embedding; the folder appears complete, or not at all.

    Raises:
        ConfigError: what `check_target` raises.
        StorageError: the disk is full or cannot be written.
    """
    check_target(folder)
    settings = {
        "format": _FORM.version,
        "method": parts.method,
        "level": parts.level,
        "pooling": parts.pooling,
        "sources": [_source(spec, folder) for spec in parts.sources],
        "parameters": dict(parts.parameters),
        "provenance": dict(parts.provenance),
        "weights": parts.identity(),
    }
    with whole_folder(folder) as new:
        _FORM.write_arrays(new, _tensors(parts.projection))
        _FORM.write_settings(new, settings)


def read_folder(folder: Path) -> MetaParts:
    """Read what `write_folder` wrote; no source is loaded.

    Raises:
        ModelError: a file is missing, altered or of another form, or written by a newer release.
    """
    settings = _FORM.read_settings(folder)
    tensors = _FORM.read_arrays(folder)
    try:
        specs = tuple(EncoderSpec.from_json(_spec_of(one)) for one in settings["sources"])
        count = range(len(specs))
        projection = Projection(
            tuple(tensors[f"matrix.{number}"] for number in count),
            tuple(tensors[f"mean.{number}"] for number in count),
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
            tuple(one.get("place") for one in settings["sources"]),
        )
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise _FORM.altered(folder / _FORM.settings, repr(error)) from error
    if parts.identity() != settings["weights"]:
        raise _FORM.altered(folder, "another SHA-256 than meta.json says")
    return parts


def _source(spec: EncoderSpec, folder: Path) -> dict[str, Any]:
    place = None
    if os.path.exists(spec.model):
        place = os.path.relpath(os.path.abspath(spec.model), folder.resolve().parent)
    return {**spec.to_json(), "fingerprint": spec.fingerprint, "place": place}


def _spec_of(source: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key not in ("fingerprint", "place")}


def _tensors(projection: Projection) -> dict[str, Floats]:
    named = {f"matrix.{number}": one for number, one in enumerate(projection.matrices)}
    named |= {f"mean.{number}": one for number, one in enumerate(projection.means)}
    return named | {"weights": projection.weights}
