"""The tree of errors that this project raises on purpose.

Every message is one line that says what was expected, what was found and what to do.
`exit_code` is what the command line exits with.
"""

from __future__ import annotations


class RetrieverError(Exception):
    """Base of every error raised on purpose; the message is one line for a person."""

    exit_code = 1


class BadInputError(RetrieverError):
    """Something that the caller gave cannot be used; nothing that was stored is lost."""

    exit_code = 2


class SourceError(BadInputError):
    """A corpus or query source is unusable; the message names the file and, if known, the line."""


class FilterError(BadInputError):
    """A metadata filter does not parse, or the store cannot evaluate it.

    In `Index.delete_where` also: it names a field that no document has, or compares a field with a
    type that no document has in it. In a search that is a warning.

    Attributes:
        position: zero-based index of the offending character in the filter's text; None if it
            is no single one.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class ConfigError(BadInputError):
    """A setting is unknown or has an impossible value."""


class ModelError(BadInputError):
    """A model is missing, was altered, or is of a kind that is not supported."""


class EncoderMismatchError(BadInputError):
    """The index was made with another encoder than the one given."""


class NotAnIndexError(BadInputError):
    """The folder or database holds no index."""


class FormatVersionError(BadInputError):
    """The index has a format that this release does not read; the message says what to do."""


class ClosedIndexError(BadInputError):
    """An index object was closed before."""


class IndexLockedError(BadInputError):
    """Another process is writing to the index."""


class StorageError(BadInputError):
    """The disk is full, a folder or file cannot be written, or a server refuses or is gone."""


class MissingExtraError(BadInputError):
    """An optional dependency is not installed; the message says which extra brings it."""


class DamagedIndexError(RetrieverError):
    """A file of an index, or a shard, is missing, truncated or altered; the message names it."""

    exit_code = 3
