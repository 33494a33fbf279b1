"""Weights of a model in safetensors files, mapped into memory and converted to float32 on use.

The format of the files: eight bytes with the length of the header, the header in JSON, the tensors.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.model_folders import (
    HEADER_LENGTH,
    LARGEST_HEADER,
    MALFORMED,
    REMEDY,
    WEIGHTS_FILE,
    ModelFolder,
    read_json,
)
from retriever.errors import ModelError

Floats = NDArray[np.float32]
_ENDING = ".safetensors"
# Names the file of each tensor, where a model has several files.
_FILES_INDEX = "model.safetensors.index.json"
# Low bits of a float32 that a bfloat16 lacks.
_BFLOAT16_SHIFT = 16
# Endings of the two tensors of a matrix in 4 bits.
_NIBBLES = ".nibbles"
_SCALES = ".scales"
# Weights of a block that share a scale, the bits of the first half, and the number that means 0.
_BLOCK = 32
_LOW_BITS = np.uint8(15)
_FOUR_BIT_ZERO = np.int8(8)


class UnsupportedModelError(Exception):
    """Raised for a model that the backends without torch do not support."""


class WeightsMismatchError(Exception):
    """Raised for weights and a configuration that no backend can run together."""


class LowPrecisionTensor(ABC):
    """A tensor in 16 or 4 bits. An index selects rows, which are converted to float32."""

    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, rows: Any) -> Floats:
        """Return the rows of an index or a slice."""

    @abstractmethod
    def part(self, start: int, stop: int) -> LowPrecisionTensor:
        """Return consecutive rows, not yet converted."""

    @cached_property
    def values(self) -> Floats:
        """The whole tensor."""
        return self[:]


class HalfTensor(LowPrecisionTensor):
    """A tensor in float16 or bfloat16."""

    def __init__(self, numbers: NDArray[Any]) -> None:
        # NumPy has no bfloat16: uint16 holds its bits.
        self._numbers = numbers
        self.shape = numbers.shape

    def __getitem__(self, rows: Any) -> Floats:
        numbers = self._numbers[rows]
        if numbers.dtype != np.uint16:
            floats: Floats = numbers.astype(np.float32)
            return floats
        bits = numbers.astype(np.uint32) << _BFLOAT16_SHIFT
        values: Floats = bits.view(np.float32)
        return values

    def part(self, start: int, stop: int) -> HalfTensor:
        """Return consecutive rows, not yet converted."""
        return HalfTensor(self._numbers[start:stop])


class FourBitTensor(LowPrecisionTensor):
    """A matrix in 4 bits, with a float16 scale for each block of a row.

    Byte j of a block has weight j in its low bits and weight j + 16 in its high ones.
    """

    def __init__(self, nibbles: NDArray[np.uint8], scales: NDArray[np.float16]) -> None:
        rows, columns = nibbles.shape
        shapes = (rows, columns // (_BLOCK // 2) * (_BLOCK // 2)), (rows, columns * 2 // _BLOCK)
        types_fit = nibbles.dtype == np.uint8 and scales.dtype == np.float16
        if not types_fit or (nibbles.shape, scales.shape) != shapes:
            raise ValueError(f"nibbles of shape {nibbles.shape}, scales of shape {scales.shape}")
        self._nibbles = nibbles
        self._scales = scales
        self.shape = len(nibbles), scales.shape[1] * _BLOCK

    def __getitem__(self, rows: Any) -> Floats:
        scales = self._scales[rows].astype(np.float32)[..., None]
        nibbles = self._nibbles[rows].reshape(*scales.shape[:-1], _BLOCK // 2)
        values = np.empty((*scales.shape[:-1], 2, _BLOCK // 2), np.float32)
        for half, bits in enumerate((nibbles & _LOW_BITS, nibbles >> 4)):
            np.multiply(bits.astype(np.int8) - _FOUR_BIT_ZERO, scales, out=values[..., half, :])
        return values.reshape(*scales.shape[:-2], self.shape[1])

    def part(self, start: int, stop: int) -> FourBitTensor:
        """Return consecutive rows, not yet converted."""
        return FourBitTensor(self._nibbles[start:stop], self._scales[start:stop])


Tensor = Floats | LowPrecisionTensor
Tensors = Mapping[str, Tensor]
# Types of safetensors, and the types of NumPy with the same bits.
_NUMBER_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}


def to_values(tensor: Tensor) -> Floats:
    """Return a tensor as a float32 array; a stored one is converted once."""
    return tensor.values if isinstance(tensor, LowPrecisionTensor) else tensor


def part_of(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Return consecutive rows of a tensor, without a copy."""
    return (
        tensor.part(start, stop) if isinstance(tensor, LowPrecisionTensor) else tensor[start:stop]
    )


def read_tensors(folder: ModelFolder) -> dict[str, Tensor]:
    """Map the tensors of a model's files into memory, by name."""
    path = folder.path
    if (path / WEIGHTS_FILE).is_file() or not (path / _FILES_INDEX).is_file():
        return map_tensors(path / WEIGHTS_FILE)
    tensors: dict[str, Tensor] = {}
    for name in _read_file_names(path / _FILES_INDEX):
        tensors_of_file = map_tensors(path / name)
        repeated = tensors.keys() & tensors_of_file.keys()
        if repeated:
            raise ModelError(
                f"{path / name}: expected each tensor in one file, found {min(repeated):.80} in a "
                f"second file too; {REMEDY}"
            )
        tensors |= tensors_of_file
    return tensors


def _read_file_names(index: Path) -> list[str]:
    """Return the names of the weights' files, which the digest of the model covers."""
    try:
        file_of: dict[str, str] = read_json(index)["weight_map"]
        names = sorted(set(file_of.values()))
        foreign = [
            name for name in names if Path(name).name != name or Path(name).suffix != _ENDING
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{index}: expected the file of each tensor under weight_map ({error!r:.120}); {REMEDY}"
        ) from error
    if foreign:
        raise ModelError(
            f"{index}: expected files *{_ENDING} in the folder, found {foreign[0]!r:.80}; {REMEDY}"
        )
    return names


def map_tensors(path: Path) -> dict[str, Tensor]:
    """Map the floating-point tensors of a safetensors file into memory, by name.

    Raises:
        ModelError: the file is missing or damaged.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        data: NDArray[np.uint8] = np.memmap(path, np.uint8, "c")
        start = HEADER_LENGTH + int(data[:HEADER_LENGTH].view("<u8")[0])
        if start > min(len(data), LARGEST_HEADER):
            raise ValueError(f"a header of {start:,} bytes in a file of {len(data):,}")
        header = json.loads(bytes(data[HEADER_LENGTH:start]))
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] in _NUMBER_TYPES:
                arrays[name] = _map_array(data[start:], entry)
        return _convert_tensors(arrays)
    except (*MALFORMED, OSError, MemoryError) as error:
        raise ModelError(
            f"{path}: expected a whole file of safetensors, found {error!r:.160}; {REMEDY}"
        ) from error


def _map_array(data: NDArray[np.uint8], entry: Mapping[str, Any]) -> NDArray[Any]:
    """Return the numbers of an entry in a header, without a copy."""
    dtype = np.dtype(_NUMBER_TYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    first, last = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, first, last)):
        raise ValueError(f"shape {shape}, offsets {first}, {last}")
    if last > len(data) or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"shape {shape}, bytes {first:,} to {last:,} of {len(data):,}")
    return np.asarray(data[first:last]).view(dtype).reshape(shape)


def _convert_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return tensors by name: float32 as it is, fewer bits as `LowPrecisionTensor`."""
    tensors: dict[str, Tensor] = {}
    matrices = [name.removesuffix(_NIBBLES) for name in arrays if name.endswith(_NIBBLES)]
    scales = {matrix + _SCALES for matrix in matrices}
    for name, array in arrays.items():
        if array.dtype == np.float32:
            tensors[name] = array
        elif array.dtype != np.uint8 and name not in scales:
            tensors[name] = HalfTensor(array)
    for matrix in matrices:
        tensors[matrix] = FourBitTensor(arrays[matrix + _NIBBLES], arrays[matrix + _SCALES])
    return tensors


def map_arrays(path: Path) -> dict[str, Floats]:
    """Map the float32 tensors of a safetensors file into memory, by name."""
    tensors = map_tensors(path)
    return {name: array for name, array in tensors.items() if isinstance(array, np.ndarray)}
