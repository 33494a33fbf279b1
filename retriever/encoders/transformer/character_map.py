"""The table of SentencePiece that replaces characters, checked before a library reads it.

Form of the table: four bytes with the size of a trie, its units of four bytes, and the texts. A
text ends with a zero byte. The trie is a double array (Yata 2008, Darts-clone). The library of
`tokenizers` follows it without a check of its own, so a damaged table would end the process.
"""

from __future__ import annotations

import numpy as np

_SIZE_BYTES = 4
_UNIT_BYTES = 4
# Units whose numbers differ in the last byte alone.
_BLOCK = 256
# Bits of a unit: a value instead of an edge, a value at the end of the edge, a far end.
_IS_VALUE = np.uint32(1 << 31)
_HAS_VALUE = np.uint32(1 << 8)
_IS_FAR = np.uint32(1 << 9)
_OFFSET_SHIFT = np.uint32(10)
_FAR_SHIFT = np.uint32(8)
# Most bytes of a text. The longest one of XLM-RoBERTa takes 195.
_LONGEST_TEXT = 1024


def check_character_map(table: bytes) -> None:
    """Raise ValueError for a table that is damaged or lengthens texts beyond measure."""
    size = int.from_bytes(table[:_SIZE_BYTES], "little")
    end = _SIZE_BYTES + size
    if len(table) < _SIZE_BYTES or end > len(table) or not size or size % (_BLOCK * _UNIT_BYTES):
        raise ValueError(f"a table of {len(table):,} bytes for a trie of {size:,}")
    units = np.frombuffer(table[_SIZE_BYTES:end], "<u4")
    texts = table[end:]
    texts.decode()
    if max(map(len, texts.split(b"\0"))) > _LONGEST_TEXT:
        raise ValueError(f"a text of more than {_LONGEST_TEXT} bytes in its table of characters")
    is_edge = (units & _IS_VALUE) == 0
    # The library follows the root whatever its bits.
    is_edge[0] = True
    numbers = np.flatnonzero(is_edge)
    edges = units[numbers]
    shifts = np.where(edges & _IS_FAR, _FAR_SHIFT, 0).astype(np.uint32)
    ends = numbers ^ ((edges >> _OFFSET_SHIFT).astype(np.int64) << shifts)
    if (ends >= len(units)).any():
        raise ValueError("an edge that leaves the table of characters")
    values = units[ends[(edges & _HAS_VALUE).astype(bool)]] & ~_IS_VALUE
    if (values >= max(len(texts), 1)).any():
        raise ValueError("a text that is not in the table of characters")
    is_inside = (np.frombuffer(texts, np.uint8) & 0xC0) == 0x80
    if len(texts) and is_inside[values].any():
        raise ValueError("a text that begins inside a character")
