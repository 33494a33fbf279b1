"""The systems of an evaluation, and the texts that name them.

=================================  ===============================================================
text                               system
=================================  ===============================================================
``bm25``                           BM25
``rank-bm25``                      BM25Okapi of the package rank-bm25, over the same terms
``cosine``                         cosine of question and passage
``hybrid``, ``hybrid:0.7``,        cosine and BM25 fused: with the default weight of the cosine, a
``hybrid:tuned``, ``hybrid:rrf``   given one, the best one on dev, or by reciprocal rank
``bilinear``, ``concat``, ``uv``   a head on frozen vectors, trained on the set: ``uv:linear`` (the
                                   default) or ``uv:mlp``; ``uv:mlp:random`` starts at random
                                   weights instead of at the cosine
``cross-encoder``                  a transformer that reads both texts, fine-tuned on the set;
                                   ``cross-encoder:softmax`` names its loss; ``:ensemble`` after
                                   that averages the scores of the seeds, and ``:hybrid`` last fuses
                                   them with ``hybrid:tuned``, with the best weight on dev
a folder                           a saved reranker
a file                             a TREC run
=================================  ===============================================================

``@ENCODER`` after a system that has an encoder names another one for it:
``cosine@all-MiniLM-L6-v2::lc:0,6``. ``all`` stands for `ALL`, ``heads`` for `HEADS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from retriever.encoders.settings import parse_encoder
from retriever.errors import ConfigError
from retriever.rerankers.cross.settings import Loss

Kind = Literal[
    "bm25",
    "rank-bm25",
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
_LEXICAL = ("bm25", "rank-bm25")
_NAMES = (*_LEXICAL, "cosine", "hybrid", *INTERACTIONS, "cross-encoder")
# In the order of Table 3 of Ma et al. (2019), from the cheapest to the most expensive.
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
# Each head from either start; concat cannot start as the cosine.
HEADS = (
    "cosine",
    *(
        f"{name}:{head}{start}"
        for name in INTERACTIONS
        for head in ("linear", "mlp")
        for start in (("",) if name == "concat" else ("", ":random"))
    ),
)
_LISTS = {"all": ALL, "heads": HEADS}
_CROSS_VARIANTS = re.compile(rf"(?::({'|'.join(get_args(Loss))}))?(:ensemble)?(:hybrid)?")


@dataclass(frozen=True, slots=True)
class System:
    """One system.

    Attributes:
        text: its name.
        kind: of system.
        variant: the text after the colon, or empty; of a cross-encoder the loss.
        random_start: whether a head starts at random weights whatever the evaluation says.
        ensemble: whether the scores of a cross-encoder's seeds are averaged.
        fused: whether a cross-encoder's scores are fused with those of cosine and BM25.
        encoder: its own encoder; empty for that of the evaluation.
        path: of a saved reranker or a run.
    """

    text: str
    kind: Kind
    variant: str = ""
    random_start: bool = False
    ensemble: bool = False
    fused: bool = False
    encoder: str = ""
    path: Path | None = None

    @property
    def trained(self) -> str:
        """The name of the cross-encoder, which systems may share that use its scores."""
        loss = f":{self.variant}" if self.variant else ""
        return f"{self.kind}{loss}{'@' if self.encoder else ''}{self.encoder}"

    @property
    def tuned(self) -> bool:
        """Whether its weight is chosen on dev."""
        return self.variant == "tuned"


def parse_systems(texts: Sequence[str]) -> list[System]:
    """The systems that texts name, each once, in order; ``all`` and ``heads`` name lists.

    A text without ``@`` may hold several names separated by commas.

    Raises:
        ConfigError: a text names no system.
    """
    names: list[str] = []
    for text in texts:
        for name in [text] if "@" in text or Path(text).exists() else text.split(","):
            names += _LISTS.get(name.strip(), (name.strip(),))
    return [parse_system(name) for name in dict.fromkeys(names)]


def parse_system(text: str) -> System:
    """The system that a text names.

    Raises:
        ConfigError: it names none, or has a part that the system does not take.
    """
    named, at, encoder = text.partition("@")
    name, colon, variant = named.partition(":")
    if name not in _NAMES:
        path = Path(text)
        if path.exists():
            return System(text, "saved reranker" if path.is_dir() else "run", path=path)
        raise ConfigError(
            f"system {text!r}: expected {', '.join(_NAMES)}, all, heads, the folder of a saved "
            "reranker or a TREC run, found none of them"
        )
    if at:
        if re.search(rf",\s*({'|'.join(_NAMES)})([:@,]|$)", encoder):
            raise ConfigError(
                f"system {text!r}: expected one system beside an encoder (@), found several; give "
                "each a --systems of its own"
            )
        if name in _LEXICAL:
            raise ConfigError(f"system {text!r}: {name} has no encoder; leave out what follows @")
        parse_encoder(encoder)
    if name == "cross-encoder":
        return _cross_encoder(text, colon + variant, encoder)
    random_start = name in INTERACTIONS and variant.endswith(":random")
    if random_start:
        variant = variant.removesuffix(":random")
        if name == "concat":
            raise ConfigError(f"system {text!r}: concat always starts at random; leave it out")
    if colon:
        _check_variant(text, name, variant)
    return System(text, name, variant, random_start, encoder=encoder)  # type: ignore[arg-type]


def _cross_encoder(text: str, variants: str, encoder: str) -> System:
    """A cross-encoder, by its text from the first colon on."""
    if "::" in encoder:
        raise ConfigError(
            f"system {text!r}: a cross-encoder reads the last layer of a transformer; expected a "
            "model without settings after @"
        )
    found = _CROSS_VARIANTS.fullmatch(variants)
    if found is None:
        raise ConfigError(
            f"system {text!r}: expected nothing after cross-encoder, or a loss "
            f"({', '.join(get_args(Loss))}), ensemble and hybrid in this order, each after a colon "
            f"and each optional, found {variants!r}"
        )
    loss, ensemble, fused = found.groups()
    return System(
        text,
        "cross-encoder",
        loss or "",
        ensemble=ensemble is not None,
        fused=fused is not None,
        encoder=encoder,
    )


def _check_variant(text: str, name: str, variant: str) -> None:
    if name in INTERACTIONS:
        if variant not in ("linear", "mlp"):
            raise ConfigError(
                f"system {text!r}: expected linear or mlp after the colon, optionally followed "
                "by :random"
            )
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
