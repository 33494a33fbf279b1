"""Probing sets that need no parser, made from any corpus of sentences as SentEval's own are.

Conneau et al., "What you can cram into a single $&!#* vector", ACL 2018. *SentLen* is the number
of tokens, *WC* which of 1,000 words a sentence contains, *BShift* whether two adjacent words are
swapped. What is drawn depends on the seed and the sentences, not on their order. Sentences that
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

# Separate from their words in tokenized text.
_CLITICS = frozenset({"'s", "'re", "'ve", "'ll", "'d", "'m", "’s", "’re", "’ve", "’ll", "’d", "’m"})
_RUN = re.compile(r"(.)\1*", re.DOTALL)
TRAIN = 100_000
HELD = 10_000
"""Number of training instances, and of instances in each other split (Conneau et al. 2018)."""
LEAST_HELD = 100
"""Minimum number of instances in dev and test; fewer would measure nothing."""
LENGTHS = {"0": (5, 8), "1": (9, 12), "2": (13, 16), "3": (17, 20), "4": (21, 25), "5": (26, 28)}
"""SentLen: label to the minimum and maximum number of tokens, as in SentEval's file."""
FIRST_RANK = 2_001
"""WC: rank by frequency, from 1, of the first word."""
_LEAST_LETTERS = 4
_QUOTES = frozenset('"“”„«»')
_QUOTED = frozenset({"``", "''"})
# Spares for swaps that make a sentence of the corpus.
_SPARE = 1.05


def tokens_of(text: str) -> tuple[str, ...]:
    """Words, runs of the same mark around them ("..."), and clitics that stand alone ("'s")."""
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
    """A sentence and random numbers by which it is drawn (lowest ranks), ordered and used."""

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
        self._kept: dict[int, Sentence] = {}

    def offer(self, sentence: Sentence) -> None:
        """Keep the sentence if its rank is among the lowest so far."""
        self._kept.setdefault(sentence.rank, sentence)
        if len(self._kept) > 2 * self._size:
            self._kept = {one.rank: one for one in self.sentences()}

    def sentences(self) -> list[Sentence]:
        """By ascending rank."""
        return [sentence for _, sentence in sorted(self._kept.items())[: self._size]]


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
    """Number of instances of each label in the published splits together."""
    return math.ceil(TRAIN / labels) + 2 * math.ceil(HELD / labels)


def balanced_set(
    task: str, classes: Mapping[str, Sequence[Instance]], remedy: str, **facts: object
) -> ProbingSet:
    """The largest splits that the rarest label allows, 10 : 1 : 1, up to the published ones."""
    labels = len(classes)
    rarest = min(classes, key=lambda label: len(classes[label]))
    found = len(classes[rarest])
    train = math.ceil(TRAIN / labels)
    held = math.ceil(HELD / labels)
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
    bounds = {"tr": (2 * held, 2 * held + train), "va": (held, 2 * held), "te": (0, held)}
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


def _by_length(read: Read, settings: ProbingSettings) -> ProbingSet:
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


def _by_word(read: Read, settings: ProbingSettings) -> ProbingSet:
    """Exactly one of the words, which are lower-case ones of 4 letters or more from rank 2,001."""
    counts = Counter(token for sentence in read() for token in sentence.tokens)
    by_frequency = sorted(counts, key=lambda token: (-counts[token], token))
    ranks = {
        token: rank
        for rank, token in enumerate(by_frequency[FIRST_RANK - 1 :], FIRST_RANK)
        if token.isalpha() and token == token.lower() and len(token) >= _LEAST_LETTERS
    }
    chosen = list(ranks)[: settings.words]
    if len(chosen) < settings.words:
        fewer = ", or fewer words with --words" if len(chosen) > 1 else ""
        raise SourceError(
            f"wc: expected {settings.words:,} words of {_LEAST_LETTERS} letters or more from rank "
            f"{FIRST_RANK:,} of the corpus's tokens, found {len(chosen):,} among "
            f"{len(by_frequency):,} tokens; name a larger corpus{fewer}"
        )
    samples = {word: Sample(published_size(settings.words)) for word in chosen}
    for sentence in read():
        found = [word for token in sentence.tokens if (word := token.lower()) in samples]
        if len(found) == 1:
            samples[found[0]].offer(sentence)
    # With fewer words than this, each word needs more sentences.
    fewer = ", or fewer words with --words" if settings.words > LEAST_HELD else ""
    return balanced_set(
        "wc",
        _classes(samples),
        f"name a larger corpus{fewer}",
        words=settings.words,
        ranks=[FIRST_RANK, ranks[chosen[-1]]],
    )


def _by_shift(read: Read, settings: ProbingSettings) -> ProbingSet:
    """In half (label I) two adjacent tokens are swapped, unless that makes a sentence again."""
    size = published_size(2)
    kept = Sample(size)
    shifted = Sample(int(size * _SPARE))
    for sentence in read():
        if _places(sentence.tokens):
            (shifted if sentence.choice % 2 else kept).offer(sentence)
    made: dict[str, Instance] = {}
    sources = shifted.sentences()
    for sentence in sources:
        tokens = list(sentence.tokens)
        places = _places(sentence.tokens)
        place = places[(sentence.choice >> 1) % len(places)]
        tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
        instance = Instance(sentence.order, "I", " ".join(tokens))
        made.setdefault(folded(tuple(tokens)), instance)
    for sentence in read():
        made.pop(folded(sentence.tokens), None)
    classes = {"I": list(made.values()), **_classes({"O": kept})}
    dropped = len(sources) - len(made)
    return balanced_set("bshift", classes, "name a larger corpus", dropped=dropped)


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


def _classes(samples: Mapping[str, Sample]) -> dict[str, list[Instance]]:
    """Label to the sentences of its sample, by ascending rank."""
    return {
        label: [Instance(one.order, label, " ".join(one.tokens)) for one in sample.sentences()]
        for label, sample in samples.items()
    }


MAKERS: Mapping[str, Callable[[Read, ProbingSettings], ProbingSet]] = {
    "sentlen": _by_length,
    "wc": _by_word,
    "bshift": _by_shift,
}
"""Task to what makes its set."""


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
            noted = ""
            facts = made.facts
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

    `texts` returns all texts, each a sentence; it is called once for each of `settings.passes`. The
    folder is created if there is none; existing files are not replaced.

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
        lambda there: next((file.name for file in files if file.name in there), None),
    )
    counts = Counter[str]()

    def sentences() -> Iterator[Sentence]:
        counts.clear()
        for text in texts():
            counts["texts"] += 1
            sentence = sentence_of(text, settings.seed)
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
    for file, made in zip(files, sets, strict=True):
        instances = ((split, one) for split, some in made.splits.items() for one in some)
        lines = (f"{split}\t{one.label}\t{one.text}\n" for split, one in instances)
        write_lines(file, lines, "a probing set")
    return ProbingFiles(settings, counts["texts"], counts["sentences"], sets, tuple(files))
