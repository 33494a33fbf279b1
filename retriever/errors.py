"""The error tree, for callers of the public API; see `indexes.errors` for the drawing."""

from indexes.errors import (
    BadInputError,
    ConfigError,
    DamagedIndexError,
    EncoderMismatchError,
    FilterError,
    FormatVersionError,
    IndexLockedError,
    MissingExtraError,
    ModelError,
    NotAnIndexError,
    RetrieverError,
    SourceError,
    StorageError,
)

__all__ = [
    "BadInputError",
    "ConfigError",
    "DamagedIndexError",
    "EncoderMismatchError",
    "FilterError",
    "FormatVersionError",
    "IndexLockedError",
    "MissingExtraError",
    "ModelError",
    "NotAnIndexError",
    "RetrieverError",
    "SourceError",
    "StorageError",
]
