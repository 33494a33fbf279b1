"""What the systems of an evaluation share: splits, BM25, encoders, vectors and the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_forms import read_question_set, splits_of
from eval.datasets.question_set import QuestionSet
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.corpus import CorpusSearch, corpus_texts
from eval.qa.scores import Components, EmbeddedPairs, PoolBM25, RankBM25, embed_pairs
from eval.qa.settings import QuestionSettings
from eval.qa.training import DevScore, hold_out, training_set, without_overlap
from eval.vectors import Loading
from retriever.documents.analyzer import Analyzer
from retriever.encoders.models.finding import DEFAULT_MODEL
from retriever.encoders.protocol import LoadedEncoder
from retriever.encoders.remote.address import is_url, require_asked
from retriever.encoders.settings import Dtype, over_model, parse_encoder
from retriever.errors import ConfigError, SourceError
from retriever.rerankers.cross.folder import load_cross_encoder
from retriever.search import BM25Settings
from retriever.training.sampling import NegativeSource, TrainingSet

Questions = str | Path | QuestionSet | Mapping[str, QuestionSet]
"""A folder, one split that is loaded, or several by their names."""

_Key = tuple[str, ...]


def split_reader(given: Questions, settings: QuestionSettings) -> Callable[[str], QuestionSet]:
    """Reads a split of a question set by name; each is read once.

    Args:
        given: the set.
        settings: form and variant of a folder.

    Raises:
        ConfigError: when called: the split is not among those that are loaded.
        SourceError: when called: it cannot be read.
    """
    loaded: dict[str, QuestionSet] = {}
    if isinstance(given, QuestionSet):
        loaded[given.split] = given
    elif isinstance(given, Mapping):
        loaded.update(given)

    def read(split: str) -> QuestionSet:
        if split not in loaded:
            if not isinstance(given, str | Path):
                raise ConfigError(
                    f"split: expected one of {', '.join(loaded)}, which are loaded, found {split}"
                )
            loaded[split] = read_question_set(
                Path(given), split, form=settings.form, variant=settings.variant
            )
        return loaded[split]

    return read


def check_index(questions: QuestionSet, settings: QuestionSettings) -> None:
    """Make sure that a set without pools comes with an index, and no other.

    Raises:
        ConfigError: it does not.
    """
    if questions.corpus and settings.index is None:
        raise ConfigError(
            f"{questions.name}: the set has no pools of candidates, so the whole corpus is ranked; "
            "name a folder for an index of it with --index FOLDER, which is created if there is "
            "none"
        )
    if settings.index is not None and not questions.corpus:
        raise ConfigError(
            f"{questions.name}: the set has pools of candidates, which need no index; leave out "
            "--index"
        )


class Resources:
    """Each is read, computed or loaded when a system first needs it.

    Args:
        read: gives a split of the set by its name.
        split: the split to rank.
        data: how the set is divided.
        encoder: text form of the encoder of systems that name none; it is that of the index where
            there is one.
        loading: where models come from, and where vectors are cached.
        bm25: variant and parameters.
        progress: of long stages.
        notify: what a person should know.
        corpus: searches the corpus of a set that has no pools.
        models: a folder for cross-encoders.
        dtype: number format that cross-encoders score in.

    Attributes:
        cuts: a line on each model that did not read the end of texts of the split to rank.
    """

    def __init__(
        self,
        read: Callable[[str], QuestionSet],
        split: str,
        data: QuestionSettings,
        encoder: str = "",
        loading: Loading | None = None,
        bm25: BM25Settings | None = None,
        progress: Progress = silent,
        notify: Notify = ignore,
        corpus: CorpusSearch | None = None,
        *,
        models: Path = Path(),
        dtype: Dtype = "float32",
    ) -> None:
        self.loading = loading or Loading()
        self.progress = progress
        self.notify = notify
        self.cuts: list[str] = []
        self.corpus = corpus
        self.models = models
        self._dtype = dtype
        self._read = read
        self._split = split
        self._data = data
        self._encoder = encoder
        self._together: tuple[str, ...] = ()
        self._bm25 = bm25
        self._encoders: dict[str, LoadedEncoder] = {}
        self._pooled: dict[_Key, QuestionSet] = {}
        self._indexes: list[tuple[Mapping[str, str], PoolBM25]] = []
        self._embedded: dict[tuple[_Key, str], EmbeddedPairs] = {}
        self._lexical: dict[_Key, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._training: dict[tuple[NegativeSource, bool], TrainingSet] = {}
        self._cross: dict[tuple[str, _Key], NDArray[np.float32]] = {}

    @cached_property
    def questions(self) -> QuestionSet:
        """The split to rank, as it was read: without pools where the whole corpus is ranked."""
        return self._read(self._split)

    def pools(self, questions: QuestionSet) -> QuestionSet:
        """The questions with pools, which are the hits of an index where the set has none."""
        if self.corpus is None:
            return questions
        key = _key(questions)
        if key not in self._pooled:
            self._pooled[key] = self.corpus.pools(questions)
        return self._pooled[key]

    @cached_property
    def dev_questions(self) -> QuestionSet:
        """The questions with a relevant passage that weights are chosen on, as they were read."""
        if self._data.dev_share is not None:
            return self._divided[1]
        return self._read(self._data.dev_split).answered()

    @cached_property
    def dev(self) -> DevScore:
        """Scores trained systems on dev."""
        return DevScore(self.pools(self.dev_questions))

    def training_set(self, negatives: NegativeSource, *, unanswered: bool = False) -> TrainingSet:
        """The data that systems are trained on; see `eval.qa.training.training_set`."""
        key = (negatives, unanswered)
        if key not in self._training:
            share = self._data.dev_share
            read = self._read(self._data.train_split) if share is None else self._divided[0]
            train = self._without_overlap(self.pools(read))
            self._training[key] = training_set(
                train, negatives, lambda: self._index(train), unanswered=unanswered
            )
        return self._training[key]

    def _without_overlap(self, questions: QuestionSet) -> QuestionSet:
        """The questions that no set has that is not to be trained on."""
        if not self._data.without:
            return questions
        others = [one for path in self._data.without for one in _tested(path)]
        kept = without_overlap(questions, others)
        self.notify(
            f"note: {questions.name}: left out {len(questions) - len(kept):,} of "
            f"{len(questions):,} questions, which overlap with "
            f"{', '.join(map(str, self._data.without))}"
        )
        return kept

    @property
    def model(self) -> str | None:
        """The model that the evaluation names."""
        return parse_encoder(self._encoder).model

    def encoder(self, text: str = "") -> LoadedEncoder:
        """The encoder of a text form; that of the evaluation, or of its index, if it is empty."""
        return self._group(text)[text or self._encoder]

    def form(self, encoder: str) -> str:
        """The text form with a model: settings alone are of that of the evaluation or its index.

        Raises:
            ConfigError: it is the URL of an index that the evaluation does not name.
        """
        if not encoder.startswith("::"):
            return encoder
        model = self.model
        if model is None and self.corpus is not None:
            model = self.corpus.index.encoder_spec.model
            if is_url(model):
                require_asked(model, None)
        return over_model(encoder, model or DEFAULT_MODEL)

    def share(self, encoders: Iterable[str]) -> None:
        """Let encoders of one model share its passes.

        Args:
            encoders: text forms; may repeat, and be empty for that of the evaluation.
        """
        forms = dict.fromkeys(one or self._encoder for one in encoders)
        if self.corpus is not None:
            forms.pop(self._encoder, None)
        self._together = tuple(forms)

    def _group(self, text: str) -> Mapping[str, LoadedEncoder]:
        """An encoder, and those of the evaluation that are of the same model, by text form."""
        text = text or self._encoder
        if self.corpus is not None and text == self._encoder:
            return {text: self.corpus.index.encoder}
        model = parse_encoder(text).model or DEFAULT_MODEL
        forms = [
            one for one in self._together if (parse_encoder(one).model or DEFAULT_MODEL) == model
        ]
        if text not in forms:
            forms = [text]
        if text not in self._encoders:
            loaded: list[LoadedEncoder]
            if len(forms) > 1:
                loaded = [*self.loading.load_together(forms)]
            else:
                loaded = [self.loading.load(text)]
            self._encoders |= zip(forms, loaded, strict=True)
        return {one: self._encoders[one] for one in forms}

    def pairs(self, questions: QuestionSet, encoder: str = "") -> EmbeddedPairs:
        """The vectors of questions with pools."""
        of, encoder = _key(questions), encoder or self._encoder
        if (of, encoder) not in self._embedded:
            group = self._group(encoder)
            name = f"encoding {questions.split}"
            found = embed_pairs(
                list(group.values()),
                questions,
                self.loading.cache,
                lambda total: self.progress(name, total),
            )
            for (form, model), pairs in zip(group.items(), found, strict=True):
                self._embedded[of, form] = pairs
                if pairs.cut:
                    self._note_cut(
                        f"{model.spec}: the end of {pairs.cut:,} texts",
                        questions,
                        model.spec.max_length,
                    )
        return self._embedded[of, encoder]

    def lexical(self, questions: QuestionSet) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(pairs,) BM25 of questions with pools, and (pairs,) which pairs share a term."""
        key = _key(questions)
        if key not in self._lexical:
            self._lexical[key] = self._index(questions).scores(questions.questions)
        return self._lexical[key]

    def components(self, questions: QuestionSet, encoder: str) -> Components:
        """Both scores of the pairs of questions with pools."""
        dense = self.pairs(questions, encoder).cosines()
        sizes = tuple(len(one.candidates) for one in questions.questions)
        return Components(sizes, dense, *self.lexical(questions))

    def cross_scores(self, name: str, folder: Path, questions: QuestionSet) -> NDArray[np.float32]:
        """(pairs,) scores of questions with pools by a saved cross-encoder of a unique name."""
        key = (name, _key(questions))
        if key not in self._cross:
            model = load_cross_encoder(folder, device=self.loading.device, dtype=self._dtype)
            left, right = questions.pairs()
            done = self.progress(f"scoring {questions.split} with {folder.name}", len(left))
            self._cross[key] = model.score(left, right, done)
            if model.cut:
                self._note_cut(
                    f"{folder.name}: the end of {model.cut:,} of {len(left):,} pairs",
                    questions,
                    model.max_length,
                )
        return self._cross[key]

    def _note_cut(self, what: str, questions: QuestionSet, window: int) -> None:
        """Say that texts lost their ends, also in the report if they are those to rank."""
        line = (
            f"{what} of {questions.split} was not read: they are longer than the window of "
            f"{window} word pieces"
        )
        self.notify(f"warning: {line}")
        if questions.split == self._split:
            self.cuts.append(line)

    @cached_property
    def rank_bm25(self) -> RankBM25:
        """The package rank-bm25 over all passages of the set, or over its whole corpus."""
        questions = self.questions
        texts = dict(corpus_texts(questions)) if questions.corpus else questions.passages
        return RankBM25(texts, self._analyzer)

    @property
    def _analyzer(self) -> Analyzer:
        return Analyzer() if self.corpus is None else self.corpus.index.analyzer

    @cached_property
    def _divided(self) -> tuple[QuestionSet, QuestionSet]:
        return hold_out(self._read(self._data.train_split), self._data.dev_share or 0)

    def _index(self, questions: QuestionSet) -> PoolBM25:
        # Splits with the same passages share their statistics. Ids are not enough: some data sets
        # number the passages of each split from 1.
        for passages, index in self._indexes:
            if passages == questions.passages:
                return index
        index = PoolBM25(questions.passages, self._analyzer, self._bm25)
        self._indexes.append((questions.passages, index))
        return index


def _tested(path: Path) -> list[QuestionSet]:
    """The splits of a set that must not be trained on: dev and test, as many as there are.

    Raises:
        SourceError: it has none, or one cannot be read.
    """
    splits = [one for one in splits_of(path) if not one.startswith("train")]
    if not splits:
        raise SourceError(
            f"{path}: expected a split that is not for training, to leave out what it has, found "
            "none; name another set with --without"
        )
    return [read_question_set(path, split) for split in splits]


def _key(questions: QuestionSet) -> _Key:
    """Distinguishes parts of a set: a split, its questions with answers, those held out."""
    return (questions.split, *(question.id for question in questions.questions))
