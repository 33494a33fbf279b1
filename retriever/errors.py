"""The errors that `indexes.errors` draws as a tree, and checks that many modules share."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from indexes.errors import BadInputError as BadInputError
from indexes.errors import ClosedIndexError as ClosedIndexError
from indexes.errors import ConfigError as ConfigError
from indexes.errors import DamagedIndexError as DamagedIndexError
from indexes.errors import EncoderMismatchError as EncoderMismatchError
from indexes.errors import FilterError as FilterError
from indexes.errors import FormatVersionError as FormatVersionError
from indexes.errors import IndexLockedError as IndexLockedError
from indexes.errors import MissingExtraError as MissingExtraError
from indexes.errors import ModelError as ModelError
from indexes.errors import NotAnIndexError as NotAnIndexError
from indexes.errors import RetrieverError as RetrieverError
from indexes.errors import SourceError as SourceError
from indexes.errors import StorageError as StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Names of packages that differ from the names of their modules.
_PACKAGES = {"sklearn": "scikit-learn"}


def require_several(name: str, values: object) -> None:
    """Raise TypeError for one string instead of several: Python would iterate over its letters."""
    if isinstance(values, str | bytes):
        raise TypeError(
            f"{name}: expected several strings, found {values!r:.60}; put it into a list"
        )


def string_fault(value: str) -> str | None:
    """Describe why a string cannot be stored as UTF-8; None if it can."""
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return f"holds the lone surrogate \\u{code:04x}, which no text may hold"
    return None


def unknown_name(owner: object, name: str) -> AttributeError:
    """Return the error for an unknown attribute, with the right name if it is listed."""
    from retriever.guesses import ATTRIBUTES

    kind = type(owner).__name__
    right_name = ATTRIBUTES.get(kind, {}).get(name)
    hint = "" if right_name is None else f": {kind} has {right_name}"
    return AttributeError(f"{kind} has no {name}{hint}", name=name, obj=owner)


def unexpected_keyword(name: str, keywords: Iterable[str]) -> TypeError:
    """Return the error for an unknown keyword, with the nearest keyword and the list of all."""
    from difflib import get_close_matches

    from retriever.guesses import KEYWORDS

    names = sorted(keywords)
    right_name = KEYWORDS.get(name)
    matches = [right_name] if right_name in names else get_close_matches(name, names, 1)
    guess = f"; did you mean {matches[0]!r}?" if matches else ""
    return TypeError(f"unexpected keyword {name!r}{guess} (known: {', '.join(names)})")


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise MissingExtraError unless optional modules are installed; import none of them.

    Args:
        extra: name of the extra that installs them.
        purpose: subject of the message's sentence.
        modules: names of the modules.
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(
                f"{purpose} needs {_PACKAGES.get(module, module)}, which is not installed: "
                f'pip install "layer-retriever[{extra}]"'
            )


def require_torch(purpose: str) -> None:
    """Raise MissingExtraError unless torch and transformers are installed."""
    require_extra("torch", purpose, "torch", "transformers")


def require_classifiers() -> None:
    """Raise MissingExtraError unless scikit-learn and scipy are installed."""
    require_extra("sentences", "classification", "scipy", "sklearn")
