"""Errors that this project raises on purpose.

Each message is one line. It says what was expected, what was found and what to do. The command
line exits with the error's `exit_code`, in parentheses here::

    RetrieverError (1)
    ├── BadInputError (2)
    │   ├── SourceError             an unusable corpus or query source
    │   ├── FilterError             a filter that does not parse or cannot be evaluated
    │   ├── ConfigError             an unknown setting or an impossible value
    │   ├── ModelError              a missing, altered or unsupported model
    │   ├── EncoderMismatchError    an encoder other than the one of the index
    │   ├── NotAnIndexError         a folder or database without an index
    │   ├── FormatVersionError      an index format that this release does not read
    │   ├── ClosedIndexError        a use of a closed index
    │   ├── IndexLockedError        another process that writes to the index
    │   ├── StorageError            a full disk, a denied permission, an unreachable server
    │   └── MissingExtraError       an optional dependency that is not installed
    └── DamagedIndexError (3)       a missing, truncated or altered file
"""

from __future__ import annotations


class RetrieverError(Exception):
    """Base class of every error that this project raises on purpose."""

    exit_code = 1


class BadInputError(RetrieverError):
    """Unusable input. Stored data is intact."""

    exit_code = 2


class SourceError(BadInputError):
    """An unusable corpus or query source. The message names the file and, if known, the line."""


class FilterError(BadInputError):
    """A metadata filter that does not parse, or that the store cannot evaluate.

    `Index.delete_where` also raises it for a field that no document has, and for a type that the
    field has in no document. A search only warns about these.

    Attributes:
        position: zero-based index of the offending character in the filter's text; None if no
            single character is at fault.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class ConfigError(BadInputError):
    """An unknown setting, or an impossible value of one."""


class ModelError(BadInputError):
    """A missing, altered or unsupported model."""


class EncoderMismatchError(BadInputError):
    """An encoder other than the one that made the index."""


class NotAnIndexError(BadInputError):
    """A folder or database without an index."""


class FormatVersionError(BadInputError):
    """An index format that this release does not read."""


class ClosedIndexError(BadInputError):
    """A use of an index object after it was closed."""


class IndexLockedError(BadInputError):
    """A lock that another process holds while it writes to the index."""


class StorageError(BadInputError):
    """A full disk, an unwritable file or folder, or a server that refuses or is unreachable."""


class MissingExtraError(BadInputError):
    """A missing optional dependency. The message names the extra that installs it."""


class DamagedIndexError(RetrieverError):
    """A missing, truncated or altered index file or shard, which the message names."""

    exit_code = 3
