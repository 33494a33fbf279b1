"""Training and dev data of an encoder, from data sets, files of pairs and corpora."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from eval.datasets.classification import read_classification
from eval.datasets.pairs import (
    ScoredPairs,
    field_names,
    named_rows,
    read_pairs,
    read_sts,
    text_field,
)
from eval.datasets.question_forms import detect_form
from eval.datasets.question_set import QuestionSet
from eval.metrics.correlation import RANKED_DECIMALS, cosines, pair_correlation
from eval.progress import Done, Notify, Progress, ignore
from eval.qa.pools import (
    DEV_MEASURE,
    HARD,
    DevScore,
    EmbeddedPairs,
    PoolBM25,
    hold_out,
    relevant_ids,
)
from eval.qa.resources import Questions, corpus_texts, open_resources, split_reader
from eval.qa.systems import QASettings
from eval.settings import Loading, QuestionSettings
from eval.vectors import distinct
from retriever.documents import Analyzer, Document
from retriever.encoders.training import (
    Examples,
    LabeledExamples,
    ScoredExamples,
    TrainableEncoder,
    paired_texts,
)
from retriever.errors import BadInputError, ConfigError, SourceError
from retriever.settings import Checked, setting
from retriever.training import (
    EncoderTrainingSettings,
    JudgedPools,
    Objective,
    Reservoir,
    TrainingSet,
)

# Without a dev split: the share of pairs to hold out, and the most pairs, unless a share is named.
_DEV_SHARE = 0.1
_MAX_DEV = 1000
_ANCHORED = ("anchor", "positive")
_LABELED = ("label", "sentence1", "sentence2")
_ROWS_AT_ONCE = 512

PairKind = Literal["title"]


class TextPair(NamedTuple):
    """Two texts, with their score, their label, or a negative for the left text."""

    left: str
    right: str
    # A score, a label, or a text that is not relevant to the left one.
    value: Any = None


@dataclass(frozen=True, slots=True)
class CorpusPairs(Checked):
    """Pairs of title and text, drawn uniformly from a corpus that is read once as a stream."""

    documents: Iterable[Document]
    kind: PairKind = setting("title", "Pairs to make of a document.")
    sample: int = setting(10_000, "Maximum number of pairs; all are in memory.", low=2)
    seed: int = setting(0, "Random seed of what is drawn.", low=0)

    def draw(self, done: Done = ignore) -> list[TextPair]:
        """Draw the sample, in random order.

        Raises:
            BadInputError: the corpus has fewer than two pairs.
        """
        reservoir = Reservoir[TextPair](self.sample, self.seed)
        for document in self.documents:
            title = (document.title or "").strip()
            text = document.text.strip()
            if title and text and title != text:
                reservoir.add(TextPair(title, text))
            done(1)
        if reservoir.seen < 2:
            raise BadInputError(
                "pairs: expected documents with both title and text, found "
                f"{reservoir.seen} in the corpus; name another, or files of pairs"
            )
        order = np.random.default_rng(self.seed).permutation(len(reservoir.items))
        return [reservoir.items[place] for place in order]


EncoderData = Questions | Sequence[Path] | CorpusPairs


class _Pairs(NamedTuple):
    """Pairs of one kind; pairs with anchors may have a negative."""

    kind: Literal["scores", "labels", "anchors"]
    rows: list[TextPair]

    def columns(self) -> tuple[list[str], list[str], list[Any]]:
        """Return the left texts, the right texts, and the values."""
        left, right, values = zip(*self.rows, strict=True)
        return list(left), list(right), list(values)


@dataclass(frozen=True, slots=True)
class EncoderFitSettings:
    """How an encoder is fine-tuned on data.

    Attributes:
        encoder: text form of what is fine-tuned; empty for the bundled model.
        training: objective and settings of the training. For a folder that holds several kinds of
            data, the objective decides which is read.
        data: how a question set is read; `dev_share` is the share of any data to hold out.
        dev: a file or folder to choose epochs on; None takes the dev split of the data, or holds
            out a part of them.
    """

    encoder: str = ""
    training: EncoderTrainingSettings = field(default_factory=EncoderTrainingSettings)
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    dev: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DevMeasure:
    """A measure of an encoder, at most 1, on questions or pairs.

    Attributes:
        name: name of the measure.
        units: number of questions or pairs.
        digest: SHA-256 of the data, in hexadecimal.
        score: computes the measure.
    """

    name: str
    units: int
    digest: str
    score: Callable[[TrainableEncoder], float]


class EncoderExamples(NamedTuple):
    """Training data with their name, and the measure that chooses the epoch."""

    name: str
    train: Examples
    dev: DevMeasure

    @property
    def train_size(self) -> int:
        """Number of questions, or of pairs, to train on."""
        return len(self.train.questions if isinstance(self.train, TrainingSet) else self.train)


def read_examples(
    data: EncoderData, settings: EncoderFitSettings, progress: Progress, notify: Notify
) -> EncoderExamples:
    """Read training data, and the data that choose the epoch."""
    share = settings.data.dev_share
    objective = settings.training.objective
    if settings.dev is not None and share is not None:
        raise ConfigError(
            "dev: --dev and --dev-share both choose the dev data; leave one of the two out"
        )
    if isinstance(data, QuestionSet | Mapping):
        return _question_examples(data, settings, progress, notify)
    dev: _Pairs | None = None
    if isinstance(data, CorpusPairs):
        _refuse_exclusions(settings)
        name = f"{data.kind} pairs of a corpus"
        train = _Pairs("anchors", data.draw(progress("reading the corpus", None)))
    else:
        paths = [Path(data)] if isinstance(data, str | Path) else [Path(path) for path in data]
        if len(paths) == 1 and _has_questions(paths[0], settings.data, objective):
            return _question_examples(paths[0], settings, progress, notify)
        _refuse_exclusions(settings)
        for name, usual in (("train_split", "train"), ("dev_split", "dev")):
            if getattr(settings.data, name) != usual:
                raise ConfigError(
                    f"{name.replace('_', '-')}: only question sets have named splits; for pairs, "
                    "name the dev file with --dev"
                )
        if len({path.resolve() for path in paths}) < len(paths):
            raise ConfigError(
                "data: expected each file once, found the same file twice; leave one out"
            )
        name = ", ".join(path.name for path in paths)
        train, dev = _read(paths, objective)
    if settings.dev is None and (dev is None or share is not None):
        train, dev = _hold_out_pairs(train, share)
    examples = _examples(train, settings)
    return EncoderExamples(name, examples, _measure(dev, examples, settings))


def _refuse_exclusions(settings: EncoderFitSettings) -> None:
    if settings.data.without:
        raise ConfigError(
            "without: it needs a question set with pools of candidates; leave out --without"
        )


def _has_questions(path: Path, data: QuestionSettings, objective: Objective | None) -> bool:
    if data.form is not None:
        return True
    if not path.is_dir() or objective in ("sts", "nli"):
        return False
    try:
        detect_form(path)
    except SourceError:
        return False
    return True


def _question_examples(
    data: Questions, settings: EncoderFitSettings, progress: Progress, notify: Notify
) -> EncoderExamples:
    read = split_reader(data, settings.data)
    first = read(settings.data.train_split)
    if first.corpus and settings.data.index is None:
        return _corpus_question_examples(read, first, settings)
    opened = QASettings(settings.encoder, settings.loading, settings.data).on_training_split()
    with open_resources(data, opened, progress, notify) as resources:
        train = resources.training_set(settings.training.sampling.negatives)
        dev = _pool_ranking(resources.dev) if settings.dev is None else None
    return EncoderExamples(first.name, train, dev or _measure(None, train, settings))


def _corpus_question_examples(
    read: Callable[[str], QuestionSet], first: QuestionSet, settings: EncoderFitSettings
) -> EncoderExamples:
    """Pair questions with their relevant documents of a corpus; no other document is read."""
    _refuse_exclusions(settings)
    train = first
    dev = None
    if settings.data.dev_share is not None:
        train, dev = hold_out(first, settings.data.dev_share)
    elif settings.dev is None:
        dev = read(settings.data.dev_split)
    examples = _examples(_relevant(train), settings)
    material = None if dev is None else _relevant(dev)
    return EncoderExamples(first.name, examples, _measure(material, examples, settings))


def _relevant(questions: QuestionSet) -> _Pairs:
    """Pair each question with each of its relevant documents, title first."""
    question_documents = [
        (question.text, id_) for question in questions.questions for id_ in relevant_ids(question)
    ]
    document_ids = {id_ for _, id_ in question_documents}
    texts = {id_: text for id_, text in corpus_texts(questions) if id_ in document_ids}
    rows = [TextPair(text, texts[id_]) for text, id_ in question_documents if id_ in texts]
    if not rows:
        raise BadInputError(
            f"{questions.name} {questions.split}: expected a question with a relevant document, "
            "found none; name another split with --train-split or --set dev-split"
        )
    return _Pairs("anchors", rows)


def _read(paths: Sequence[Path], objective: Objective | None) -> tuple[_Pairs, _Pairs | None]:
    """Read the training data and the dev split of a folder, or the training data of files."""
    if len(paths) == 1 and paths[0].is_dir():
        return _read_folder(paths[0], objective)
    parts = [_read_file(path) for path in paths]
    if len({part.kind for part in parts}) > 1:
        raise ConfigError(
            "data: expected files of one kind (scored pairs, labeled pairs, or anchors with "
            f"positives), found several in {', '.join(map(str, paths))}; train on one at a time"
        )
    return _Pairs(parts[0].kind, [row for part in parts for row in part.rows]), None


def _read_file(path: Path) -> _Pairs:
    if not path.is_file():
        raise SourceError(f"{path}: no such file or folder")
    names = set(field_names(path))
    if names.issuperset(_ANCHORED):
        rows = []
        for where, row in named_rows(path, _ANCHORED):
            anchor, positive = (text_field(where, row[name], name) for name in _ANCHORED)
            negative = row.get("negative")
            if isinstance(negative, str) and not negative.strip():
                negative = None
            if negative is not None:
                negative = text_field(where, negative, "negative")
            rows.append(TextPair(anchor, positive, negative))
        return _Pairs("anchors", rows)
    if "score" in names:
        return _scored(read_pairs([path]))
    if "label" in names:
        return _labeled(path)
    raise SourceError(
        f"{path}: expected the fields anchor and positive, or sentence1 and sentence2 with score "
        f"or label, found {', '.join(sorted(names)) or 'none'}; rename the fields, or make pairs "
        "of a corpus with --pairs"
    )


def _scored(pairs: ScoredPairs) -> _Pairs:
    rows = zip(pairs.left, pairs.right, pairs.gold, strict=True)
    return _Pairs("scores", [TextPair(*row) for row in rows])


def _labeled(path: Path) -> _Pairs:
    rows = []
    for where, row in named_rows(path, _LABELED):
        left, right = (text_field(where, row[name], name) for name in _LABELED[1:])
        label = row["label"]
        if not isinstance(label, bool | int | float):
            label = text_field(where, label, "label").strip()
        rows.append(TextPair(left, right, str(label)))
    if not rows:
        raise SourceError(f"{path}: expected labeled pairs, found none; check the file")
    return _Pairs("labels", rows)


def _read_folder(folder: Path, objective: Objective | None) -> tuple[_Pairs, _Pairs | None]:
    readers = {"sts": _scored_splits, "nli": _labeled_splits}
    splits: dict[str, _Pairs] = {}
    if objective in readers:
        splits = readers[objective](folder)
    else:
        for read in readers.values():
            with suppress(SourceError):
                splits = splits if "train" in splits else read(folder)
    if "train" not in splits:
        raise SourceError(
            f"{folder}: expected questions with passages, or a training split of scored or "
            "labeled pairs, found none; name files of pairs, or make pairs of a corpus with "
            "--pairs"
        )
    return splits["train"], splits.get("dev")


def _scored_splits(folder: Path) -> dict[str, _Pairs]:
    task = read_sts(folder)
    splits = {"train": task.train, "dev": task.dev}
    return {split: _scored(pairs) for split, pairs in splits.items() if pairs is not None}


def _labeled_splits(folder: Path) -> dict[str, _Pairs]:
    return {
        split: _Pairs(
            "labels", list(map(TextPair, split_texts.left, split_texts.right, split_texts.labels))
        )
        for split, split_texts in read_classification(folder).splits.items()
        if split_texts.right is not None
    }


def _hold_out_pairs(data: _Pairs, share: float | None) -> tuple[_Pairs, _Pairs]:
    """Hold out a part, the same in every call; pairs with the same anchor stay together."""
    anchored = data.kind == "anchors"
    groups: list[object] = [
        pair.left if anchored else number for number, pair in enumerate(data.rows)
    ]
    sizes = Counter(groups)
    names = list(sizes)
    order = np.random.default_rng(0).permutation(len(names))
    # The first groups in random order that hold enough pairs.
    cumulative_sizes = np.cumsum([sizes[names[place]] for place in order])
    pairs = len(groups)
    size = min(round(_DEV_SHARE * pairs), _MAX_DEV) if share is None else round(share * pairs)
    size = max(1, size)
    if size >= pairs:
        raise ConfigError(
            f"dev-share: holding out {size} of {pairs} pairs leaves none on one side; add data, or "
            "name a file with --dev"
        )
    last = int(np.searchsorted(cumulative_sizes, size))
    held_out_groups = {names[place] for place in order[: last + 1]}
    if len(held_out_groups) == len(names):
        raise BadInputError(
            f"expected pairs of several anchors, so that some can be held out, found {len(names)}; "
            "add data, or name a file with --dev"
        )
    parts: tuple[list[TextPair], list[TextPair]] = ([], [])
    for pair, group in zip(data.rows, groups, strict=True):
        parts[group in held_out_groups].append(pair)
    return _Pairs(data.kind, parts[0]), _Pairs(data.kind, parts[1])


def _examples(data: _Pairs, settings: EncoderFitSettings) -> Examples:
    left, right, values = data.columns()
    if data.kind == "scores":
        return ScoredExamples.of(left, right, np.array(values))
    if data.kind == "labels":
        return LabeledExamples.of(left, right, values)
    pairs = paired_texts(left, right, values)
    return _with_hard_negatives(pairs) if settings.training.sampling.negatives == "hard" else pairs


def _with_hard_negatives(data: TrainingSet) -> TrainingSet:
    """Return the same examples with the passages that BM25 ranks highest as negatives."""
    bm25 = PoolBM25({str(row): text for row, text in enumerate(data.passages)}, Analyzer())
    pools = data.pools
    positives = []
    negatives = []
    for row, question in enumerate(data.questions):
        answers = pools.positives[pools.positive_starts[row] : pools.positive_starts[row + 1]]
        positives.append(answers.tolist())
        negatives.append(
            [int(passage_id) for passage_id in bm25.hardest(question, HARD, set(map(str, answers)))]
        )
    return replace(data, pools=JudgedPools.of(positives, negatives, len(data.passages)))


def _measure(dev: _Pairs | None, train: Examples, settings: EncoderFitSettings) -> DevMeasure:
    """Return the measure on held-out pairs, or on the data that `settings.dev` names."""
    path = settings.dev
    if path is not None:
        dev_settings = replace(settings.data, form=None, variant=None, dev_share=None)
        if _has_questions(path, dev_settings, None):
            questions = split_reader(path, dev_settings)(dev_settings.dev_split)
            if not questions.corpus:
                return _pool_ranking(DevScore(questions))
            dev = _relevant(questions)
        else:
            train_part, dev_part = _read([path], None)
            dev = train_part if path.is_file() else dev_part
    if dev is None:
        raise SourceError(f"{path}: expected a dev split, found none; name a file with --dev")
    left, right, values = dev.columns()
    if dev.kind == "scores":
        return _similarity(ScoredPairs(np.array(values), left, right))
    if dev.kind == "anchors":
        return _held_out_ranking(paired_texts(left, right, values))
    if not isinstance(train, LabeledExamples):
        raise ConfigError(
            "dev: labeled pairs choose the epoch only for the objective nli; name scored pairs, "
            "or anchors with their passages"
        )
    unknown = sorted(set(values) - set(train.names))
    if unknown:
        raise BadInputError(
            f"dev: expected the labels {', '.join(train.names)} of the training data, found "
            f"{unknown[0]!r}; correct the labels"
        )
    labels = np.array([train.names.index(label) for label in values], np.int64)
    data = LabeledExamples(left, right, labels, train.names)
    # Accuracy of the softmax classifier of the training.
    return DevMeasure(
        "accuracy",
        len(data),
        data.digest(),
        lambda encoder: float((encoder.classify(left, right) == labels).mean()),
    )


def _pool_ranking(dev: DevScore) -> DevMeasure:
    """Return the mean average precision of the cosine on questions with pools."""
    questions, question_rows = distinct(dev.left)
    passages, passage_rows = distinct(dev.right)

    def score(encoder: TrainableEncoder) -> float:
        question_vectors = encoder.encode(questions, query=True)
        passage_vectors = encoder.encode(passages)
        return dev(
            EmbeddedPairs(question_vectors, passage_vectors, question_rows, passage_rows).cosines()
        )

    return DevMeasure(DEV_MEASURE, len(dev.questions), dev.digest(), score)


def _held_out_ranking(data: TrainingSet) -> DevMeasure:
    """Return the mean reciprocal rank of each anchor's first relevant passage.

    It is ranked among all held-out passages. Passages with an equal cosine, or with NaN, count as
    ranked before it.
    """

    def score(encoder: TrainableEncoder) -> float:
        v = encoder.encode(data.passages)
        u = encoder.encode(data.questions, query=True)
        rows = np.arange(len(data.questions))
        everything = np.arange(len(data.passages))
        total = 0.0
        for part in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            scores = np.round(u[part] @ v.T, RANKED_DECIMALS)
            relevant = data.pools.relevant(part, everything)
            best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
            ranks = 1 + (~(scores < best) & ~relevant).sum(axis=1)
            total += float((1 / ranks).sum())
        return total / len(rows)

    return DevMeasure("RR", len(data.questions), data.digest(), score)


def _similarity(pairs: ScoredPairs) -> DevMeasure:
    """Return Spearman's correlation of cosines with scores.

    Raises:
        BadInputError: all scores are equal.
    """
    correlation = pair_correlation(pairs.gold, None, "dev")
    texts, rows = distinct([*pairs.left, *pairs.right])
    left, right = np.split(rows, 2)

    def score(encoder: TrainableEncoder) -> float:
        vectors = encoder.encode(texts)
        return float(correlation(cosines(vectors[left], vectors[right])[None])[0])

    content = json.dumps([pairs.left, pairs.right, pairs.gold.tolist()])
    return DevMeasure("Spearman", len(pairs), hashlib.sha256(content.encode()).hexdigest(), score)
