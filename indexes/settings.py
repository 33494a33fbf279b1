"""Settings that are declared once: checks, parsers, options and help derive from the field.

>>> @dataclass(frozen=True)
... class Smoothing(Checked):
...     rate: float = setting(0.5, "Weight of the latest value.", low=0, high=1)
...     first: Literal["value", "zero"] = setting("value", "What the first value is mixed with.")
>>> Smoothing(rate=2)
Traceback (most recent call last):
indexes.errors.ConfigError: rate: expected 0 to 1, found 2
>>> declared_settings(Smoothing)["first"].expected
'value or zero'
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from indexes.errors import ConfigError

# The greatest whole number that a text can give.
GREATEST = 10**9 - 1
_SETTING = "setting"
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_NUMBER = re.compile(
    r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?|-?inf|nan", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    description: str  # what it is, with its unit, as a sentence
    default: Any = None
    meaning: Any = None  # of None; None if the default is none or depends on others
    words: str = ""  # for the default
    source: str = ""  # the publication that it comes from, with equation or section
    section: str = ""  # the settings that it belongs to
    low: float | None = None  # None only if `high` is; numbers are finite
    high: float | None = None
    low_open: bool = False  # whether the limit itself is out of range
    high_open: bool = False
    name: str = ""  # of the field
    key: str = ""  # the name in texts and options, such as ``max-length``
    kind: type = str  # of the values: bool, int, float, str, or a type that no text is read as
    choices: tuple[str, ...] = ()  # the values of a text that has only these
    optional: bool = False  # whether None is a value

    @property
    def default_text(self) -> str:
        """The default, in words."""
        plain = self.default if self.meaning is None else self.meaning
        if isinstance(plain, float):
            plain = f"{plain:g}"
        return self.words or ("" if plain is None else format_value(plain))

    @property
    def expected(self) -> str:
        """The values, in words: ``mean or max``, ``at least 8``, ``0 to below 1``."""
        if self.choices or self.kind is bool:
            return alternatives(self.choices or ("yes", "no"))
        if self.low is None:
            return _KINDS.get(self.kind, self.kind.__name__)
        low = f"above {self.low:g}" if self.low_open else f"{self.low:g}"
        if self.high is None or self.high == GREATEST:
            return low if self.low_open else f"at least {low}"
        return f"{low} to {'below ' if self.high_open else ''}{self.high:g}"

    def allows(self, value: Any) -> bool:
        """Return whether a value has the right type and is in range."""
        if value is None:
            return self.optional
        if self.choices:
            return value in self.choices
        if self.kind not in (int, float):
            return isinstance(value, self.kind)
        if not isinstance(value, Integral if self.kind is int else Real):
            return False
        number: Any = value
        low = self.low
        high = self.high
        above = low is None or number > low or (number == low and not self.low_open)
        below = high is None or number < high or (number == high and not self.high_open)
        return above and below and math.isfinite(number)

    def parse(self, text: str) -> Any:
        """Read a value; `check_settings` says whether it is in range."""
        if self.kind is bool:
            if text in ("yes", "no"):
                return text == "yes"
        elif self.kind is int:
            # Not int(), which takes "1_0" and Arabic digits.
            if _WHOLE.fullmatch(text):
                return int(text)
        elif self.kind is float:
            if _NUMBER.fullmatch(text):
                return float(text)
        else:
            return text
        expected = self.expected if self.kind is bool else _KINDS[self.kind]
        raise ConfigError(f"{self.key}: expected {expected}, found {text[:40]!r}")


_KINDS: Mapping[type, str] = {
    int: f"a whole number up to {GREATEST}",
    float: "a number",
    str: "text",
}


def setting(
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    high_open: bool = False,
    meaning: Any = None,
    default_text: str = "",
    source: str = "",
    section: str = "",
) -> Any:
    """A field of a dataclass that is a setting; its annotation says the kind and the choices."""
    declared = Setting(
        description, default, meaning, default_text, source, section, low, high, low_open, high_open
    )
    return field(default=default, metadata={_SETTING: declared})


@cache
def declared_settings(kind: Any) -> Mapping[str, Setting]:
    """Return the settings of a dataclass by field name, in the order of the fields."""
    hints = get_type_hints(kind)
    declared = {}
    for member in fields(kind):
        if _SETTING in member.metadata:
            types = [part for part in get_args(hints[member.name]) if part is not NoneType]
            optional = NoneType in get_args(hints[member.name])
            only = types[0] if optional else hints[member.name]
            choices = get_args(only) if get_origin(only) is Literal else ()
            declared[member.name] = replace(
                member.metadata[_SETTING],
                name=member.name,
                key=member.name.strip("_").replace("_", "-"),
                kind=str if choices else get_origin(only) or only,
                choices=choices,
                optional=optional,
            )
    return declared


def check_settings(settings: object, *, keys: bool = False) -> None:
    """Check every declared setting of a dataclass; messages name fields, or keys if `keys`."""
    kind: Any = type(settings)
    for name, declared in declared_settings(kind).items():
        value = getattr(settings, name)
        fault = None
        if not declared.allows(value):
            expected = declared.expected
            if declared.high == GREATEST and isinstance(value, Integral) and int(value) > GREATEST:
                expected = f"{declared.low} to {GREATEST}"
            fault = f"expected {expected}, found {value!r}"
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                fault = "expected UTF-8, found other bytes"
        if fault is not None:
            raise ConfigError(f"{declared.key if keys else name.strip('_')}: {fault}")


class Checked:
    """A base for dataclasses of settings that check nothing but their fields."""

    __slots__ = ()

    __post_init__ = check_settings


def format_value(value: Any) -> str:
    """Return a value as text: ``yes`` or ``no`` for a flag."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def alternatives(choices: tuple[str, ...]) -> str:
    """Join choices as in ``a, b or c``."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]]) if choices[1:] else choices[0]
