"""The systems that an evaluation ranks with, by the text that names them.

=================================  ===============================================================
text                               system
=================================  ===============================================================
``bm25``                           BM25
``cosine``                         cosine of question and passage
``hybrid``, ``hybrid:0.7``,        cosine and BM25 fused: with the usual weight of the cosine, one
``hybrid:tuned``, ``hybrid:rrf``   that is given, the best on dev, or by reciprocal rank
``bilinear``, ``concat``, ``uv``   a head on frozen embeddings, trained on the set; ``uv:linear``
                                   (the default) or ``uv:mlp``
``cross-encoder``                  a transformer that reads both, fine-tuned on the set
a folder                           a saved reranker
a file                             a TREC run
=================================  ===============================================================

``@ENCODER`` after any but the first and the last two names an encoder of its own:
``cosine@all-MiniLM-L6-v2::lc:0,6``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from retriever.encoders.settings import parse_encoder
from retriever.errors import ConfigError

Kind = Literal[
    "bm25",
    "cosine",
    "hybrid",
    "bilinear",
    "concat",
    "uv",
    "cross-encoder",
    "saved reranker",
    "run",
]
INTERACTIONS = ("bilinear", "concat", "uv")
_NAMES = ("bm25", "cosine", "hybrid", *INTERACTIONS, "cross-encoder")
# In the order of the paper's Table 3, from the cheapest to the dearest.
ALL = (
    "bm25",
    "cosine",
    "hybrid",
    "hybrid:tuned",
    "bilinear:linear",
    "bilinear:mlp",
    "concat:linear",
    "concat:mlp",
    "uv:linear",
    "uv:mlp",
    "cross-encoder",
)


@dataclass(frozen=True, slots=True)
class System:
    """One system.

    Attributes:
        text: what names it, and its name in the report.
        kind: what it is.
        variant: what follows the colon; empty where nothing does.
        encoder: an encoder of its own; empty for that of the evaluation.
        path: of a saved reranker or a run.
    """

    text: str
    kind: Kind
    variant: str = ""
    encoder: str = ""
    path: Path | None = None

    @property
    def trained(self) -> bool:
        """Whether it is trained on the set."""
        return self.kind in (*INTERACTIONS, "cross-encoder")

    @property
    def tuned(self) -> bool:
        """Whether it chooses something on dev."""
        return self.variant == "tuned"


def parse_systems(texts: Sequence[str]) -> list[System]:
    """The systems that texts name, each once, in order; ``all`` names all that need no path.

    Without an ``@`` a text can hold several names, with commas between them.

    Raises:
        ConfigError: a text names nothing.
    """
    names: list[str] = []
    for text in texts:
        for name in [text] if "@" in text or Path(text).exists() else text.split(","):
            names += ALL if name.strip() == "all" else [name.strip()]
    return [parse_system(name) for name in dict.fromkeys(names)]


def parse_system(text: str) -> System:
    """The system that a text names.

    Raises:
        ConfigError: it names nothing, or gives a system what it does not have.
    """
    named, at, encoder = text.partition("@")
    name, colon, variant = named.partition(":")
    if name not in _NAMES:
        path = Path(text)
        if path.exists():
            return System(text, "saved reranker" if path.is_dir() else "run", path=path)
        raise ConfigError(
            f"system {text!r}: expected {', '.join(_NAMES)}, all, a saved reranker's folder or a "
            "TREC run, found none of them"
        )
    if at:
        if name == "bm25":
            raise ConfigError(f"system {text!r}: bm25 has no encoder; leave out what follows @")
        parse_encoder(encoder)
    if colon:
        _check_variant(text, name, variant)
    return System(text, name, variant, encoder)  # type: ignore[arg-type]


def _check_variant(text: str, name: str, variant: str) -> None:
    if name in INTERACTIONS:
        if variant not in ("linear", "mlp"):
            raise ConfigError(f"system {text!r}: expected linear or mlp after the colon")
    elif name == "hybrid":
        if variant not in ("tuned", "rrf") and not _is_weight(variant):
            raise ConfigError(
                f"system {text!r}: expected tuned, rrf or a weight from 0 to 1 after the colon"
            )
    else:
        raise ConfigError(f"system {text!r}: nothing can follow {name}; leave out the colon")


def _is_weight(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
