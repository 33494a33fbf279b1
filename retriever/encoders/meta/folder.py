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

import numpy as np

from indexes import whole_folder
from retriever.encoders.meta.linear import Floats, Projection, WordPooling
from retriever.encoders.meta.sources import Level
from retriever.encoders.model_settings import read_json
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, ModelError, StorageError
from retriever.output_files import check_output

Method = Literal["conc", "avg", "svd", "gcca", "sup", "unsup"]

FORMAT = 1
_SETTINGS, _TENSORS = "meta.json", "projection.safetensors"
_FILES = {_SETTINGS, _TENSORS}
_KEYS = {
    "format": int,
    "method": str,
    "level": str,
    "pooling": str,
    "sources": list,
    "parameters": dict,
    "provenance": dict,
    "weights": str,
}


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
            "projection": {name: _digest(one) for name, one in _tensors(self.projection).items()},
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


def is_meta_folder(path: str | Path) -> bool:
    """Whether a folder holds a meta-embedding."""
    return os.path.isfile(os.path.join(path, _SETTINGS))


def check_target(folder: Path) -> None:
    """Refuse a folder that a meta-embedding cannot be written to.

    Raises:
        ConfigError: it holds something else, is a file, or is in a folder that does not exist.
    """

    def strange(names: set[str]) -> str | None:
        if _SETTINGS in names and names <= _FILES:
            return None
        return min(names - _FILES, default=min(names))

    check_output(folder, "a meta-embedding's folder", strange)


def write_folder(folder: Path, parts: MetaParts) -> None:
    """Write a meta-embedding; the folder appears complete, or not at all.

    Raises:
        ConfigError: what `check_target` raises.
        StorageError: the disk is full or cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    check_target(folder)
    settings = {
        "format": FORMAT,
        "method": parts.method,
        "level": parts.level,
        "pooling": parts.pooling,
        "sources": [_source(spec, folder) for spec in parts.sources],
        "parameters": dict(parts.parameters),
        "provenance": dict(parts.provenance),
        "weights": parts.identity(),
    }
    with whole_folder(folder) as new:
        try:
            save_file(_tensors(parts.projection), new / _TENSORS)
        except SafetensorError as error:
            reason = " ".join(str(error).split())
            raise StorageError(
                f"{folder}: cannot be written ({reason}): free some space"
            ) from error
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        (new / _SETTINGS).write_text(text, encoding="utf-8")
        # safetensors writes files that only their owner can read; the usual permissions apply here.
        (new / _TENSORS).chmod((new / _SETTINGS).stat().st_mode)


def read_folder(folder: Path) -> MetaParts:
    """Read what `write_folder` wrote; no source is loaded.

    Raises:
        ModelError: a file is missing, altered or of another form, or written by a newer release.
    """
    settings = read_json(folder / _SETTINGS)
    _check_settings(settings, folder / _SETTINGS)
    tensors = _read_tensors(folder / _TENSORS)
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
        raise ModelError(f"{folder / _SETTINGS}: {_altered(repr(error))}") from error
    if parts.identity() != settings["weights"]:
        raise ModelError(f"{folder}: {_altered('another SHA-256 than meta.json says')}")
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


def _altered(found: str) -> str:
    return (
        f"expected what `retriever train meta` wrote, found {found}; copy the folder again or "
        "train again"
    )


def _check_settings(settings: Any, path: Path) -> None:
    if not isinstance(settings, dict):
        raise ModelError(f"{path}: {_altered('a file that is not a JSON object')}")
    number = settings.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise ModelError(
            f"{path}: expected format {FORMAT} or older, found {number}; upgrade layer-retriever"
        )
    for what, keys in (
        ("an unknown key", settings.keys() - _KEYS.keys()),
        ("no key", _KEYS.keys() - settings.keys()),
    ):
        if keys:
            raise ModelError(f"{path}: {_altered(f'{what} {min(keys)!r}')}")
    for key, kind in _KEYS.items():
        if not isinstance(settings[key], kind):
            raise ModelError(f"{path}: {_altered(f'{settings[key]!r} as {key}')}")
    choices = {
        "method": get_args(Method),
        "level": get_args(Level),
        "pooling": get_args(WordPooling),
    }
    for key, names in choices.items():
        if settings[key] not in names:
            raise ModelError(f"{path}: {_altered(f'{settings[key]!r} as {key}')}")


def _read_tensors(path: Path) -> dict[str, Floats]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: dict[str, Floats] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: {_altered(' '.join(str(error).split()))}") from error
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise ModelError(f"{path}: {_altered('numbers of another type than float32')}")
    return tensors


def _digest(array: Floats) -> str:
    digest = hashlib.sha256(f"{array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
