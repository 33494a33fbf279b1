"""Settings that are declared once; see `indexes.settings`."""

from dataclasses import replace
from functools import partial
from typing import Any

from indexes.settings import GREATEST as GREATEST
from indexes.settings import Checked as Checked
from indexes.settings import Setting as Setting
from indexes.settings import alternatives as alternatives
from indexes.settings import check_settings as check_settings
from indexes.settings import declared_settings as declared_settings
from indexes.settings import format_value as format_value
from indexes.settings import setting as setting

# Declares a setting that is None by default.
open_setting = partial(setting, None)


def optional_fields(kind: Any) -> dict[str, Setting]:
    """Return the settings of a dataclass by field, as optional settings.

    Their default is None; `shown` is still the default of the dataclass.
    """
    return {
        name: replace(declared, default=None, words=declared.default_text, optional=True)
        for name, declared in declared_settings(kind).items()
    }
