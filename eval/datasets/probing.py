"""Probing sets that need no parser, made from any corpus of sentences as SentEval's own are.

Conneau et al., "What you can cram into a single $&!#* vector", ACL 2018. *SentLen* is the number
of tokens, *WC* which of 1,000 words a sentence contains, *BShift* whether two adjacent words are
swapped. The drawn sentences depend on the seed and the corpus, not on its order. Sentences that
differ only in case count as one, and none is in two splits.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from eval.datasets.classification import PROBING_FILES
from eval.settings import ProbingSettings
from retriever.errors import SourceError, StorageError
from retriever.files import check_output, write_lines

SHORTEST = 5
LONGEST = 28
"""Minimum and maximum number of tokens of a sentence, as in SentEval's probing sets."""

# Clitics, which tokenized text separates from their words.
_CLITICS = frozenset({"'s", "'re", "'ve", "'ll", "'d", "'m", "’s", "’re", "’ve", "’ll", "’d", "’m"})
_RUN = re.compile(r"(.)\1*", re.DOTALL)
TRAIN_SIZE = 100_000
TEST_SIZE = 10_000
"""Number of training instances, and of instances in each other split (Conneau et al. 2018)."""
LEAST_TEST_SIZE = 100
"""Minimum number of instances in dev and test; fewer would measure nothing."""
LENGTHS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
"""SentLen: label to the minimum and maximum number of tokens, as in SentEval's file."""
FIRST_RANK = 2_001
"""WC: rank by frequency, from 1, of the first word."""
_LEAST_LETTERS = 4
_QUOTES = frozenset('"“”„«»')
_QUOTED = frozenset({"``", "''"})
# Share of sentences that are drawn, to replace swaps that are dropped.
_SPARE = 1.05


def split_tokens(text: str) -> tuple[str, ...]:
    """Split a text into words, runs of the same mark ("..."), and separate clitics ("'s")."""
    tokens: list[str] = []
    for chunk in text.split():
        if chunk.isalnum() or chunk.lower() in _CLITICS:
            tokens.append(chunk)
            continue
        word_positions = [
            position for position, character in enumerate(chunk) if _in_word(character)
        ]
        start, stop = (
            (word_positions[0], word_positions[-1] + 1)
            if word_positions
            else (len(chunk), len(chunk))
        )
        tokens += _runs(chunk[:start])
        tokens += [chunk[start:stop]] if word_positions else []
        tokens += _runs(chunk[stop:])
    return tuple(tokens)


def _runs(characters: str) -> list[str]:
    return [match.group() for match in _RUN.finditer(characters)]


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


class Sentence(NamedTuple):
    """A sentence with random numbers: the rank by which it is drawn, its order, and a choice."""

    tokens: tuple[str, ...]
    rank: int
    order: int
    choice: int


def make_sentence(text: str, seed: int) -> Sentence | None:
    """Return a text as a sentence; None if it has too few or too many tokens."""
    tokens = split_tokens(text)
    if not SHORTEST <= len(tokens) <= LONGEST:
        return None
    key = f"{seed} {fold_tokens(tokens)}".encode("utf-8", "surrogatepass")
    digest = blake2b(key, digest_size=24).digest()
    rank, order, choice = (int.from_bytes(digest[at : at + 8]) for at in (0, 8, 16))
    return Sentence(tokens, rank, order, choice)


def fold_tokens(tokens: tuple[str, ...]) -> str:
    """Return the tokens as one case-folded text, equal for sentences that count as the same."""
    return " ".join(tokens).casefold()


class Sample:
    """The distinct sentences of a stream with the lowest ranks, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_rank: dict[int, Sentence] = {}

    def offer(self, sentence: Sentence) -> None:
        """Keep the sentence if its rank is among the lowest so far."""
        self._by_rank.setdefault(sentence.rank, sentence)
        if len(self._by_rank) > 2 * self._size:
            self._by_rank = {sentence.rank: sentence for sentence in self.sentences()}

    def sentences(self) -> list[Sentence]:
        """Return the sentences by ascending rank."""
        return [sentence for _, sentence in sorted(self._by_rank.items())[: self._size]]


class Instance(NamedTuple):
    """A line of a probing set: its sort key within the split, its label, and its tokens as text."""

    order: int
    label: str
    text: str


class ProbingSet(NamedTuple):
    """A probing set: its splits "tr", "va" and "te", its number of labels, and further facts."""

    task: str
    splits: Mapping[str, list[Instance]]
    labels: int
    facts: Mapping[str, Any]


def published_size(labels: int) -> int:
    """Return the number of instances of each label in all published splits together."""
    return math.ceil(TRAIN_SIZE / labels) + 2 * math.ceil(TEST_SIZE / labels)


def balanced_set(
    task: str, classes: Mapping[str, Sequence[Instance]], remedy: str, **facts: object
) -> ProbingSet:
    """Return the largest splits that the rarest label allows, 10 : 1 : 1, up to published sizes."""
    labels = len(classes)
    rarest = min(classes, key=lambda label: len(classes[label]))
    available = len(classes[rarest])
    train_size = math.ceil(TRAIN_SIZE / labels)
    test_size = math.ceil(TEST_SIZE / labels)
    ratio = TRAIN_SIZE // TEST_SIZE
    if available < published_size(labels):
        test_size = available // (ratio + 2)
        train_size = ratio * test_size
    minimum = math.ceil(LEAST_TEST_SIZE / labels)
    if test_size < minimum:
        raise SourceError(
            f"{task}: expected at least {minimum * (ratio + 2):,} distinct sentences of each of "
            f"{labels:,} labels, found {available:,} of {rarest}; {remedy}"
        )
    bounds = {
        "tr": (2 * test_size, 2 * test_size + train_size),
        "va": (test_size, 2 * test_size),
        "te": (0, test_size),
    }
    splits = {
        split: sorted(
            (instance for instances in classes.values() for instance in instances[start:stop]),
            key=lambda instance: (instance.order, instance.text),
        )
        for split, (start, stop) in bounds.items()
    }
    return ProbingSet(task, splits, labels, facts)


Read = Callable[[], Iterator[Sentence]]
"""Reads the sentences of a corpus."""


def _make_sentlen(read: Read, settings: ProbingSettings) -> ProbingSet:
    samples = {label: Sample(published_size(len(LENGTHS))) for label in LENGTHS}
    bins = {
        length: label
        for label, (least, most) in LENGTHS.items()
        for length in range(least, most + 1)
    }
    for sentence in read():
        samples[bins[len(sentence.tokens)]].offer(sentence)
    (first, second) = LENGTHS["0"]
    (last, longest) = LENGTHS["5"]
    remedy = f"(label 0 is of {first} to {second} tokens, 5 of {last} to {longest})"
    return balanced_set("sentlen", _classes(samples), f"name a larger corpus {remedy}")


def _make_wc(read: Read, settings: ProbingSettings) -> ProbingSet:
    """Make sentences with exactly one of the words.

    The words are lower-case and have 4 letters or more; their ranks begin at 2,001.
    """
    counts = Counter(token for sentence in read() for token in sentence.tokens)
    by_frequency = sorted(counts, key=lambda token: (-counts[token], token))
    ranks = {
        token: rank
        for rank, token in enumerate(by_frequency[FIRST_RANK - 1 :], FIRST_RANK)
        if token.isalpha() and token == token.lower() and len(token) >= _LEAST_LETTERS
    }
    words = list(ranks)[: settings.words]
    if len(words) < settings.words:
        fewer = ", or fewer words with --words" if len(words) > 1 else ""
        raise SourceError(
            f"wc: expected {settings.words:,} words of {_LEAST_LETTERS} letters or more from rank "
            f"{FIRST_RANK:,} of the corpus's tokens, found {len(words):,} among "
            f"{len(by_frequency):,} tokens; name a larger corpus{fewer}"
        )
    samples = {word: Sample(published_size(settings.words)) for word in words}
    for sentence in read():
        sentence_words = [word for token in sentence.tokens if (word := token.lower()) in samples]
        if len(sentence_words) == 1:
            samples[sentence_words[0]].offer(sentence)
    # With fewer words than this, each word needs more sentences.
    fewer = ", or fewer words with --words" if settings.words > LEAST_TEST_SIZE else ""
    return balanced_set(
        "wc",
        _classes(samples),
        f"name a larger corpus{fewer}",
        words=settings.words,
        ranks=[FIRST_RANK, ranks[words[-1]]],
    )


def _make_bshift(read: Read, settings: ProbingSettings) -> ProbingSet:
    """Swap two adjacent tokens in half of the sentences (label I).

    A swap that makes another sentence of the corpus is dropped.
    """
    size = published_size(2)
    original = Sample(size)
    shifted = Sample(int(size * _SPARE))
    for sentence in read():
        if _swappable_positions(sentence.tokens):
            (shifted if sentence.choice % 2 else original).offer(sentence)
    instances: dict[str, Instance] = {}
    sources = shifted.sentences()
    for sentence in sources:
        tokens = list(sentence.tokens)
        positions = _swappable_positions(sentence.tokens)
        position = positions[(sentence.choice >> 1) % len(positions)]
        tokens[position], tokens[position + 1] = tokens[position + 1], tokens[position]
        instance = Instance(sentence.order, "I", " ".join(tokens))
        instances.setdefault(fold_tokens(tuple(tokens)), instance)
    for sentence in read():
        instances.pop(fold_tokens(sentence.tokens), None)
    classes = {"I": list(instances.values()), **_classes({"O": original})}
    dropped = len(sources) - len(instances)
    return balanced_set("bshift", classes, "name a larger corpus", dropped=dropped)


def _swappable_positions(tokens: tuple[str, ...]) -> list[int]:
    """Return positions of tokens that can be swapped with the next: words, and not the first."""
    if any(token in _QUOTED or not _QUOTES.isdisjoint(token) for token in tokens):
        return []
    words = [any(character.isalnum() for character in token) for token in tokens]
    return [
        position
        for position in range(1, len(tokens) - 1)
        if words[position]
        and words[position + 1]
        and tokens[position].casefold() != tokens[position + 1].casefold()
    ]


def _classes(samples: Mapping[str, Sample]) -> dict[str, list[Instance]]:
    """Return label to the sentences of its sample, by ascending rank."""
    return {
        label: [
            Instance(sentence.order, label, " ".join(sentence.tokens))
            for sentence in sample.sentences()
        ]
        for label, sample in samples.items()
    }


MAKERS: Mapping[str, Callable[[Read, ProbingSettings], ProbingSet]] = {
    "sentlen": _make_sentlen,
    "wc": _make_wc,
    "bshift": _make_bshift,
}
"""Task to the function that makes its set."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbingFiles:
    """Probing sets that were written, from `texts` with `sentences` of 5 to 28 tokens."""

    settings: ProbingSettings
    texts: int
    sentences: int
    sets: tuple[ProbingSet, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        sets = [
            {
                "task": probing_set.task,
                "file": str(file),
                "labels": probing_set.labels,
                **sizes,
                **probing_set.facts,
            }
            for probing_set, file, sizes in self._files_with_sizes()
        ]
        return {
            "seed": self.settings.seed,
            "texts": self.texts,
            "sentences": self.sentences,
            "sets": sets,
        }

    def text(self) -> str:
        """Return a line for the corpus and one for each set."""
        lines = [
            f"{self.sentences:,} of {self.texts:,} texts have 5 to 28 tokens "
            f"(seed {self.settings.seed})"
        ]
        for probing_set, file, sizes in self._files_with_sizes():
            note = ""
            facts = probing_set.facts
            if "ranks" in facts:
                note = "; {words:,} words with ranks from {ranks[0]:,} to {ranks[1]:,}"
            elif facts.get("dropped"):
                note = "; {dropped:,} swaps that make another sentence were dropped"
            labels = f"{probing_set.task}, {probing_set.labels:,} labels"
            lines.append(
                f"{file}: {labels}; {sizes['tr']:,} training sentences, {sizes['va']:,} dev, "
                f"{sizes['te']:,} test{note.format(**facts)}"
            )
        return "\n".join(lines)

    def _files_with_sizes(self) -> Iterator[tuple[ProbingSet, Path, dict[str, int]]]:
        for probing_set, file in zip(self.sets, self.files, strict=True):
            yield (
                probing_set,
                file,
                {split: len(instances) for split, instances in probing_set.splits.items()},
            )


def make_probing(
    texts: Callable[[], Iterable[str]], folder: Path, settings: ProbingSettings | None = None
) -> ProbingFiles:
    """Make probing sets from a corpus of sentences, and write them in the form of SentEval's files.

    `texts` returns all texts, each a sentence; it is called `settings.passes` times. The folder is
    created if there is none; existing files are not replaced.

    Raises:
        ConfigError: the folder is a file, its parent does not exist, or it has one of the files.
        SourceError: the corpus is too small for one of the sets.
        StorageError: the folder cannot be written.
    """
    settings = settings or ProbingSettings()
    files = [folder / PROBING_FILES[task] for task in settings.tasks]
    check_output(
        folder,
        "a folder without this file, which may be SentEval's own",
        lambda names: next((file.name for file in files if file.name in names), None),
    )
    counts = Counter[str]()

    def sentences() -> Iterator[Sentence]:
        counts.clear()
        for text in texts():
            counts["texts"] += 1
            sentence = make_sentence(text, settings.seed)
            if sentence is not None:
                counts["sentences"] += 1
                yield sentence
        if not counts["sentences"]:
            raise SourceError(
                f"expected texts of {SHORTEST} to {LONGEST} tokens, each a sentence, found none "
                f"among {counts['texts']:,}; name a corpus with one sentence per line"
            )

    sets = tuple(MAKERS[task](sentences, settings) for task in settings.tasks)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        message = f"{folder}: cannot make it ({error.strerror}); choose a writable folder"
        raise StorageError(message) from error
    for file, probing_set in zip(files, sets, strict=True):
        lines = (
            f"{split}\t{instance.label}\t{instance.text}\n"
            for split, instances in probing_set.splits.items()
            for instance in instances
        )
        write_lines(file, lines, "a probing set")
    return ProbingFiles(settings, counts["texts"], counts["sentences"], sets, tuple(files))
