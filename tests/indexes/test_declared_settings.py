"""A setting is declared once: what is checked, read, written and said of it follows."""

from __future__ import annotations

import doctest
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexes.settings
from indexes.errors import ConfigError
from indexes.settings import GREATEST, check_settings, declared_settings, format_value, setting


@dataclass(frozen=True)
class Plain:
    """One setting of each kind."""

    kind: Literal["mean", "max", "cls"] = setting("mean", "How.", source="Ma et al. 2019")
    share: float = setting(0.5, "Part.", low=0, high=1, high_open=True)
    rate: float | None = setting(None, "Speed.", low=0, low_open=True, meaning=2.5)
    free: float = setting(0.0, "Any number.")
    min_size: int = setting(3, "Pieces.", low=1, high=GREATEST)
    on: bool | None = setting(None, "Whether.", default_text="if it pays", section="rare")
    name_: str = setting("", "Label.")
    undeclared: int = 0

    def __post_init__(self):
        check_settings(self)


DECLARED = declared_settings(Plain)


def test_doctest_of_the_settings_module_passes():
    outcome = doctest.testmod(indexes.settings)
    assert (outcome.failed, outcome.attempted) == (0, 3)


def test_declared_settings_have_kind_default_and_key_in_field_order():
    assert list(DECLARED) == ["kind", "share", "rate", "free", "min_size", "on", "name_"]
    assert [setting.kind for setting in DECLARED.values()] == [
        str,
        float,
        float,
        float,
        int,
        bool,
        str,
    ]
    assert [name for name, setting in DECLARED.items() if setting.optional] == ["rate", "on"]
    assert DECLARED["kind"].choices == ("mean", "max", "cls")
    assert [setting.key for setting in DECLARED.values()][-3:] == ["min-size", "on", "name"]
    shown_texts = [setting.default_text for setting in DECLARED.values()]
    assert shown_texts == ["mean", "0.5", "2.5", "0", "3", "if it pays", ""]
    assert DECLARED["rate"].meaning == 2.5
    assert (DECLARED["kind"].source, DECLARED["on"].section) == ("Ma et al. 2019", "rare")


@pytest.mark.parametrize(
    ("name", "values", "bad_values", "expected"),
    [
        ("kind", ["max"], ["sum", "", None, 1, []], "mean, max or cls"),
        ("share", [0, 0.999, np.float32(0.5)], [-0.01, 1, 1.5, "0.5", None], "0 to below 1"),
        ("rate", [1e-300, 5, None], [0, -1, float("inf"), float("nan")], "above 0"),
        ("free", [-1e300, 7], [float("nan"), float("-inf"), "1"], "a number"),
        ("min_size", [1, np.int64(2), GREATEST], [0, 1.5, "3", None], "at least 1"),
        ("min_size", [], [GREATEST + 1], f"1 to {GREATEST}"),
        ("on", [True, False, None], ["yes", 2], "yes or no"),
        ("name_", ["", "x"], [3, None], "text"),
        ("name_", [], ["\udc80"], "UTF-8"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_with_what_is_expected(
    name, values, bad_values, expected
):
    for value in values:
        assert getattr(Plain(**{name: value}), name) is value
    for value in bad_values:
        with pytest.raises(ConfigError) as caught:
            Plain(**{name: value})
        assert str(caught.value).startswith(f"{name.strip('_')}: expected {expected}, found ")


def test_error_of_a_text_value_names_its_key():
    broken = object.__new__(Plain)
    for name in DECLARED:
        object.__setattr__(broken, name, 0 if name == "min_size" else getattr(Plain(), name))
    with pytest.raises(ConfigError, match=r"^min-size: expected at least 1, found 0$"):
        check_settings(broken, keys=True)


@given(st.one_of(st.booleans(), st.integers(-GREATEST, GREATEST), st.floats(allow_nan=False)))
def test_setting_text_is_parsed_into_its_value(value):
    name = {bool: "on", int: "min_size", float: "free"}[type(value)]
    assert DECLARED[name].parse(format_value(value)) == value


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("on", ["true", "", "Yes", "1"], "yes or no"),
        (
            "min_size",
            ["", "1.5", "1_0", "١٢", " 1", "two", "9" * 10],
            f"whole number up to {GREATEST}",
        ),
        ("free", ["", "1_0", "٠", "half", "1e99999", "0x1"], "a number"),
    ],
)
def test_setting_text_of_another_type_is_refused(name, texts, expected):
    for text in texts:
        with pytest.raises(ConfigError) as caught:
            DECLARED[name].parse(text)
        assert str(caught.value).startswith(f"{DECLARED[name].key}: expected ")
        assert expected in str(caught.value)
        assert repr(text[:40]) in str(caught.value)
