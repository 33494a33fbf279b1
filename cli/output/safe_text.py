"""Text of documents for a terminal, which their control characters must not reach."""

from __future__ import annotations

# One character for one keeps places.
_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0)], "\ufffd")
_CONTROLS_AND_LINES = _CONTROLS | dict.fromkeys(range(0x09, 0x0E), " ")


def on_one_line(text: str) -> str:
    """The text with spaces for tabs and line ends, and U+FFFD for other control characters."""
    return text.translate(_CONTROLS_AND_LINES)


def without_controls(text: str) -> str:
    """The text with U+FFFD for control characters other than tabs and line ends."""
    return text.translate(_CONTROLS)
