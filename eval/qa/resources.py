"""What the systems of an evaluation share: splits, BM25, encoders, vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import QuestionSet
from eval.qa.corpus import CorpusSearch
from eval.qa.cross import CrossPlan
from eval.qa.heads import HeadPlan
from eval.qa.lexical import PoolBM25
from eval.qa.pairs import EmbeddedPairs, embed_pairs
from eval.qa.training import DevScore, TrainingSet, hold_out, training_set
from indexes import BM25Settings
from retriever.analyzer import Analyzer
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import Dtype
from retriever.rerankers.training.sampling import NegativeSource
from retriever.search.fusion import FusionSettings

_Key = tuple[str, ...]


class Stage(Protocol):
    """Is told that a part of the work begins, and gives what is to be told of its progress."""

    def __call__(self, name: str, total: int) -> Callable[[int], None]:
        """A part of so many steps."""
        ...


def quiet(name: str, total: int) -> Callable[[int], None]:
    """A stage that nobody sees."""
    return lambda done: None


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """What an evaluation uses, but for the systems.

    Attributes:
        encoder: the text form of the encoder of systems that name none.
        device: a torch device; None takes a GPU where there is one.
        download: allow the network for models that are not in the cache.
        cache: where vectors are kept; None keeps none.
        models: where cross-encoders are kept; None keeps none.
        split: what is ranked.
        train_split: what is trained on.
        dev_split: what is chosen on.
        dev_share: this share of the training split instead of `dev_split`.
        seeds: of each head.
        cross_seeds: of each cross-encoder.
        head: training of heads; interaction, head and seed are the system's.
        cross: training of cross-encoders; the seed is the system's.
        dtype: what cross-encoders score in.
        fusion: of ``hybrid``.
        bm25: of ``bm25`` and ``hybrid``.
    """

    encoder: str = ""
    device: str | None = None
    download: bool = False
    cache: Path | None = None
    models: Path | None = None
    split: str = "test"
    train_split: str = "train"
    dev_split: str = "dev"
    dev_share: float | None = None
    seeds: int = 3
    cross_seeds: int = 1
    head: HeadPlan = field(default_factory=HeadPlan)
    cross: CrossPlan = field(default_factory=CrossPlan)
    dtype: Dtype = "float32"
    fusion: FusionSettings = field(default_factory=FusionSettings)
    bm25: BM25Settings = field(default_factory=BM25Settings)


class Resources:
    """Each is read, computed or loaded when a system first needs it.

    Args:
        read: a split of the set, by name, with pools.
        settings: see there.
        stage: is told of long work.
        warn: is told, a line each, of what a person should know.

        corpus: searches the corpus of a set that has no pools; `read` gives its hits as pools then.

    Attributes:
        questions: the split that is ranked.

    Raises:
        SourceError: the split to rank cannot be read; other splits, when they are needed.
    """

    def __init__(
        self,
        read: Callable[[str], QuestionSet],
        settings: EvaluationSettings,
        stage: Stage = quiet,
        warn: Callable[[str], object] = lambda line: None,
        corpus: CorpusSearch | None = None,
    ) -> None:
        self.corpus = corpus
        self.settings = settings
        self.stage = stage
        self.warn = warn
        self._read = read
        self._encoders: dict[str, Encoder] = {}
        self._bm25: dict[tuple[str, ...], PoolBM25] = {}
        self._embedded: dict[tuple[_Key, str], EmbeddedPairs] = {}
        self._lexical: dict[_Key, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._sets: dict[NegativeSource, TrainingSet] = {}
        self.questions = read(settings.split)

    @cached_property
    def dev(self) -> DevScore:
        """What trained systems are chosen on."""
        if self.settings.dev_share is not None:
            return DevScore(self._divided[1])
        return DevScore(self._split(self.settings.dev_split))

    def training_set(self, negatives: NegativeSource) -> TrainingSet:
        """What systems are trained on."""
        if negatives not in self._sets:
            share = self.settings.dev_share
            train = self._split(self.settings.train_split) if share is None else self._divided[0]
            self._sets[negatives] = training_set(train, negatives, lambda: self._index(train))
        return self._sets[negatives]

    def encoder(self, text: str) -> Encoder:
        """The encoder of a text form, or that of the evaluation where it is empty."""
        text = text or self.settings.encoder
        if text not in self._encoders:
            settings = self.settings
            self._encoders[text] = Encoder.load(
                text, device=settings.device, download=settings.download
            )
        return self._encoders[text]

    def pairs(self, questions: QuestionSet, encoder: str) -> EmbeddedPairs:
        """The vectors of a split."""
        key = (_key(questions), encoder or self.settings.encoder)
        if key not in self._embedded:
            model = self.encoder(encoder)
            name = f"encoding {questions.split}"
            found = embed_pairs(
                model, questions, self.settings.cache, lambda total: self.stage(name, total)
            )
            if found.cut:
                self.warn(
                    f"{model.spec}: the end of {found.cut:,} texts of {questions.split} was not "
                    f"read: they are longer than the window of {model.spec.max_length} word pieces"
                )
            self._embedded[key] = found
        return self._embedded[key]

    def lexical(self, questions: QuestionSet) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """BM25 of a split's pairs, and which of them share a term."""
        key = _key(questions)
        if key not in self._lexical:
            self._lexical[key] = self._index(questions).scores(questions)
        return self._lexical[key]

    @cached_property
    def _divided(self) -> tuple[QuestionSet, QuestionSet]:
        train = self._split(self.settings.train_split)
        return hold_out(train, self.settings.dev_share or 0)

    def _split(self, name: str) -> QuestionSet:
        return self.questions if name == self.settings.split else self._read(name)

    def _index(self, questions: QuestionSet) -> PoolBM25:
        # Splits that have the same passages share their statistics.
        key = tuple(questions.passages)
        if key not in self._bm25:
            self._bm25[key] = PoolBM25(questions.passages, Analyzer(), self.settings.bm25)
        return self._bm25[key]


def _key(questions: QuestionSet) -> _Key:
    """Tells parts of a set apart: a split, its answered questions, those that are held out."""
    return tuple(question.id for question in questions.questions)
