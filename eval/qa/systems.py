"""The systems of an evaluation, the texts that name them, and how they are trained and ranked.

docs/reference/question-answering.md has a table of the texts. ``@ENCODER`` after a system that
has an encoder names another one for it; ``all`` stands for `ALL`, ``heads`` for `HEADS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from eval.settings import CrossPlan, Loading, QuestionSettings, Resampling
from retriever.encoders import parse_encoder
from retriever.errors import ConfigError
from retriever.training import HeadSettings, HeadTrainingSettings

MEASURES = ("AP", "RR", "P@1", "P@5", "P@10", "R@1", "R@5", "R@10", "R@100", "nDCG@10")
# Success@k is what Ma et al. (2019, Table 3) call R@k on Quasar-T and SearchQA.
ANSWER_MEASURES = ("Success@1", "Success@5", "Success@10", "AP", "RR", "P@1")
INTERACTIONS = ("bilinear", "concat", "uv")
_LEXICAL = ("bm25", "rank-bm25")
_NAMES = (*_LEXICAL, "cosine", "hybrid", *INTERACTIONS, "cross-encoder")
# In the order of Table 3 of Ma et al. (2019), from the cheapest to the most expensive.
ALL = (
    *("bm25", "cosine", "hybrid", "hybrid:tuned"),
    *(f"{name}:{head}" for name in INTERACTIONS for head in ("linear", "mlp")),
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
_HEAD = "linear or mlp"
# Pattern of the text after a name, with the variant as first group, and its description.
_VARIANTS = {
    "hybrid": (r"(?::(tuned|rrf|[01]|0?\.[0-9]+|1\.0+))?", "tuned, rrf or a weight from 0 to 1"),
    "bilinear": ("(?::(linear|mlp)(:random)?)?", f"{_HEAD}, optionally followed by :random"),
    "uv": ("(?::(linear|mlp)(:random)?)?", f"{_HEAD}, optionally followed by :random"),
    "concat": ("(?::(linear|mlp))?", f"{_HEAD} (concat always starts at random)"),
    "cross-encoder": (
        "()(:ensemble)?(:hybrid)?",
        "nothing, or ensemble and hybrid in this order, each after a colon and each optional",
    ),
}


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head to train on frozen vectors, and how.

    Attributes:
        head: interaction, and linear or MLP.
        training: loss, epochs, seed.
    """

    head: HeadSettings = field(default_factory=HeadSettings)
    training: HeadTrainingSettings = field(default_factory=HeadTrainingSettings)

    def of(self, interaction: str, head: str) -> HeadPlan:
        """Return the plan of the same training for another head."""
        changed = replace(self.head, interaction=interaction, head=head)  # type: ignore[arg-type]
        return replace(self, head=changed)


@dataclass(frozen=True, slots=True)
class QASettings:
    """How systems are ranked on a question set.

    Attributes:
        encoder: text form of the encoder of systems that name none; empty for the bundled model, or
            for the encoder of an index.
        data: how the set is read and divided.
        measures: None takes `MEASURES`, or `ANSWER_MEASURES` where answers make passages relevant.
        baseline: the system that the others are compared with; None takes the first.
        without_positive: whether questions without a relevant passage are left out or count as 0.
        seeds: number of times that each head is trained, with seeds 0, 1, ...; 1 or more.
        cross_seeds: number of times that each cross-encoder is fine-tuned, 1 or more.
        models: a folder that keeps cross-encoders; None keeps none.
        head: training of heads; interaction, head and seed are the system's.
        cross: training of cross-encoders; the seed is the system's.
        query_map: folder of a map of the query vectors of ``cosine`` and ``hybrid``.
        top: number of questions in the report for each system on which it differs most from the
            baseline by the first measure.
    """

    encoder: str = ""
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    split: str = "test"
    measures: tuple[str, ...] | None = None
    baseline: str | None = None
    without_positive: Literal["exclude", "count"] = "exclude"
    resampling: Resampling = field(default_factory=Resampling)
    seeds: int = 3
    cross_seeds: int = 1
    models: Path | None = None
    head: HeadPlan = field(default_factory=HeadPlan)
    cross: CrossPlan = field(default_factory=CrossPlan)
    query_map: Path | None = None
    top: int = 3

    def __post_init__(self) -> None:
        for name in ("seeds", "cross_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {getattr(self, name)}")

    def on_training_split(self) -> QASettings:
        """Return the settings with the training split as the split to rank."""
        return replace(self, split=self.data.train_split)


@dataclass(frozen=True, slots=True)
class System:
    """One system; its kind is the name before a colon, "saved reranker" or "run"."""

    text: str
    kind: str
    variant: str = ""
    random_start: bool = False
    ensemble: bool = False
    fused: bool = False
    encoder: str = ""
    path: Path = Path()

    @property
    def trained(self) -> str:
        """The name of the cross-encoder; systems of one name share its scores."""
        return f"{self.kind}{'@' if self.encoder else ''}{self.encoder}"


def parse_systems(texts: Sequence[str]) -> list[System]:
    """Return the systems that texts name, each once.

    A text without ``@`` may hold several systems with commas.
    """
    names: list[str] = []
    for text in texts:
        for name in [text] if "@" in text or Path(text).exists() else text.split(","):
            names += _LISTS.get(name.strip(), (name.strip(),))
    return [_parse_system(name) for name in dict.fromkeys(names)]


def _parse_system(text: str) -> System:
    named, at, encoder = text.partition("@")
    name, colon, variants = named.partition(":")
    if name not in _NAMES:
        path = Path(text)
        if path.exists():
            return System(text, "saved reranker" if path.is_dir() else "run", path=path)
        raise ConfigError(
            f"system {text!r}: expected {', '.join(_NAMES)}, all, heads, the folder of a saved "
            "reranker or a TREC run, found none of them"
        )
    if at:
        if name in _LEXICAL:
            raise ConfigError(f"system {text!r}: {name} has no encoder; leave out what follows @")
        parse_encoder(encoder)
    pattern, expected = _VARIANTS.get(name, ("()", "nothing"))
    match = re.fullmatch(pattern, colon + variants)
    if match is None:
        raise ConfigError(
            f"system {text!r}: after {name}, expected {expected}, found {colon + variants!r}"
        )
    flags = variants.split(":")
    return System(
        text,
        name,
        match[1] or "",
        random_start="random" in flags,
        ensemble="ensemble" in flags,
        fused="hybrid" in flags,
        encoder=encoder,
    )
