"""The encoders that a meta-embedding is made of, and what each says of the same words or texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.linear import Floats, Integers
from retriever.encoders.meta.words import Alignment, Span, align, word_spans
from retriever.encoders.protocol import AdoptedEncoder, PieceEncoder
from retriever.encoders.ready import ReadyModel
from retriever.encoders.remote.address import is_url
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.static.model import StaticModel
from retriever.encoders.transformer.backends.model import LightModel
from retriever.encoders.transformer.model import TransformerModel
from retriever.encoders.transformer.shared import SharedBackbone
from retriever.errors import ConfigError

# Bounds the memory of one batch's vectors of words, to about 50 MB for each source.
_BATCH_PIECES = 16384

Level = Literal["word", "sentence"]
LoadSource = Callable[[EncoderSettings], tuple[EncoderSpec, PieceEncoder]]


class Source(Protocol):
    """One encoder of a meta-embedding.

    Attributes:
        spec: of the encoder.
        has_words: whether it has a vector for each word.
    """

    spec: EncoderSpec
    has_words: bool

    def width(self, level: Level) -> int:
        """Components of a word's or of a text's vector."""

    def reader(self) -> object:
        """Sources with the same one read the same pieces of every text."""

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """The pieces of each text, however long, and the offsets of each piece.

        Special tokens and pieces of a prompt have offsets (0, 0).
        """

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """The sum of each word's pieces, for words of all texts one after the other.

        Args:
            pieces: what `read` gave of each text.
            aligned: their words.
            counts: (texts,) number of words of each text.

        Returns:
            (sum of counts, width) float32; zeros for a word without a known piece.
        """

    def texts(self, pieces: Sequence[Any], *, query: bool) -> Floats:
        """(texts, width) float32, the vector of each text."""


class TransformerSource:
    """A transformer; words are those of the layers that it reads, before its own pooling."""

    def __init__(self, spec: EncoderSpec, model: TransformerModel) -> None:
        self.spec = spec
        self._model = model
        self.has_words = model.fuses_pieces
        if isinstance(model.backbone, SharedBackbone):
            model.backbone.want(model.layers)

    def width(self, level: Level) -> int:
        """See `Source`."""
        return self._model.dimensions

    def reader(self) -> object:
        """See `Source`."""
        settings = self.spec.settings
        return id(self._model.backbone), settings.query_prompt, settings.passage_prompt

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """See `Source`."""
        prompt = _prompt(self.spec, query)
        ids, offsets = self._model.backbone.tokenize_with_offsets([prompt + text for text in texts])
        special = self._model.backbone.special
        # A special token that stands for a piece of text, such as [UNK], has its offsets.
        for row in offsets:
            row[: special.before] = [(0, 0)] * special.before
            row[len(row) - special.after :] = [(0, 0)] * special.after
        return ids, _after(prompt, offsets)

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """See `Source`."""
        import torch

        states = self._model.piece_vectors(pieces)
        longest, width = states.shape[1], states.shape[2]
        rows, owners = _flat(aligned, np.arange(len(pieces)) * longest, counts)
        device = states.device
        with torch.inference_mode():
            found = torch.zeros((int(counts.sum()), width), device=device).index_add_(
                0,
                torch.from_numpy(owners).to(device),
                states.reshape(-1, width)[torch.from_numpy(rows).to(device)],
            )
            sums: Floats = found.cpu().numpy()
        return sums

    def texts(self, pieces: Sequence[Any], *, query: bool) -> Floats:
        """See `Source`."""
        return _filled(self._model, pieces)


class LightSource:
    """A transformer that runs without torch where it can; see `TransformerSource`."""

    def __init__(self, spec: EncoderSpec, model: LightModel) -> None:
        self.spec = spec
        self._model = model
        self.has_words = model.fuses_pieces

    def width(self, level: Level) -> int:
        """See `Source`."""
        return self._model.dimensions

    def reader(self) -> object:
        """See `Source`."""
        settings = self.spec.settings
        return id(self._model), settings.query_prompt, settings.passage_prompt

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """See `Source`."""
        prompt = _prompt(self.spec, query)
        ids, offsets = self._model.tokenize_with_offsets([prompt + text for text in texts])
        return list(ids), _after(prompt, offsets)

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """See `Source`."""
        found = np.zeros((int(counts.sum()), self._model.dimensions), np.float32)
        firsts = np.cumsum(counts) - counts
        for texts, states in self._model.piece_batches(pieces):
            starts = np.arange(len(texts)) * states.shape[1]
            here = [aligned[text] for text in texts]
            rows = _joined([one.pieces + start for one, start in zip(here, starts, strict=True)])
            owners = _joined([one.words + firsts[t] for one, t in zip(here, texts, strict=True)])
            if not len(rows):
                continue
            order = np.argsort(owners, kind="stable")
            runs = np.flatnonzero(np.diff(owners[order], prepend=-1))
            flat = states.reshape(-1, states.shape[2])
            found[owners[order][runs]] = np.add.reduceat(flat[rows[order]], runs, axis=0)
        return found

    def texts(self, pieces: Sequence[Any], *, query: bool) -> Floats:
        """See `Source`."""
        return _filled(self._model, pieces)


class StaticSource:
    """Word vectors; at the level of words without the weights and components of its method."""

    has_words = True

    def __init__(self, spec: EncoderSpec, model: StaticModel) -> None:
        self.spec = spec
        self._model = model

    def width(self, level: Level) -> int:
        """See `Source`; `p-mean` is three times as wide for a text as for a word."""
        return self._model.dimensions if level == "sentence" else int(self._vectors.shape[1])

    @property
    def _vectors(self) -> Floats:
        return self._model.parts.lexicon.vectors

    def reader(self) -> object:
        """See `Source`."""
        return id(self._model)

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """See `Source`."""
        prompt = _prompt(self.spec, query)
        tokenizer = self._model.parts.lexicon.tokenizer
        ids, offsets = tokenizer.ids_with_spans([prompt + text for text in texts])
        return ids, _after(prompt, offsets)

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """See `Source`."""
        sizes = np.array([len(one) for one in pieces], np.int64)
        ids = np.fromiter((number for one in pieces for number in one), np.int64, int(sizes.sum()))
        rows, owners = _flat(aligned, np.cumsum(sizes) - sizes, counts)
        known = ids[rows] < len(self._vectors)
        found = np.zeros((int(counts.sum()), self._vectors.shape[1]), np.float32)
        np.add.at(found, owners[known], self._vectors[ids[rows[known]]])
        return found

    def texts(self, pieces: Sequence[Any], *, query: bool) -> Floats:
        """See `Source`."""
        return _filled(self._model, pieces)


class TextSource:
    """Vectors of texts alone: an object that a program passes, or a file of ready vectors."""

    has_words = False

    def __init__(self, spec: EncoderSpec, encoder: AdoptedEncoder | ReadyModel) -> None:
        self.spec = spec
        self._encoder = encoder

    def width(self, level: Level) -> int:
        """See `Source`."""
        return self.spec.dimensions

    def reader(self) -> object:
        """See `Source`."""
        return id(self._encoder)

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """See `Source`."""
        pieces = self._encoder.tokenize(texts, query=query)
        return list(pieces), [self._encoder.piece_offsets(text) for text in texts]

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """It has none."""
        raise ConfigError(f"{self.spec.model}: has no vectors of words; use --level sentence")

    def texts(self, pieces: Sequence[Any], *, query: bool) -> Floats:
        """See `Source`."""
        if isinstance(self._encoder, ReadyModel):
            return self._encoder.embed(pieces)
        return self._encoder.encode([piece.text for piece in pieces], query=query)


def make_source(spec: EncoderSpec, model: PieceEncoder) -> Source:
    """The source that a loaded model is.

    Raises:
        ConfigError: it is a meta-embedding itself, or behind a URL.
    """
    if isinstance(model, TransformerModel):
        return TransformerSource(spec, model)
    if isinstance(model, LightModel):
        return LightSource(spec, model)
    if isinstance(model, StaticModel):
        return StaticSource(spec, model)
    if isinstance(model, ReadyModel):
        return TextSource(spec, model)
    if is_url(spec.model):
        raise ConfigError(f"source: expected encoders on this machine, found {spec.model}")
    raise ConfigError(
        f"source: {spec.model} is a meta-embedding itself; name the sources that it is made of"
    )


@dataclass(frozen=True, slots=True)
class MetaPieces:
    """A text as its sources read it. Equal texts in the same role are equal.

    Attributes:
        text: the text.
        query: whether it is a query.
        readings: its pieces by each reader of `Sources`.
        spans: its words; empty at the level of sentences.
        aligned: for each reader, the words of its pieces; empty at the level of sentences.
    """

    text: str
    query: bool
    readings: tuple[Any, ...] = field(compare=False)
    spans: tuple[Span, ...] = field(compare=False)
    aligned: tuple[Alignment, ...] = field(compare=False)

    def __len__(self) -> int:
        """The greatest number of pieces that a source has."""
        return max(map(len, self.readings))


class Sources:
    """Several encoders that read the same texts, at one level.

    Args:
        sources: two or more.
        level: ``word``, or ``sentence``; None takes words where every source has them.

    Attributes:
        specs: of the sources.
        level: see above.
        widths: components of each source's vectors.
        window: the smallest window of the sources, in pieces.
        batch_pieces: the best number of pieces of one batch; None for that of a transformer.

    Raises:
        ConfigError: there are fewer than two, one occurs twice, or one lacks words.
    """

    def __init__(self, sources: Sequence[Source], level: Level | None = None) -> None:
        if len(sources) < 2:
            raise ConfigError(f"source: expected two or more, found {len(sources)}; name another")
        wordless = [str(one.spec) for one in sources if not one.has_words]
        if level == "word" and wordless:
            raise ConfigError(
                f"level: {wordless[0]} has no vectors of words (SBERT-WK, a head, the vector of a "
                "special token, ready vectors, or an object that a program passes); use --level "
                "sentence"
            )
        self._sources = tuple(sources)
        self.specs = tuple(one.spec for one in sources)
        self.level: Level = level or ("sentence" if wordless else "word")
        self.widths = tuple(one.width(self.level) for one in sources)
        self.window = min(spec.max_length for spec in self.specs)
        # Engines without torch divide a batch themselves, and need work for every core.
        in_torch = any(isinstance(one, TransformerSource) for one in sources)
        self.batch_pieces = None if in_torch else _BATCH_PIECES
        readers: dict[object, int] = {}
        self._reader_of = [readers.setdefault(one.reader(), len(readers)) for one in sources]
        self._readers = [sources[self._reader_of.index(number)] for number in range(len(readers))]

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[MetaPieces]:
        """The pieces of each text by every source; cut at `max_length` if given.

        A text that is too long for one source is cut before the same word for all of them.
        """
        found = self._read(texts, query)
        if max_length is None:
            return found
        long = [row for row, one in enumerate(found) if len(one) > max_length]
        shorter = [self._cut(found[row], max_length) for row in long]
        for row, one in zip(long, shorter, strict=True):
            found[row] = one
        return found

    def piece_offsets(self, text: str) -> list[Span]:
        """(start, stop) of each piece of the source that has the most pieces of a text."""
        _, offsets = self._offsets(text, query=False)
        return max(offsets, key=len)

    def vectors(self, batch: Sequence[MetaPieces]) -> tuple[tuple[Floats, ...], Integers]:
        """Per source (rows, d_j) float32 of length 1 or zero, and (rows,) the text of each row.

        A row is a word, or at the level of sentences a text. Sources that share a backbone share
        one forward pass.
        """
        if self.level == "sentence":
            rows = [self._text_vectors(number, batch) for number in range(len(self._sources))]
            return tuple(map(unit_rows, rows)), np.arange(len(batch))
        counts = np.array([len(one.spans) for one in batch], np.int64)
        found = []
        for source, reader in zip(self._sources, self._reader_of, strict=True):
            pieces = [one.readings[reader] for one in batch]
            found.append(
                unit_rows(source.words(pieces, [b.aligned[reader] for b in batch], counts))
            )
        return tuple(found), np.repeat(np.arange(len(batch)), counts)

    def _text_vectors(self, number: int, batch: Sequence[MetaPieces]) -> Floats:
        found = np.zeros((len(batch), self.widths[number]), np.float32)
        for query in (False, True):
            rows = [row for row, one in enumerate(batch) if one.query is query]
            if rows:
                pieces = [batch[row].readings[self._reader_of[number]] for row in rows]
                found[rows] = self._sources[number].texts(pieces, query=query)
        return found

    def _read(self, texts: Sequence[str], query: bool) -> list[MetaPieces]:
        reads = [reader.read(texts, query=query) for reader in self._readers]
        readings = list(zip(*(pieces for pieces, _ in reads), strict=True))
        spans: list[list[Span]] = [[] for _ in texts]
        aligned: list[tuple[Alignment, ...]] = [() for _ in texts]
        if self.level == "word" and texts:
            spans = [word_spans(text) for text in texts]
            aligned = list(zip(*(align(spans, offsets) for _, offsets in reads), strict=True))
        return [
            MetaPieces(text, query, readings[row], tuple(spans[row]), aligned[row])
            for row, text in enumerate(texts)
        ]

    def _cut(self, whole: MetaPieces, max_length: int) -> MetaPieces:
        """The text up to the last word that leaves every source within the window."""
        text, query = whole.text, whole.query
        stops = [stop for _, stop in word_spans(text)]
        while True:
            sizes, offsets = self._offsets(text, query=query)
            limit = len(text)
            for size, spans in zip(sizes, offsets, strict=True):
                if size > max_length:
                    # What has no place in the text, such as special tokens, stays.
                    room = max_length - (size - len(spans))
                    limit = min(limit, spans[max(room, 0)][0] if spans else 0)
            if limit == len(text):
                return self._read([text], query)[0]
            stops = [stop for stop in stops if stop <= limit]
            # A single word that is longer than the window is cut inside.
            shorter = text[: stops[-1]] if stops else text[:limit]
            if len(shorter) == len(text):
                return self._read([text], query)[0]
            text = shorter

    def _offsets(self, text: str, *, query: bool) -> tuple[list[int], list[list[Span]]]:
        """The number of pieces of each reader, and the offsets of those that have a place."""
        sizes, found = [], []
        for reader in self._readers:
            (pieces,), (offsets,) = reader.read([text], query=query)
            sizes.append(len(pieces))
            found.append([span for span in offsets if span[0] < span[1]])
        return sizes, found


def unit_rows(vectors: Floats) -> Floats:
    """Each row scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def _prompt(spec: EncoderSpec, query: bool) -> str:
    settings = spec.settings
    return (settings.query_prompt if query else settings.passage_prompt) or ""


def _after(prompt: str, offsets: list[list[Span]]) -> list[list[Span]]:
    """Offsets in the text after its prompt."""
    if not prompt:
        return offsets
    size = len(prompt)
    return [
        [(max(start - size, 0), stop - size) if stop > size else (0, 0) for start, stop in row]
        for row in offsets
    ]


def _flat(
    aligned: Sequence[Alignment], firsts: NDArray[np.integer], counts: Integers
) -> tuple[Integers, Integers]:
    """The pieces of all texts as rows of one table, and the word of each in the order of texts."""
    words = np.cumsum(counts) - counts
    pieces = [one.pieces + first for one, first in zip(aligned, firsts, strict=True)]
    owners = [one.words + first for one, first in zip(aligned, words, strict=True)]
    return np.concatenate(pieces), np.concatenate(owners)


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _filled(model: PieceEncoder, pieces: Sequence[Any]) -> Floats:
    """The vectors of texts; zeros of those without pieces."""
    found = np.zeros((len(pieces), model.dimensions), np.float32)
    rows = [row for row, one in enumerate(pieces) if len(one)]
    if rows:
        found[rows] = model.embed([pieces[row] for row in rows])
    return found
