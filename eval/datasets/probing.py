"""Probing sets that need no parser, made from any corpus of sentences as SentEval's own are.

Conneau et al., "What you can cram into a single $&!#* vector", ACL 2018. *SentLen* is the number
of tokens, *WC* which of 1,000 words a sentence contains, *BShift* whether two adjacent words are
swapped. What is drawn depends on the seed and the sentences, not on their order. Sentences that
differ only in case count as one, and none is in two splits.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from eval.datasets.classification import PROBING_FILES
from retriever.errors import ConfigError, SourceError, StorageError
from retriever.files import whole_files

SHORTEST, LONGEST = 5, 28
"""Minimum and maximum number of tokens of a sentence, as in SentEval's probing sets."""

# Separate from their words in tokenized text.
_CLITICS = frozenset({"'s", "'re", "'ve", "'ll", "'d", "'m", "’s", "’re", "’ve", "’ll", "’d", "’m"})
_RUN = re.compile(r"(.)\1*", re.DOTALL)
TRAIN, HELD = 100_000, 10_000
"""Number of training instances, and of instances in each other split (Conneau et al. 2018)."""
LEAST_HELD = 100
"""Minimum number of instances in dev and test; fewer would measure nothing."""
LENGTHS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
"""SentLen: label to the minimum and maximum number of tokens, as in SentEval's file."""
WORDS = 1_000
"""WC: default number of words."""
FIRST_RANK = 2_001
"""WC: rank by frequency, from 1, of the first word."""
_LEAST_LETTERS = 4
_QUOTES = frozenset('"“”„«»')
_QUOTED = frozenset({"``", "''"})
# Spares for swaps that make a sentence of the corpus.
_SPARE = 1.05


def tokens_of(text: str) -> tuple[str, ...]:
    """The tokens of a text: separated by spaces, and punctuation around a word on its own.

    A run of the same mark ("...") is one token, and so is a separate clitic ("'s").
    """
    tokens: list[str] = []
    for chunk in text.split():
        if chunk.isalnum() or chunk.lower() in _CLITICS:
            tokens.append(chunk)
            continue
        inside = [place for place, sign in enumerate(chunk) if _in_word(sign)]
        first, last = (inside[0], inside[-1] + 1) if inside else (len(chunk), len(chunk))
        tokens += _runs(chunk[:first])
        tokens += [chunk[first:last]] if inside else []
        tokens += _runs(chunk[last:])
    return tuple(tokens)


def _runs(signs: str) -> list[str]:
    return [match.group() for match in _RUN.finditer(signs)]


def _in_word(sign: str) -> bool:
    return sign.isalnum() or unicodedata.category(sign)[0] == "M"


class Sentence(NamedTuple):
    """A sentence and its random numbers, a hash of the seed and the tokens.

    Those with the lowest ranks are drawn, and sorted by `order`; tasks choose by `choice`.
    """

    tokens: tuple[str, ...]
    rank: int
    order: int
    choice: int


def sentence_of(text: str, seed: int) -> Sentence | None:
    """A text as a sentence; None if it has too few or too many tokens."""
    tokens = tokens_of(text)
    if not SHORTEST <= len(tokens) <= LONGEST:
        return None
    key = f"{seed} {folded(tokens)}".encode("utf-8", "surrogatepass")
    digest = blake2b(key, digest_size=24).digest()
    rank, order, choice = (int.from_bytes(digest[at : at + 8]) for at in (0, 8, 16))
    return Sentence(tokens, rank, order, choice)


def folded(tokens: tuple[str, ...]) -> str:
    """The tokens as one case-folded text: equal for sentences that count as the same."""
    return " ".join(tokens).casefold()


class Sample:
    """The distinct sentences of a stream with the lowest ranks, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, Sentence]] = []
        self._ranks: set[int] = set()

    def offer(self, sentence: Sentence) -> None:
        """Keep the sentence if its rank is among the lowest so far."""
        if sentence.rank in self._ranks:
            return
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, (-sentence.rank, sentence))
        elif sentence.rank < -self._heap[0][0]:
            dropped, _ = heapq.heapreplace(self._heap, (-sentence.rank, sentence))
            self._ranks.remove(-dropped)
        else:
            return
        self._ranks.add(sentence.rank)

    def __len__(self) -> int:
        return len(self._heap)

    def sentences(self) -> list[Sentence]:
        """By ascending rank."""
        return [sentence for _, sentence in sorted(self._heap, key=lambda pair: -pair[0])]


class Instance(NamedTuple):
    """A line of a probing set: its sort key within the split, its label, and its tokens as text."""

    order: int
    label: str
    text: str


def published_size(labels: int) -> int:
    """Number of instances of each label in the published splits together."""
    return math.ceil(TRAIN / labels) + 2 * math.ceil(HELD / labels)


def balanced_splits(
    task: str, classes: Mapping[str, Sequence[Instance]], remedy: str
) -> dict[str, list[Instance]]:
    """Splits "tr", "va" and "te" of the first instances of each label, as many of each.

    They are the largest that the rarest label allows, 10 : 1 : 1, up to the published ones.
    """
    labels = len(classes)
    rarest = min(classes, key=lambda label: len(classes[label]))
    found = len(classes[rarest])
    train, held = math.ceil(TRAIN / labels), math.ceil(HELD / labels)
    ratio = TRAIN // HELD
    if found < published_size(labels):
        held = found // (ratio + 2)
        train = ratio * held
    least = math.ceil(LEAST_HELD / labels)
    if held < least:
        raise SourceError(
            f"{task}: expected at least {least * (ratio + 2):,} distinct sentences of each of "
            f"{labels:,} labels, found {found:,} of {rarest}; {remedy}"
        )
    bounds = {"te": (0, held), "va": (held, 2 * held), "tr": (2 * held, 2 * held + train)}
    return {
        split: sorted(
            (
                instance
                for instances in classes.values()
                for instance in instances[slice(*bounds[split])]
            ),
            key=lambda instance: (instance.order, instance.text),
        )
        for split in ("tr", "va", "te")
    }


class ProbingSet(NamedTuple):
    """A probing set: its splits "tr", "va" and "te", its number of labels, and further facts."""

    task: str
    splits: Mapping[str, list[Instance]]
    labels: int
    facts: Mapping[str, object]


class _LengthMaker:
    task, passes = "sentlen", 1

    def __init__(self) -> None:
        size = published_size(len(LENGTHS))
        self._samples = {label: Sample(size) for label in LENGTHS}
        self._bins = {
            length: label
            for label, (least, most) in LENGTHS.items()
            for length in range(least, most + 1)
        }

    def see(self, sentence: Sentence, number: int) -> None:
        if number == 1:
            self._samples[self._bins[len(sentence.tokens)]].offer(sentence)

    def made(self) -> ProbingSet:
        classes = {label: instances(sample, label) for label, sample in self._samples.items()}
        splits = balanced_splits(
            self.task,
            classes,
            f"name a larger corpus (label 0 is of {LENGTHS['0'][0]} to {LENGTHS['0'][1]} tokens, 5 "
            f"of {LENGTHS['5'][0]} to {LENGTHS['5'][1]})",
        )
        return ProbingSet(self.task, splits, len(classes), {})


class WordMaker:
    """Makes WC: a sentence contains exactly one of the words, once, in any case.

    The words are the first lower-case ones of at least four letters from rank 2,001 by frequency.
    """

    task, passes = "wc", 2

    def __init__(self, words: int = WORDS) -> None:
        if words < 2:
            raise ConfigError(f"words: expected 2 or more, found {words}")
        self._words = words
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, Sample] = {}
        self._last_rank = 0

    def see(self, sentence: Sentence, number: int) -> None:
        """Count its tokens in the first pass, then offer it to the sample of its word."""
        if number == 1:
            self._counts.update(sentence.tokens)
            return
        if not self._samples:
            self._choose()
        found = [word for token in sentence.tokens if (word := token.lower()) in self._samples]
        if len(found) == 1:
            self._samples[found[0]].offer(sentence)

    def _choose(self) -> None:
        by_frequency = sorted(self._counts, key=lambda token: (-self._counts[token], token))
        size = published_size(self._words)
        for rank, token in enumerate(by_frequency[FIRST_RANK - 1 :], FIRST_RANK):
            if token.isalpha() and token == token.lower() and len(token) >= _LEAST_LETTERS:
                self._samples[token] = Sample(size)
                self._last_rank = rank
                if len(self._samples) == self._words:
                    return
        fewer = ", or fewer words with --words" if len(self._samples) > 1 else ""
        raise SourceError(
            f"{self.task}: expected {self._words:,} words of {_LEAST_LETTERS} letters or more from "
            f"rank {FIRST_RANK:,} of the corpus's tokens, found {len(self._samples):,} among "
            f"{len(by_frequency):,} tokens; name a larger corpus{fewer}"
        )

    def made(self) -> ProbingSet:
        """The set."""
        classes = {word: instances(sample, word) for word, sample in self._samples.items()}
        # With fewer words than this, each word needs more sentences.
        fewer = ", or fewer words with --words" if self._words > LEAST_HELD else ""
        splits = balanced_splits(self.task, classes, f"name a larger corpus{fewer}")
        facts = {"words": self._words, "ranks": [FIRST_RANK, self._last_rank]}
        return ProbingSet(self.task, splits, len(classes), facts)


class _ShiftMaker:
    """Makes BShift: in half of the sentences (label I) two adjacent tokens are swapped.

    A swap that makes a sentence of the corpus, or one that has been made before, is dropped.
    """

    task, passes = "bshift", 2

    def __init__(self) -> None:
        size = published_size(2)
        self._kept = Sample(size)
        self._shifted = Sample(int(size * _SPARE))
        self._made: dict[str, Instance] = {}
        self._swapped = 0

    def see(self, sentence: Sentence, number: int) -> None:
        if number == 1:
            if _places(sentence.tokens):
                half = self._shifted if sentence.choice % 2 else self._kept
                half.offer(sentence)
            return
        if not self._swapped:
            self._swap()
        self._made.pop(folded(sentence.tokens), None)

    def _swap(self) -> None:
        for sentence in self._shifted.sentences():
            tokens = list(sentence.tokens)
            places = _places(sentence.tokens)
            place = places[(sentence.choice >> 1) % len(places)]
            tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
            self._made.setdefault(
                folded(tuple(tokens)), Instance(sentence.order, "I", " ".join(tokens))
            )
        self._swapped = len(self._shifted)

    def made(self) -> ProbingSet:
        classes = {"I": list(self._made.values()), "O": instances(self._kept, "O")}
        splits = balanced_splits(self.task, classes, "name a larger corpus")
        dropped = self._swapped - len(self._made)
        return ProbingSet(self.task, splits, len(classes), {"dropped": dropped})


def _places(tokens: tuple[str, ...]) -> list[int]:
    """Places where a token and the next can be swapped: two other words, none before the first."""
    if any(token in _QUOTED or not _QUOTES.isdisjoint(token) for token in tokens):
        return []
    words = [any(sign.isalnum() for sign in token) for token in tokens]
    return [
        place
        for place in range(1, len(tokens) - 1)
        if words[place]
        and words[place + 1]
        and tokens[place].casefold() != tokens[place + 1].casefold()
    ]


def instances(sample: Sample, label: str) -> list[Instance]:
    """The sentences of a sample as they are, by ascending rank."""
    return [Instance(one.order, label, " ".join(one.tokens)) for one in sample.sentences()]


Maker = _LengthMaker | WordMaker | _ShiftMaker
"""Makes one set from a corpus, all sentences of which it must see `passes` times, 1 or 2."""

MAKERS: Mapping[str, Callable[[], Maker]] = {
    "sentlen": _LengthMaker,
    "wc": WordMaker,
    "bshift": _ShiftMaker,
}
"""Task to what makes its set with the published settings."""


def make_sets(
    texts: Callable[[], Iterable[str]], makers: Iterable[Maker], *, seed: int = 0
) -> tuple[list[ProbingSet], int, int]:
    """The sets of new makers, the number of texts, and that of sentences."""
    makers = list(makers)
    read = used = 0
    for number in range(1, max(maker.passes for maker in makers) + 1):
        active = [maker for maker in makers if number <= maker.passes]
        read = used = 0
        for text in texts():
            read += 1
            sentence = sentence_of(text, seed)
            if sentence is None:
                continue
            used += 1
            for maker in active:
                maker.see(sentence, number)
        if not used:
            raise SourceError(
                f"expected texts of {SHORTEST} to {LONGEST} tokens, each a sentence, found none "
                f"among {read:,}; name a corpus with one sentence per line"
            )
    return [maker.made() for maker in makers], read, used


def check_folder(folder: Path, tasks: Iterable[str]) -> None:
    """Refuse a folder to which the files of these tasks cannot be written."""
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            f"{folder}: expected its parent folder to exist; make the parent or change --output"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, found a file; change --output")
    for file in (PROBING_FILES[task] for task in tasks):
        if (folder / file).exists():
            raise ConfigError(
                f"{folder}: expected a folder without {file}, found one, which may be SentEval's "
                "own; remove it or change --output"
            )


def write_sets(folder: Path, sets: Sequence[ProbingSet]) -> list[Path]:
    """Write each set to a file; the files get their names when all of them are written."""
    files = [folder / PROBING_FILES[made.task] for made in sets]
    try:
        folder.mkdir(exist_ok=True)
        with whole_files(*files) as new:
            for path, made in zip(new, sets, strict=True):
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.writelines(
                        f"{split}\t{one.label}\t{one.text}\n"
                        for split, instances in made.splits.items()
                        for one in instances
                    )
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot write the probing sets ({error.strerror}); choose a writable folder"
        ) from error
    return files


@dataclass(frozen=True, slots=True)
class ProbingSettings:
    """Which probing sets are made, and how.

    Attributes:
        tasks: some of "sentlen", "wc" and "bshift".
        words: number of words of wc.
        seed: of everything that is drawn.
    """

    tasks: tuple[str, ...] = tuple(MAKERS)
    words: int = WORDS
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.tasks) - set(MAKERS)
        if unknown or not self.tasks:
            found = ", ".join(sorted(unknown)) or "none"
            raise ConfigError(f"task: expected {', '.join(MAKERS)}, found {found}")

    def makers(self) -> list[Maker]:
        """One for each task, not used before."""
        return [WordMaker(self.words) if one == "wc" else MAKERS[one]() for one in self.tasks]

    @property
    def passes(self) -> int:
        """Number of times that the corpus is read."""
        return max(maker.passes for maker in self.makers())


@dataclass(frozen=True, slots=True, eq=False)
class ProbingFiles:
    """Probing sets that were made and written, of `texts` with `sentences` of 5 to 28 tokens."""

    settings: ProbingSettings
    texts: int
    sentences: int
    sets: tuple[ProbingSet, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        sets = [
            {"task": made.task, "file": str(file), "labels": made.labels, **sizes, **made.facts}
            for made, file, sizes in self._listed()
        ]
        return {
            "seed": self.settings.seed,
            "texts": self.texts,
            "sentences": self.sentences,
            "sets": sets,
        }

    def text(self) -> str:
        """A line for the corpus and one for each set."""
        lines = [
            f"{self.sentences:,} of {self.texts:,} texts have 5 to 28 tokens "
            f"(seed {self.settings.seed})"
        ]
        for made, file, sizes in self._listed():
            noted, facts = "", made.facts
            if "ranks" in facts:
                noted = "; {words:,} words with ranks from {ranks[0]:,} to {ranks[1]:,}"
            elif facts.get("dropped"):
                noted = "; {dropped:,} swaps that make another sentence were dropped"
            lines.append(
                f"{file}: {made.task}, {made.labels:,} labels; {sizes['tr']:,} training sentences, "
                f"{sizes['va']:,} dev, {sizes['te']:,} test{noted.format(**facts)}"
            )
        return "\n".join(lines)

    def _listed(self) -> Iterator[tuple[ProbingSet, Path, dict[str, int]]]:
        for made, file in zip(self.sets, self.files, strict=True):
            yield made, file, {split: len(some) for split, some in made.splits.items()}


def make_probing(
    texts: Callable[[], Iterable[str]], folder: Path, settings: ProbingSettings | None = None
) -> ProbingFiles:
    """Make probing sets from a corpus of sentences, and write them in the form of SentEval's files.

    Args:
        texts: returns all texts, each a sentence; called once for each of `settings.passes`.
        folder: where they are written; created if there is none. Existing files are not replaced.
        settings: None makes all sets with their defaults.

    Raises:
        ConfigError: the folder is a file, its parent does not exist, or it has one of the files.
        SourceError: the corpus is too small for one of the sets.
        StorageError: the folder cannot be written.
    """
    settings = settings or ProbingSettings()
    check_folder(folder, settings.tasks)
    sets, read, used = make_sets(texts, settings.makers(), seed=settings.seed)
    files = write_sets(folder, sets)
    return ProbingFiles(settings, read, used, tuple(sets), tuple(files))
