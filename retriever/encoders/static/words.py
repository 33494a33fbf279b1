"""Words and their vectors, and the combination of the vectors of a text.

Texts are passed as `ids`, the words of all texts one after the other, and `counts`, the number of
words of each text. The result is (texts, d) float32, zeros for a text without words. It depends on
the other texts of a batch only by rounding.

Sources:

- SIF: Arora, Liang and Ma 2017 (A Simple but Tough-to-Beat Baseline for Sentence Embeddings).
- uSIF: Ethayarajh 2018 (Unsupervised Random Walk Sentence Embeddings).
- p-mean: Rücklé, Eger, Peyrard and Gurevych 2018 (Concatenated Power Mean Word Embeddings).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import reduce_segments
from retriever.encoders.model_folders import (
    MALFORMED,
    WEIGHTS_FILE,
    ModelFolder,
    find_model,
    find_path,
    find_token_table,
    read_prompts,
    read_tensor,
)
from retriever.encoders.settings import Static
from retriever.encoders.static.files import read_word_vectors
from retriever.errors import ModelError

TokenizerKind = Literal["words", "word-pieces"]
# Names of input embedding tables, after any prefix.
_TABLES = (
    "embeddings.word_embeddings.weight",
    "word_embeddings.weight",
    "word_embedding.weight",
    "embeddings.tok_embeddings.weight",
    "embed_tokens.weight",
    "wte.weight",
    "shared.weight",
)
# Words of letters, digits and underscores, joined by apostrophes, hyphens or dots.
_COMPOUND = re.compile(r"\w+(?:['’.\-]\w+)*")
_WORD = re.compile(r"\w+")
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
# Relative variance below which a component is rounding noise.
_NO_VARIANCE = 1e-12


class FileTokenizer:
    """A tokenizer for the words of a file, in their own spelling or else in lower case.

    A compound with apostrophes, hyphens or dots is one word if the file has it. Else its parts are
    words.
    """

    kind: TokenizerKind = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._ids = {word: number for number, word in enumerate(words)}

    @property
    def words(self) -> list[str]:
        """The words in the order of their ids."""
        return list(self._ids)

    @property
    def content(self) -> str:
        """The words, one per line."""
        return "".join(word + "\n" for word in self._ids)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's words; an unknown word has the number of words as id."""
        return [[number for _, _, number in self._find_words(text)] for text in texts]

    def ids_with_spans(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return `ids`, and the (start, stop) character offsets of each word."""
        found_words = [list(self._find_words(text)) for text in texts]
        return (
            [[number for _, _, number in words] for words in found_words],
            [[(start, stop) for start, stop, _ in words] for words in found_words],
        )

    def _find_words(self, text: str) -> Iterator[tuple[int, int, int]]:
        unknown = len(self._ids)
        for match in _COMPOUND.finditer(text):
            number = self._id(match[0])
            if number is not None:
                yield match.start(), match.end(), number
                continue
            for part in _WORD.finditer(text, match.start(), match.end()):
                number = self._id(part[0])
                yield part.start(), part.end(), unknown if number is None else number

    def _id(self, word: str) -> int | None:
        number = self._ids.get(word)
        return self._ids.get(word.lower()) if number is None else number


class PieceTokenizer:
    """A model's own tokenizer, without special tokens."""

    kind: TokenizerKind = "word-pieces"

    def __init__(self, content: str, words: int, unknown: int | None) -> None:
        from tokenizers import Tokenizer

        self.content = content
        self.unknown = unknown
        self._words = words
        try:
            self._tokenizer = Tokenizer.from_str(content)
        except Exception as error:
            # The library raises the base class.
            raise ValueError(str(error)) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's pieces; an unknown piece has the number of words as id."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[self._known_id(number) for number in encoding.ids] for encoding in encodings]

    def ids_with_spans(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return `ids`, and the (start, stop) character offsets of each piece."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ids = [[self._known_id(number) for number in encoding.ids] for encoding in encodings]
        return ids, [encoding.offsets for encoding in encodings]

    def _known_id(self, number: int) -> int:
        return self._words if number == self.unknown or number >= self._words else int(number)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words, their (words, d) float32 vectors, and their tokenizer."""

    name: str
    tokenizer: FileTokenizer | PieceTokenizer
    vectors: NDArray[np.float32]
    # SHA-256 over the words, or over the weights and the tokenizer of a model.
    digest: str
    # Settings in the model's files.
    window: int | None = None
    query_prompt: str = ""
    passage_prompt: str = ""


def find_lexicon(name: str, download: bool) -> Lexicon:
    """Return the words of a file of word vectors, or the word pieces of a model."""
    if os.path.isfile(name):
        file = read_word_vectors(Path(name))
        return word_lexicon(name, file.words, file.vectors)
    path = find_path(name, download=download)
    table = find_token_table(path)
    if table is None:
        return model_lexicon(find_model(name))
    # A folder of model2vec has no prompts.
    prompts = read_prompts(path) if (path / "modules.json").is_file() else ("", "")
    return table_lexicon(name, table, *prompts)


def word_lexicon(name: str, words: Sequence[str], vectors: Floats) -> Lexicon:
    """Return a lexicon of words and their vectors."""
    tokenizer = FileTokenizer(words)
    return Lexicon(name, tokenizer, vectors, words_digest(tokenizer))


def words_digest(tokenizer: FileTokenizer) -> str:
    """Return the SHA-256 over the words, in hexadecimal."""
    # 1 is the version of the rules that find words in a text.
    return hashlib.sha256(f"words 1\n{tokenizer.content}".encode()).hexdigest()


def model_lexicon(folder: ModelFolder) -> Lexicon:
    """Return the word pieces of a model with its input embeddings, without building the model."""
    from transformers import AutoTokenizer

    table = _read_embedding_table(folder)
    try:
        loaded = AutoTokenizer.from_pretrained(
            folder.path, local_files_only=True, trust_remote_code=False
        )
        unknown = loaded.unk_token_id
        tokenizer = PieceTokenizer(
            loaded.backend_tokenizer.to_str(), len(table), None if unknown is None else int(unknown)
        )
    except MemoryError:
        raise
    except Exception as error:
        # The libraries raise various errors for damaged files.
        reason = " ".join(str(error).split())[:240] or type(error).__name__
        raise ModelError(f"{folder.path}: the tokenizer cannot be loaded: {reason}") from error
    return Lexicon(folder.name, tokenizer, table, folder.weights)


def table_lexicon(name: str, folder: Path, query_prompt: str, passage_prompt: str) -> Lexicon:
    """Return the tokens of a folder of model2vec or StaticEmbedding, and their vectors.

    In model2vec, `mapping` may name the row of `embeddings` for a token, and `weights` its factor.
    The unknown token has no vector.
    """
    from safetensors import SafetensorError, safe_open

    file = folder / WEIGHTS_FILE
    words = folder / "tokenizer.json"
    try:
        with safe_open(file, framework="numpy") as tensors:
            names = set(tensors.keys())
            optional = names & {"mapping", "weights"}
            extra_arrays = {array: tensors.get_tensor(array) for array in optional}
        table_name = "embedding.weight" if "embedding.weight" in names else "embeddings"
        vectors = _read_table(file, table_name)
        if "mapping" in extra_arrays:
            vectors = vectors[extra_arrays["mapping"].astype(np.int64)]
        if "weights" in extra_arrays:
            vectors = np.ascontiguousarray(vectors * extra_arrays["weights"][:, None], np.float32)
        content = words.read_text(encoding="utf-8")
        tokenizer_settings = json.loads(content)
        unknown = _unknown_id(tokenizer_settings["model"]) if table_name == "embeddings" else None
        tokenizer = PieceTokenizer(content, len(vectors), unknown)
        window = (tokenizer_settings.get("truncation") or {}).get("max_length")
    except (OSError, SafetensorError, *MALFORMED) as error:
        reason = " ".join(str(error).split())[:240]
        raise ModelError(
            f"{folder}: expected model.safetensors with embeddings or embedding.weight, and "
            f"tokenizer.json, as model2vec and sentence-transformers write them ({reason}); save "
            "the model again"
        ) from error
    digest = hashlib.sha256(f"{unknown}\n{content}".encode()).hexdigest()
    return Lexicon(name, tokenizer, vectors, digest, window, query_prompt, passage_prompt)


def _unknown_id(model: Mapping[str, Any]) -> int | None:
    """Return the id of a tokenizer's unknown token."""
    if "unk_id" in model:
        return None if model["unk_id"] is None else int(model["unk_id"])
    vocabulary: Mapping[str, int] = model["vocab"]
    return vocabulary.get(model.get("unk_token") or "")


def _read_embedding_table(folder: ModelFolder) -> NDArray[np.float32]:
    from safetensors import SafetensorError, safe_open

    matches: list[tuple[str, Path, str]] = []
    try:
        for file in sorted(folder.path.glob("*.safetensors")):
            with safe_open(file, framework="numpy") as tensors:
                names = list(tensors.keys())
            matches += [
                (table, file, name)
                for name in names
                for table in _TABLES
                if f".{name}".endswith(f".{table}")
            ]
        # Prefer the more specific name, since `word_embeddings.weight` alone may be another table.
        first = min((_TABLES.index(table) for table, _, _ in matches), default=0)
        tables = [(file, name) for table, file, name in matches if table == _TABLES[first]]
        if len(tables) == 1:
            return _read_table(*tables[0])
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{folder.path}: the weights cannot be read ({error}); save the model again"
        ) from error
    several = ", ".join(name for _, name in tables) or "none"
    raise ModelError(
        f"{folder.path}: expected one table of input embeddings such as {_TABLES[0]}, found "
        f"{several}; name another model or a file of word vectors"
    )


def _read_table(file: Path, name: str) -> Floats:
    table = read_tensor(file, name)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ModelError(
            f"{file}: {name}: expected a table of finite numbers, found shape {table.shape}; save "
            "the model again"
        )
    return table


@dataclass(frozen=True, slots=True)
class FittedWeights:
    """Weights and components of SIF or uSIF; `parameters` are shown to the user."""

    weights: Floats
    # (count, dimensions) orthonormal rows, and the removed share of the projection on each.
    components: Floats
    shares: Floats
    parameters: Mapping[str, float | int | None] = field(default_factory=dict)


def sentence_vectors(
    method: Static, vectors: Floats, ids: Integers, counts: Integers, fitted: FittedWeights | None
) -> Floats:
    """Return one vector per text, not normalized."""
    if fitted is None:
        return average_words(method, vectors, ids, counts)
    plain = average_words(method, vectors, ids, counts, fitted.weights)
    # Remove a share of the projection on each component.
    projections: Floats = (plain @ fitted.components.T) * fitted.shares
    plain -= projections @ fitted.components
    return plain


def average_words(
    method: Static,
    vectors: Floats,
    ids: Integers,
    counts: Integers,
    weights: Floats | None = None,
) -> Floats:
    """Return the mean of each text's words, before `sif` and `usif` remove components.

    `usif` first scales each dimension to length 1 over the words of a text. `p-mean` concatenates
    minimum, mean and maximum: the power means of -inf, 1 and inf.
    """
    rows = vectors[ids]
    if method == "usif":
        lengths = np.sqrt(reduce_segments(np.add, rows * rows, counts))
        inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        rows *= np.repeat(inverse, counts, axis=0)
    if weights is not None:
        rows *= weights[ids, None]
    mean = reduce_segments(np.add, rows, counts)
    mean /= np.maximum(counts, 1).astype(np.float32)[:, None]
    if method != "p-mean":
        return mean
    lowest, highest = (reduce_segments(ufunc, rows, counts) for ufunc in (np.minimum, np.maximum))
    return np.concatenate([lowest, mean, highest], axis=1)


def flatten(pieces: Sequence[Sequence[int]], words: int) -> tuple[Integers, Integers]:
    """Return the known words of texts, with ids below `words`, as flat ids and counts."""
    lengths = np.array([len(row) for row in pieces], np.int64)
    ids = np.fromiter(chain.from_iterable(pieces), np.int64, int(lengths.sum()))
    has_vector = ids < words
    if has_vector.all():
        return ids, lengths
    texts = np.repeat(np.arange(len(lengths)), lengths)
    return ids[has_vector], np.bincount(texts[has_vector], minlength=len(lengths))


def sif_weights(probabilities: NDArray[np.float64], a: float) -> Floats:
    """Return ``a / (a + p(w))`` (Arora et al., Algorithm 1); 1 for a word of probability 0."""
    return (a / (a + probabilities)).astype(np.float32)


def usif_a(probabilities: NDArray[np.float64], length: float) -> float:
    """Return the parameter a of uSIF (Ethayarajh), which is a setting of SIF.

    ``a = (1 - alpha) / (alpha Z)`` with ``Z = |V| / 2``. alpha is the share of the vocabulary V
    with a probability above ``1 - (1 - 1/|V|)^n``, and n the mean number of words of a text. a is
    infinite if no word is that probable.
    """
    size = len(probabilities)
    threshold = 1 - (1 - 1 / size) ** length
    alpha = float(np.mean(probabilities > threshold))
    return (1 - alpha) / (alpha * size / 2) if alpha else math.inf


def usif_weights(probabilities: NDArray[np.float64], a: float) -> Floats:
    """Return ``a / (a/2 + p(w))`` (Ethayarajh); 2 for every word if a is infinite."""
    return (1 / (0.5 + probabilities / a)).astype(np.float32)


def principal_components(
    gram: NDArray[np.float64], count: int
) -> tuple[Floats, NDArray[np.float64]]:
    """Return the first `count` right singular vectors of a matrix, at most its rank.

    `gram` is the transposed matrix times the matrix, not centered. The result is the vectors as
    rows, and their squared singular values. The largest component of each vector is positive.
    """
    values, columns = np.linalg.eigh(gram)
    values = values[::-1][:count]
    columns = columns[:, ::-1][:, :count]
    significant = values > _NO_VARIANCE * max(values.max(initial=0), np.finfo(np.float64).tiny)
    values = values[significant]
    rows = columns[:, significant].T
    greatest = np.abs(rows).argmax(axis=1, keepdims=True)
    rows = rows * np.sign(np.take_along_axis(rows, greatest, axis=1))
    return np.ascontiguousarray(rows, np.float32), values


def component_shares(method: Static, squares: NDArray[np.float64]) -> Floats:
    """Return the share of each projection that is removed; `squares` are sigma^2.

    SIF removes projections completely. uSIF removes ``lambda_i = sigma_i^2 / sum_j sigma_j^2``,
    summed over the removed components (Ethayarajh's piecewise common component removal).
    """
    shares = squares / squares.sum() if method == "usif" else np.ones(len(squares))
    return shares.astype(np.float32, copy=False)
