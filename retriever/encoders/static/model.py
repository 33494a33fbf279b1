"""Sentence vectors from word vectors alone: the baselines that need no forward pass."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.models.finding import ModelFolder, find_model
from retriever.encoders.registry import (
    Batches,
    EncoderModel,
    Kind,
    LoadContext,
    Span,
    is_static_folder,
    plain_settings,
)
from retriever.encoders.settings import DEFAULT_MODEL, EncoderSettings, Static
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.static.files import read_word_vectors
from retriever.encoders.static.fitting import DEFAULT_SETTINGS, Done, FitSettings, fit
from retriever.encoders.static.folder import (
    FITTED,
    StaticParts,
    check_target,
    read_folder,
    write_folder,
)
from retriever.encoders.static.methods import Fitted, flatten, sentence_vectors
from retriever.encoders.static.words import Lexicon, file_lexicon, model_lexicon
from retriever.errors import ConfigError

__all__ = ["StaticModel", "check_target", "fit_static"]

# Default number of words of a text that are read.
WINDOW = 512


def _silent(texts: int, words: int) -> None:
    """Do nothing."""


class StaticModel(EncoderModel):
    """Turns the words of a text into a vector; make one with a class method or `fit_static`.

    Attributes:
        dimensions: components of a vector; for `p-mean` three times those of a word vector.
        max_length: the window in words (or, of a model, word pieces) by default.
        method: ``average``, ``sif``, ``usif`` or ``p-mean``.
        weights: SHA-256 over everything that decides a vector, in hexadecimal.
        parts: what it consists of.
    """

    def __init__(self, parts: StaticParts) -> None:
        vectors = parts.lexicon.vectors
        self.parts = parts
        self.method = parts.method
        self.dimensions = vectors.shape[1] * (3 if parts.method == "p-mean" else 1)
        self.max_length = WINDOW
        self.weights = parts.identity()

    @classmethod
    def from_file(cls, path: str | Path, method: Static = "average") -> StaticModel:
        """Word vectors of a GloVe, word2vec or fastText file.

        Args:
            path: the file, see `retriever.encoders.static.files`.
            method: ``average`` or ``p-mean``; the others have to be fitted.

        Raises:
            ConfigError: the method has to be fitted.
            SourceError: the file cannot be read, or is malformed.
        """
        _refuse_unfitted(method, str(path))
        return cls(StaticParts(_of_file(Path(path)), method, None, _from(str(path))))

    @classmethod
    def from_model(cls, folder: ModelFolder, method: Static = "average") -> StaticModel:
        """A model's own input embeddings, with its own tokenizer; the model is not built.

        Args:
            folder: the model.
            method: ``average`` or ``p-mean``; the others have to be fitted.

        Raises:
            ConfigError: the method has to be fitted.
            ModelError: the weights hold no table of input embeddings, or the tokenizer cannot be
                used.
        """
        _refuse_unfitted(method, folder.name)
        return cls(StaticParts(model_lexicon(folder), method, None, _from(folder.name)))

    @classmethod
    def load(cls, folder: str | Path) -> StaticModel:
        """What `save` wrote.

        Raises:
            ModelError: a file is missing, altered, or written by a newer release.
        """
        return cls(read_folder(Path(folder)))

    def save(self, folder: str | Path) -> None:
        """Write everything into a folder, which appears complete or not at all.

        Args:
            folder: new, empty, or that of another static encoder, which is replaced.

        Raises:
            ConfigError: the folder holds something else, or is in one that does not exist.
            StorageError: the disk is full or cannot be written.
        """
        write_folder(Path(folder), self.parts)

    @property
    def fitted(self) -> Fitted | None:
        """What `sif` and `usif` learned; None for the others."""
        return self.parts.fitted

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The source of the words and vectors."""
        return self.parts.provenance

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Ids of each text's words; cut at `max_length` if given; empty for a text without words.

        A word that is not known has the number of known words as its id.
        """
        return [row[:max_length] for row in self.parts.lexicon.tokenizer.ids(texts)]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word that `tokenize` gives an id."""
        return self.parts.lexicon.tokenizer.spans(text)

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[list[int]], list[list[Span]]]:
        """The ids of whole texts, and the offsets of each."""
        return self.parts.lexicon.tokenizer.ids_with_spans(texts)

    @property
    def word_dimensions(self) -> int:
        """Of a word vector, without the weights and components of the method."""
        return int(self.parts.lexicon.vectors.shape[1])

    def piece_batches(self, pieces: Sequence[Sequence[int]]) -> Batches:
        """The vectors of all words in one batch; zeros of those that are not known."""
        vectors = self.parts.lexicon.vectors
        lengths = np.array([len(ids) for ids in pieces], np.int64)
        ids = np.full((len(pieces), lengths.max(initial=0)), len(vectors), np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.fromiter(
            chain.from_iterable(pieces), np.int64
        )
        known = ids < len(vectors)
        found = np.zeros((*ids.shape, self.word_dimensions), np.float32)
        found[known] = vectors[ids[known]]
        yield np.arange(len(pieces)), found

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One vector per text, not normalized, from the ids that `tokenize` gives.

        Returns:
            (texts, dimensions) float32; zeros for a text without a known word.
        """
        vectors = self.parts.lexicon.vectors
        ids, counts = flatten(pieces, len(vectors))
        return sentence_vectors(self.method, vectors, ids, counts, self.parts.fitted)


def fit_static(
    source: str | Path,
    method: Static,
    texts: Iterable[str],
    *,
    settings: FitSettings = DEFAULT_SETTINGS,
    download: bool = False,
    done: Done = _silent,
) -> StaticModel:
    """Make a static encoder; `sif` and `usif` are fitted on texts.

    Args:
        source: a file of word vectors, or a model (see `find_model`).
        method: which one.
        texts: the corpus, read once as a stream; `average` and `p-mean` do not read it.
        settings: how to fit.
        download: whether a model that is not in the local hub cache may be fetched.
        done: called with the texts and words that were read since the last call.

    Raises:
        ConfigError: a setting that does not fit the method or the vectors.
        SourceError: a file cannot be read; no text holds a word that has a vector.
        ModelError: the model is missing or cannot be used.
    """
    settings.check(method)
    name, provenance = str(source), _from(str(source))
    if Path(name).is_file():
        lexicon = _of_file(Path(name))
    else:
        lexicon = model_lexicon(find_model(name, download=download))
    fitted = None
    if method in FITTED:
        fitted, details = fit(lexicon, method, texts, settings, WINDOW, done)
        provenance |= details
    return StaticModel(StaticParts(lexicon, method, fitted, provenance))


def _of_file(path: Path) -> Lexicon:
    return file_lexicon(str(path), read_word_vectors(path))


def _from(name: str) -> dict[str, Any]:
    return {"vectors": name}


def _refuse_unfitted(method: Static, source: str) -> None:
    if method in FITTED:
        raise ConfigError(
            f"static: {method} has to be fitted on texts: `retriever train static CORPUS --vectors "
            f"{source} --method {method} --output FOLDER`, then name that folder with --model"
        )


def _find(asked: EncoderSettings, download: bool) -> StaticModel:
    name = asked.model or DEFAULT_MODEL
    if is_static_folder(name):
        static = StaticModel.load(name)
        if asked.static not in (None, static.method):
            raise ConfigError(
                f"static: {name} was fitted for {static.method}, but {asked.static} was asked for; "
                "leave static out, or fit another with `retriever train static`"
            )
        return static
    if os.path.isfile(name):
        return StaticModel.from_file(name, asked.static or "average")
    assert asked.static is not None
    return StaticModel.from_model(find_model(name, download=download), asked.static)


def _load(asked: EncoderSettings, loading: LoadContext) -> tuple[EncoderSpec, StaticModel]:
    static = _find(asked, loading.download)
    settings = plain_settings(
        asked,
        model=asked.model or DEFAULT_MODEL,
        static=static.method,
        max_length=asked.max_length or static.max_length,
    )
    return EncoderSpec(settings, static.weights, static.dimensions), static


KIND = Kind(load=_load, weights=lambda asked, download: _find(asked, download).weights)
