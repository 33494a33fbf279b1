"""Words with a vector each, and the tokenizer that finds them in a text.

They come from a file of word vectors, or are the input embeddings of a model: its embedding table
is read from the weights and the model itself is not built.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.models.finding import ModelFolder
from retriever.encoders.static.files import WordVectors
from retriever.errors import ModelError

Kind = Literal["words", "word-pieces"]

# The names of input embedding tables; anything may stand before them.
_TABLES = (
    "embeddings.word_embeddings.weight",
    "word_embeddings.weight",
    "word_embedding.weight",
    "embeddings.tok_embeddings.weight",
    "embed_tokens.weight",
    "wte.weight",
    "shared.weight",
)
# Words of letters, digits and underscores; together where apostrophes, hyphens or dots join them.
_COMPOUND = re.compile(r"\w+(?:['’.\-]\w+)*")
_WORD = re.compile(r"\w+")


class FileTokenizer:
    """Finds the words of a file.

    What apostrophes, hyphens or dots join is one word if the file has it, else its parts are
    words. A word is looked up as it is written, then in lower case.

    Args:
        words: distinct; their ids are 0, 1, ...

    Attributes:
        kind: what it finds.
    """

    kind: Kind = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._ids = {word: number for number, word in enumerate(words)}

    @property
    def words(self) -> list[str]:
        """The words in the order of their ids."""
        return list(self._ids)

    @property
    def content(self) -> str:
        """One word per line, as in the file."""
        return "".join(word + "\n" for word in self._ids)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text's words; the number of words stands for one that is not known."""
        return [[number for _, _, number in self._found(text)] for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of what `ids` returns."""
        return [(start, stop) for start, stop, _ in self._found(text)]

    def ids_with_spans(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """What `ids` and `spans` return, of each text."""
        found = [list(self._found(text)) for text in texts]
        return (
            [[number for _, _, number in one] for one in found],
            [[(start, stop) for start, stop, _ in one] for one in found],
        )

    def _found(self, text: str) -> Iterator[tuple[int, int, int]]:
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
    """A model's own tokenizer, without special tokens.

    Args:
        content: a tokenizer.json.
        words: the number of rows of the embedding table.
        unknown: the id of what the tokenizer cannot write, or None; it counts as not known.

    Attributes:
        kind: what it finds.
        content, unknown: as given.

    Raises:
        ValueError: the content is no tokenizer.
    """

    kind: Kind = "word-pieces"

    def __init__(self, content: str, words: int, unknown: int | None) -> None:
        from tokenizers import Tokenizer

        self.content = content
        self.unknown = unknown
        self._words = words
        try:
            self._tokenizer = Tokenizer.from_str(content)
        except Exception as error:
            # The library raises the base class itself.
            raise ValueError(str(error)) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text's pieces; the number of words stands for one that is not known."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[self._known(number) for number in one.ids] for one in found]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of what `ids` returns."""
        return [
            (int(start), int(stop))
            for start, stop in self._tokenizer.encode(text, add_special_tokens=False).offsets
        ]

    def ids_with_spans(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """What `ids` and `spans` return, of each text."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[self._known(number) for number in one.ids] for one in found], [
            one.offsets for one in found
        ]

    def _known(self, number: int) -> int:
        return self._words if number == self.unknown or number >= self._words else int(number)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words, their vectors, and the tokenizer that finds them.

    Attributes:
        name: the name they were given by.
        tokenizer: gives the row of each word, or the number of rows for one that is not known.
        vectors: (words, d) float32, C-contiguous, finite.
        digest: SHA-256 over the words or, of a model, over its weights and tokenizer.
    """

    name: str
    tokenizer: FileTokenizer | PieceTokenizer
    vectors: NDArray[np.float32]
    digest: str


def file_lexicon(name: str, file: WordVectors) -> Lexicon:
    """The words of a file."""
    tokenizer = FileTokenizer(file.words)
    return Lexicon(name, tokenizer, file.vectors, words_digest(tokenizer))


def words_digest(tokenizer: FileTokenizer) -> str:
    """SHA-256 over the words, in hexadecimal."""
    # The number is that of the rules by which words are found in a text.
    return hashlib.sha256(f"words 1\n{tokenizer.content}".encode()).hexdigest()


def model_lexicon(folder: ModelFolder) -> Lexicon:
    """The word pieces of a model, with its input embeddings.

    Raises:
        ModelError: its weights hold no table of input embeddings of a known name, or several; or
            its tokenizer is none that can be used.
    """
    from transformers import AutoTokenizer

    table = _embedding_table(folder)
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
        # The libraries have an error of their own for each thing that a file can have wrong.
        reason = " ".join(str(error).split())[:240] or type(error).__name__
        raise ModelError(f"{folder.path}: the tokenizer cannot be loaded: {reason}") from error
    return Lexicon(folder.name, tokenizer, table, folder.weights)


def _embedding_table(folder: ModelFolder) -> NDArray[np.float32]:
    from safetensors import SafetensorError, safe_open

    found: list[tuple[str, Path, str]] = []
    try:
        for file in sorted(folder.path.glob("*.safetensors")):
            with safe_open(file, framework="numpy") as tensors:
                names = list(tensors.keys())
            found += [(table, file, name) for name in names if (table := _table_of(name))]
        # A more specific name comes first: `word_embeddings.weight` alone may be another table.
        first = min((_TABLES.index(table) for table, _, _ in found), default=0)
        tables = [(file, name) for table, file, name in found if table == _TABLES[first]]
        if len(tables) == 1:
            return _tensor(*tables[0])
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{folder.path}: the weights cannot be read ({error}); save the model again"
        ) from error
    several = ", ".join(name for _, name in tables) or "none"
    raise ModelError(
        f"{folder.path}: expected one table of input embeddings such as {_TABLES[0]}, found "
        f"{several}; name another model or a file of word vectors"
    )


def _table_of(name: str) -> str | None:
    return next((one for one in _TABLES if name == one or name.endswith("." + one)), None)


def _tensor(file: Path, name: str) -> NDArray[np.float32]:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors:
        bfloat = tensors.get_slice(name).get_dtype() == "BF16"
        table: Any = None if bfloat else tensors.get_tensor(name)
    if bfloat:
        # NumPy has no such type.
        with safe_open(file, framework="pt") as tensors:
            table = tensors.get_tensor(name).float().numpy()
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ModelError(
            f"{file}: {name}: expected a table of finite numbers, found shape {table.shape}; save "
            "the model again"
        )
    return np.ascontiguousarray(table, np.float32)
