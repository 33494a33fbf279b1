"""Look-up of words in a model's vocabulary, without loading the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from retriever.encoders.model_folders import UNIGRAM_SETTINGS, find_path
from retriever.errors import RetrieverError

# Byte-level BPE writes a printed byte as its own character, and the others from U+0100 on.
_PRINTED_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHER_BYTES = sorted(set(range(256)) - {*_PRINTED_BYTES})
_BYTE_CHARACTERS = {byte: chr(byte) for byte in _PRINTED_BYTES} | {
    byte: chr(256 + number) for number, byte in enumerate(_OTHER_BYTES)
}


def read_vocabulary(name: str) -> Callable[[str], bool]:
    """Return a function that tells whether a word is a single piece; without a file, none is."""
    with suppress(RetrieverError, ImportError, OSError):
        path = find_path(name)
        if (path / UNIGRAM_SETTINGS).is_file():
            from retriever.encoders.transformer.unigram_vocabulary import UnigramVocabulary

            return UnigramVocabulary(path).has_word
        content = (path / "tokenizer.json").read_bytes()
        return lambda word: vocabulary_has(content, word)
    return lambda word: False


def vocabulary_has(vocabulary: bytes, word: str) -> bool:
    """Return whether a word is a single piece of WordPiece, SentencePiece or byte pairs."""
    in_bytes = "".join(_BYTE_CHARACTERS[byte] for byte in f" {word}".encode(errors="replace"))
    pieces = (json.dumps(piece, ensure_ascii=False) for piece in (word, f"▁{word}", in_bytes))
    return any(piece.encode(errors="replace") in vocabulary for piece in pieces)
