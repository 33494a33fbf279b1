"""Figures as PNG and SVG files, without a display and without the state of pyplot."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.errors import ConfigError, MissingExtraError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".svg")
_DOTS_PER_INCH = 150


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn, before any work is done for it.

    Raises:
        ConfigError: the name ends neither in .png nor in .svg.
        MissingExtraError: matplotlib is not installed.
        StorageError: there is no such folder, or the name is a folder's.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise ConfigError(
            f"{path}: expected a figure called .png or .svg, found {path.suffix or 'no ending'!r}; "
            "rename it"
        )
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise StorageError(
            f"{path}: expected a file in a folder that exists; make the folder or rename the figure"
        )
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, which needs no display.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            'figures need matplotlib, which is not installed: pip install "layer-retriever[plot]"'
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as its ending says; the same figure gives the same bytes.

    In SVG, text stays text.

    Raises:
        StorageError: the file cannot be written.
    """
    import matplotlib

    settings: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "layer-retriever"}
    extra = {"Date": None} if path.suffix.lower() == ".svg" else {}
    try:
        with matplotlib.rc_context(settings), warnings.catch_warnings():
            # A character that the font lacks becomes a box in PNG, and is right in SVG.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
            figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=extra)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot write the figure ({error.strerror}); choose a writable folder"
        ) from error
