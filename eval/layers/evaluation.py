"""Searching for the set of layers whose mean is the best vector for pairs or questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, contained, read_pairs
from eval.datasets.question_forms import read_question_set
from eval.datasets.question_set import QuestionSet
from eval.datasets.sts import read_sts
from eval.layers.figures import effects_figure
from eval.layers.fused import LayerFusion, encode_fused, layer_fusion
from eval.layers.grams import encode_pairs
from eval.layers.protocol import (
    LayerReport,
    ShuffledReport,
    check_division,
    search_given,
    search_shuffled,
)
from eval.layers.ranking import PoolRanking
from eval.layers.report import layer_report
from eval.layers.search import Task
from eval.layers.subsets import layer_subsets
from eval.metrics.correlation import CORRELATIONS, Correlation, pair_correlation
from eval.progress import Progress, silent
from eval.reports import Report, ReportedResult
from eval.vectors import Loading, embed, split_layers
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LayerData = str | Path | Sequence[str | Path] | ScoredPairs | QuestionSet
"""A file of scored pairs or several, a folder of questions with candidates (with the protocol
``paper`` that of a similarity test), or pairs or questions that are loaded."""


@dataclass(frozen=True, slots=True)
class LayerSearchSettings:
    """How layers are searched.

    Attributes:
        encoder: text form; model, pooling, special tokens, prompts, window and number format count.
            ``fusion=max`` and ``head=yes`` are searched with, by vectors made for each set. Layers,
            other fusions and a static method are refused.
        loading: where the model comes from, and where vectors are cached.
        objective: ``spearman`` or ``pearson`` for pairs, a measure such as ``AP`` for questions;
            None takes the first of these.
        protocol: ``given`` searches and tests on the data as given; ``paper`` shuffles and divides
            pairs as Hosseini et al. 2023.
        split: of a folder, to search on; None takes "dev".
        test_split: of a folder, to test on; None tests nothing.
        shuffles: of ``paper``: number of divisions.
        dev_size: of ``paper``: number of pairs to search on.
        max_layers: maximum size of a set; None tries all sets.
        top: number of best sets to report.
        resamples: of the bootstrap for the interval of the gain.
        seed: of resamples and shuffles.

    Raises:
        ConfigError: the protocol is unknown, or a number is below 1.
    """

    encoder: str = ""
    loading: Loading = field(default_factory=Loading)
    objective: str | None = None
    protocol: Literal["given", "paper"] = "given"
    split: str | None = None
    test_split: str | None = None
    shuffles: int = 5
    dev_size: int = 350
    max_layers: int | None = None
    top: int = 10
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.protocol not in ("given", "paper"):
            raise ConfigError(f"protocol: expected given or paper, found {self.protocol!r}")
        for name in ("shuffles", "top", "resamples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class DataSource:
    """The data of a search or of its test.

    Attributes:
        name: of files, or of a question set with its split.
        units: number of pairs or questions.
        left_out: number of questions without a relevant passage, which are left out.
    """

    name: str
    units: int
    left_out: int


@dataclass(frozen=True, slots=True, eq=False)
class LayerSearchResult(ReportedResult):
    """The result of a layer search.

    Attributes:
        encoder: text form of the encoder with the best set of layers.
        objective: name of what the best set is best at.
        unit: "pairs" or "questions".
        hidden_states: of the model.
        subsets: number of sets that were tried.
        search_data: the data that layers were chosen on.
        held_out_data: the data that the choice was tested on; None if there was none, or if it was
            divided from the search data.
        found: the searches.
        settings: how layers were searched.
        command: reproduces the result; may be empty.
    """

    encoder: str
    objective: str
    unit: str
    hidden_states: int
    subsets: int
    search_data: DataSource
    held_out_data: DataSource | None
    found: LayerReport | ShuffledReport
    settings: LayerSearchSettings
    command: str = ""

    def report(self) -> Report:
        """The result for a reader."""
        return layer_report(self)

    def figure(self) -> Figure:
        """The effects of the number of layers and of each layer; see `effects_figure`."""
        found = self.found
        return effects_figure(found.sizes, found.layers, found.baseline.search, self.objective)

    def data(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "encoder": self.encoder,
            "objective": self.objective,
            "unit": self.unit,
            "protocol": self.settings.protocol,
            "hidden_states": self.hidden_states,
            "subsets": self.subsets,
            "search_data": _source(self.search_data),
            "held_out_data": self.held_out_data and _source(self.held_out_data),
            **asdict(self.found),
        }


def search_layers(
    data: LayerData,
    settings: LayerSearchSettings | None = None,
    *,
    test: LayerData | None = None,
    progress: Progress = silent,
    command: str = "",
) -> LayerSearchResult:
    """Try every set of hidden states, averaged as in BERT-LC, and test the best one.

    Args:
        data: what layers are chosen on; with the protocol ``paper`` also what they are tested on.
        settings: how layers are searched; None takes the defaults.
        test: scored pairs or questions to test the choice on; for a folder of questions name
            `settings.test_split` instead.
        progress: of long stages.
        command: reproduces the result, for its report.

    Raises:
        ConfigError: settings that contradict each other, the data or the model.
        SourceError: a file is malformed, or a question set has no candidates.
        BadInputError: there are fewer than two pairs, or gold scores are all equal.
        What `Encoder.load` raises.
    """
    settings = settings or LayerSearchSettings()
    asked = _checked_encoder(settings.encoder)
    searched, held_out = _read(data, test, settings)
    goal = searched.objective(settings.objective)
    test_goal = None if held_out is None else held_out.objective(goal.name)
    if settings.protocol == "paper":
        check_division(goal.units, settings.dev_size)
    encoder = settings.loading.load(
        replace(asked, layers="all", fusion="concat", head=False, normalize=False)
    )
    fusion = layer_fusion(asked, settings.loading)
    subsets = layer_subsets(encoder.depth + 1, settings.max_layers)
    task = _task(encoder, searched, goal, fusion, settings.loading.cache, progress)
    found: LayerReport | ShuffledReport
    if settings.protocol == "paper":
        found = search_shuffled(
            task,
            subsets,
            dev_size=settings.dev_size,
            shuffles=settings.shuffles,
            top=settings.top,
            resamples=settings.resamples,
            seed=settings.seed,
            progress=progress,
        )
    else:
        tested = None
        if held_out is not None and test_goal is not None:
            tested = _task(encoder, held_out, test_goal, fusion, settings.loading.cache, progress)
        found = search_given(
            task,
            tested,
            subsets,
            top=settings.top,
            resamples=settings.resamples,
            seed=settings.seed,
            progress=progress,
        )
    return LayerSearchResult(
        encoder=_encoder_text(asked, encoder, found.best.layers),
        objective=goal.name,
        unit=goal.unit,
        hidden_states=encoder.depth + 1,
        subsets=len(subsets),
        search_data=DataSource(searched.name, goal.units, searched.left_out),
        held_out_data=None
        if held_out is None or test_goal is None
        else DataSource(held_out.name, test_goal.units, held_out.left_out),
        found=found,
        settings=settings,
        command=command,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Scored pairs; all of them count."""

    name: str
    pairs: ScoredPairs
    left_out: int = 0

    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """The first and the second sentence of each pair."""
        return self.pairs.left, self.pairs.right

    def objective(self, name: str | None) -> Correlation:
        """A correlation with the gold scores."""
        return pair_correlation(self.pairs.gold, name, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class _Pools:
    """Questions with candidates; those without a relevant passage are left out."""

    name: str
    questions: QuestionSet
    left_out: int

    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """Question and candidate, as in `QuestionSet.pairs`."""
        return self.questions.pairs()

    def objective(self, name: str | None) -> PoolRanking:
        """The mean of a measure."""
        if name in CORRELATIONS:
            raise ConfigError(
                "objective: expected a measure of rankings for questions, such as AP, RR or "
                f"nDCG@10, found {name}, which needs a file of scored pairs"
            )
        return PoolRanking(self.questions.questions, name or "AP")


_Data = _Pairs | _Pools


def _read(
    data: LayerData, test: LayerData | None, settings: LayerSearchSettings
) -> tuple[_Data, _Data | None]:
    """The data to search on, and the data to test the choice on."""
    paper = settings.protocol == "paper"
    searched = _loaded(data, settings.split, divided=paper)
    if paper:
        if isinstance(searched, _Pools) or test is not None:
            raise ConfigError(
                "protocol: paper merges and divides scored pairs; name files of pairs or the "
                "folder of a similarity test, and no data to test on (--test)"
            )
        if settings.test_split is not None:
            raise ConfigError("test-split: protocol paper divides the pairs itself; leave it out")
        return searched, None
    if isinstance(searched, _Pairs):
        if settings.split is not None or settings.test_split is not None:
            name = "test-split" if settings.split is None else "split"
            raise ConfigError(
                f"{name}: it names a split of a folder; for scored pairs name the file to test on "
                "(--test)"
            )
        held_out = None if test is None else _loaded(test, None)
        # Pairs that are loaded may be the same: a caller who passes them twice asks for it.
        if (
            isinstance(test, str | Path)
            and isinstance(held_out, _Pairs)
            and contained([searched.pairs, held_out.pairs])
        ):
            raise ConfigError(
                "test: expected other pairs than those that are searched on, found "
                f"{held_out.name} again; nothing is held out of it"
            )
        return searched, held_out
    if test is not None and not isinstance(test, QuestionSet):
        raise ConfigError(
            "test: it names a file of scored pairs; for a folder of questions name the split to "
            "test on (--test-split)"
        )
    if isinstance(test, QuestionSet):
        return searched, _pools(test)
    if settings.test_split is None:
        return searched, None
    if isinstance(data, QuestionSet):
        raise ConfigError(
            "test-split: it names a split of a folder, but the questions are loaded; load those to "
            "test on too (test)"
        )
    if settings.test_split == (settings.split or "dev"):
        raise ConfigError(
            f"test-split: expected another split than the one that is searched on, found "
            f"{settings.test_split}; nothing is held out of it"
        )
    return searched, _loaded(data, settings.test_split)


def _loaded(data: LayerData, split: str | None, *, divided: bool = False) -> _Data:
    """The data; `divided` takes the folder of a similarity test with all its splits."""
    if isinstance(data, ScoredPairs):
        return _Pairs("pairs", data)
    if isinstance(data, QuestionSet):
        return _pools(data)
    paths = [Path(data)] if isinstance(data, str | Path) else [Path(one) for one in data]
    if any(path.is_dir() for path in paths):
        if len(paths) > 1:
            raise ConfigError(
                "data: expected one folder, or files of scored pairs, found "
                f"{', '.join(map(str, paths))}; name one folder, or files only"
            )
        if divided and split is None:
            try:
                return _Pairs(str(paths[0]), read_sts(paths[0]).everything())
            except SourceError as error:
                raise ConfigError(
                    "protocol: paper merges and divides scored pairs; name files of pairs or the "
                    f"folder of a similarity test ({error})"
                ) from error
        return _pools(read_question_set(paths[0], split or "dev"), str(paths[0]))
    return _Pairs(", ".join(map(str, paths)), read_pairs(paths))


def _pools(questions: QuestionSet, folder: str = "") -> _Pools:
    name = folder or questions.name
    if questions.corpus:
        raise SourceError(
            f"{name}: expected questions with candidates, found a whole corpus to rank; add a "
            f"file candidates.{questions.split}.jsonl, or take another set"
        )
    return _Pools(f"{name} ({questions.split})", questions.answered(), questions.without_answer)


def _task(
    encoder: Encoder,
    data: _Data,
    objective: Correlation | PoolRanking,
    fusion: LayerFusion,
    cache: Path | None,
    progress: Progress,
) -> Task:
    """Encode the texts of the data."""
    left, right = data.texts()
    queries = isinstance(data, _Pools)
    total = len({*left}) + len({*right}) if queries else len({*left, *right})
    encode = _layer_vectors(encoder, cache, progress("encoding texts", total))
    if fusion.is_linear:
        return Task(encode_pairs(encode, left, right, queries=queries), objective)
    return Task(encode_fused(encode, left, right, fusion, queries=queries), objective)


def _layer_vectors(
    encoder: Encoder, cache: Path | None, done: Callable[[int], object]
) -> Callable[[Sequence[str], bool], NDArray[np.float32]]:
    def encode(texts: Sequence[str], query: bool) -> NDArray[np.float32]:
        found = embed(encoder, texts, cache, query=query, done=done)
        return split_layers(found.vectors, encoder.depth)

    return encode


def _checked_encoder(form: str) -> EncoderSettings:
    """The settings of an encoder, without what the search decides.

    Raises:
        ConfigError: it has layers, a fusion other than mean and maximum, or a static method.
    """
    asked = parse_encoder(form)
    why: dict[str, tuple[tuple[str, ...], str]] = {
        "layers": ((), "the search chooses the layers; leave it out"),
        "fusion": (("mean", "max"), "the search takes means or maxima of layers; leave it out"),
        "static": ((), "a static encoder has no layers to choose from; leave it out"),
    }
    for name, (allowed, reason) in why.items():
        if getattr(asked, name) not in (None, *allowed):
            raise ConfigError(f"{name}: found {getattr(asked, name)}, but {reason}")
    return asked


def _encoder_text(asked: EncoderSettings, encoder: Encoder, layers: Sequence[int]) -> str:
    """The text form that was asked for, with these layers."""
    settings = replace(
        asked,
        model=asked.model or encoder.spec.model,
        layers=",".join(map(str, layers)) if asked.fusion == "max" else None,
        fusion=asked.fusion if asked.fusion == "max" else None,
        # Without it, set only where the model's own files add a head.
        head=asked.head or encoder.spec.settings.head,
    )
    if asked.fusion == "max":
        return str(settings)
    return f"{settings}::lc:{','.join(map(str, layers))}"


def _source(data: DataSource) -> dict[str, object]:
    return {"from": data.name, "units": data.units, "left_out": data.left_out}
