"""How a command reports: as JSON, or without progress."""

from __future__ import annotations

from cli.options.declaring import option

json_option = option("--json", "as_json", is_flag=True, help="Print JSON.", section="Output")
quiet_option = option(
    "-q", "--quiet", is_flag=True, help="Print neither progress nor a summary.", section="Output"
)
