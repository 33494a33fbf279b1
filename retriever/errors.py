"""The error tree; see `indexes.errors` for the drawing."""

from indexes import BadInputError as BadInputError
from indexes import ClosedIndexError as ClosedIndexError
from indexes import ConfigError as ConfigError
from indexes import DamagedIndexError as DamagedIndexError
from indexes import EncoderMismatchError as EncoderMismatchError
from indexes import FilterError as FilterError
from indexes import FormatVersionError as FormatVersionError
from indexes import IndexLockedError as IndexLockedError
from indexes import MissingExtraError as MissingExtraError
from indexes import ModelError as ModelError
from indexes import NotAnIndexError as NotAnIndexError
from indexes import RetrieverError as RetrieverError
from indexes import SourceError as SourceError
from indexes import StorageError as StorageError


def require_several(name: str, values: object) -> None:
    """Refuse one string where several are meant: Python would take its letters.

    Args:
        name: of the argument.
        values: it.

    Raises:
        TypeError: it is a string.
    """
    if isinstance(values, str | bytes):
        raise TypeError(
            f"{name}: expected several strings, found {values!r:.60}; put it into a list"
        )
