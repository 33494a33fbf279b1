"""How the vectors of an index are searched."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.options.declaring import RARE, F, Section, option, settings

if TYPE_CHECKING:
    from retriever import StructureSettings

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def byte_size(text: str) -> int:
    """A size such as 500MB or 2.5GB (powers of 1,000), or a number of bytes, at least 1."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)", text.strip().upper())
    if found is None or found[2] not in _UNITS:
        raise click.BadParameter(f"expected a size such as 500MB or 2GB, found {text!r}")
    size = int(float(found[1]) * _UNITS[found[2]])
    if size < 1:
        raise click.BadParameter(f"expected 1 byte or more, found {text!r}")
    return size


def _name(text: str) -> str:
    if not text.strip():
        raise click.BadParameter("expected a name or a FAISS factory string, found nothing")
    return text


@dataclass(frozen=True, slots=True)
class StructureOptions:
    """Which search structure is asked for; None where nothing is."""

    index_type: str | None
    memory: int | None

    def settings(self, base: StructureSettings | None = None) -> StructureSettings | None:
        """What is asked for, the rest as in `base`; `base` itself if nothing is asked for."""
        if self.index_type is None and self.memory is None:
            return base
        from retriever import StructureSettings

        base = base or StructureSettings()
        return StructureSettings(
            self.index_type or base.index_type, self.memory or base.memory_bytes
        )


def structure_options(default: str, section: Section = RARE) -> Callable[[F], Callable[..., Any]]:
    """--index-type and --memory: the command takes `structure: StructureOptions`.

    Args:
        default: what the help says is the index type without the option.
        section: of the help page.
    """
    return settings(
        "structure",
        StructureOptions,
        [
            option(
                "--index-type",
                type=_name,
                metavar="TYPE",
                help="Search structure of large segments: auto, flat, hnsw, ivf, ivf-sq8, ivf-pq "
                "or a FAISS factory string.",
                shown_default=default,
                section=section,
            ),
            option(
                "--memory",
                type=byte_size,
                metavar="SIZE",
                help="Memory limit for the structure that auto chooses, such as 2GB.",
                shown_default="no limit",
                section=section,
            ),
        ],
    )
