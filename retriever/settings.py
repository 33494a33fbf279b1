"""Settings that are declared once; see `indexes.settings`."""

from functools import partial

from indexes import GREATEST as GREATEST
from indexes import Checked as Checked
from indexes import Setting as Setting
from indexes import alternatives as alternatives
from indexes import check_settings as check_settings
from indexes import declared_settings as declared_settings
from indexes import format_value as format_value
from indexes import setting as setting

# One that is None by default.
open_setting = partial(setting, None)
