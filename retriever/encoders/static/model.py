"""Sentence vectors from word vectors alone: the baselines that need no forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.models.finding import ModelFolder, find_model
from retriever.encoders.settings import Static
from retriever.encoders.static.files import read_word_vectors
from retriever.encoders.static.fitting import DEFAULT_SETTINGS, Done, FitSettings, fit
from retriever.encoders.static.folder import (
    FITTED,
    StaticParts,
    check_target,
    is_static_folder,
    read_folder,
    write_folder,
)
from retriever.encoders.static.methods import Fitted, flatten, sentence_vectors
from retriever.encoders.static.words import Lexicon, file_lexicon, model_lexicon
from retriever.errors import ConfigError

__all__ = ["StaticModel", "check_target", "fit_static", "is_static_folder"]

# Default number of words of a text that are read.
WINDOW = 512


def _silent(texts: int, words: int) -> None:
    """Do nothing."""


class StaticModel:
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
            f"static: {method} has to be fitted on texts: `retriever fit static CORPUS --vectors "
            f"{source} --method {method} --output FOLDER`, then name that folder with --model"
        )
