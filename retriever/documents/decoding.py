"""Encodings of text: the named one, that of a byte-order mark, UTF-8, or what chardet detects.

A few bytes that do not fit the encoding are replaced by U+FFFD and counted, as is NUL.
`benchmarks/encodings.py` measures the limits.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from retriever.documents.losses import Loss
from retriever.errors import ConfigError

# Byte-order marks, the longer ones first.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"
# Encodings of browsers (https://encoding.spec.whatwg.org/#names-and-labels) by Python's names.
# Others are not used for a page or a mail; Punycode, for one, takes quadratic time. The name ASCII
# says no more than no name.
_BROWSER_ENCODINGS: dict[str, str | None] = {
    **{f"iso8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"cp{page}": f"cp{page}" for page in (866, 932, 949, 874, *range(1250, 1259))},
    **dict.fromkeys(("big5", "big5hkscs"), "big5hkscs"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030"), "gb18030"),
    **dict.fromkeys(("tis-620", "iso8859-11"), "cp874"),
    "ascii": None,
    "euc_jp": "euc_jp",
    "euc_kr": "cp949",
    "iso2022_jp": "iso2022_jp",
    "iso8859-1": WESTERN,
    "iso8859-9": "cp1254",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "mac-cyrillic": "mac-cyrillic",
    "mac-roman": "mac-roman",
    "shift_jis": "cp932",
    "utf-16": "utf-16",
    "utf-16-be": "utf-16-be",
    "utf-16-le": "utf-16-le",
    "utf-8": "utf-8",
}
# Labels that Python does not know.
_LABELS = {
    "cn-big5": "big5",
    "dos-874": "cp874",
    "gb_2312-80": "gbk",
    "iso-8859-6-i": "iso8859-6",
    "iso-8859-8-i": "iso8859-8",
    "ks_c_5601-1989": "cp949",
    "mac": "mac-roman",
    "windows-31j": "cp932",
    "windows-874": "cp874",
    "windows-949": "cp949",
}
# Remedy for bytes in a wrong encoding. Files of queries and judgments have no such setting.
REMEDY = "convert it to UTF-8, or give `--set encoding=NAME` if the command has that setting"
_REPLACEMENT = "\ufffd"
_HIGH = re.compile(rb"[\x80-\xff]")
_ASCII_BYTES = bytes(range(128))
_NULS = re.compile(rb"\0+")
_NUL_CHARACTERS = re.compile("\0+")
# Bytes per run of NUL in a text. UTF-16 and binary files have more runs.
_NUL_SPACING = 100
# Shares of the bytes above 127 that are in valid sequences. From the first share on, a text has a
# few bad bytes. Below the second, it is in another encoding. Between the two it is damaged.
_LEAST_VALID = 0.9
_LEAST_DAMAGED = 0.5
# The least confidence of chardet in general, and for bytes that are largely UTF-8. Short texts in
# EUC-JP, Windows-874 and CP866 have up to 0.62; damaged UTF-8 never reaches the second.
_CONFIDENCE = 0.05
_SURE = 0.7
# Bytes that chardet reads, and bytes around each byte above 127 that are among them.
_SAMPLE_BYTES = 1 << 16
_CONTEXT = 1 << 10
# The beginning of an escape sequence of ISO-2022, which is ASCII otherwise.
_SHIFT = b"\x1b$"
# The number of bytes above 127 that is too small for chardet, and the confidence below which it
# often errs in languages of Western Europe. Such a text is Windows-1252 if each of these bytes is a
# letter of a mostly ASCII word, a word of one letter, or punctuation. A bad byte is seldom any of
# these.
_FEWEST = 2
_UNSURE = 0.12
_LETTERS = rb"A-Za-z\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff"
_SMALL = rb"\x9c\xdf-\xef\xf1-\xf6\xf8-\xfc"
_CAPITAL = rb"\x8c\xc0-\xcf\xd1-\xd6\xd8-\xdc"
_WORD = rb"\xc0\xc9\xe0\xe1\xe5\xe8\xe9\xec\xed\xf2\xf3\xf6\xf8"
_SIGNS = rb"\x80\x84\x85\x91-\x97\x99\xa0\xa1\xa3\xa7\xa9\xab\xae\xb0\xb1\xb5\xba-\xbf\xd7"
_WESTERN = re.compile(
    rb"(?<=[A-Za-z])[%(small)s]{1,2}(?![A-Z\x80-\x91\x93-\xff])"
    rb"|(?<![%(letters)s])[%(small)s%(capital)s][%(small)s]?(?=[a-z])"
    rb"|(?<![%(letters)s])[%(word)s](?![%(letters)s])"
    rb"|(?<![%(letters)s])[%(signs)s]|[%(signs)s](?![%(letters)s])"
    # An apostrophe, and the dot of Catalan, stand within words.
    rb"|[\x92\xb7]"
    % {
        b"letters": _LETTERS,
        b"small": _SMALL,
        b"capital": _CAPITAL,
        b"word": _WORD,
        b"signs": _SIGNS,
    }
)
_CHARSET = re.compile(
    rb"(?i)<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,99}?encoding)\s*=\s*[\"']?([\w-]+)"
)


class DecodedText(NamedTuple):
    """A text, the encoding of its bytes, and the number of bad ones.

    Attributes:
        text: the text without a byte-order mark and NUL.
        encoding: the encoding of the bytes.
        is_detected: whether the encoding was detected and is not UTF-8.
        replaced: number of replacements by U+FFFD. A run of NUL and a cut character count once.
    """

    text: str
    encoding: str
    is_detected: bool = False
    replaced: int = 0


_records: ContextVar[list[DecodedText] | None] = ContextVar("_records", default=None)


def check_encoding(name: str | None) -> None:
    """Raise ConfigError unless a name is None or names an encoding of text."""
    try:
        "".encode(name or "utf-8")
    except (LookupError, UnicodeError, TypeError) as error:
        raise ConfigError(
            f"encoding: expected a name such as utf-8, cp1252, utf-16 or shift_jis, found {name!r}"
        ) from error


def encoding_fault(encoding: str, error: UnicodeError) -> str:
    """Describe bytes that are not in the expected encoding."""
    return f"not {encoding}: {error}; {REMEDY}"


def detect_encoding(content: bytes) -> str | None:
    """Return the encoding that bytes show; None if that is UTF-8, or unknown.

    Raises:
        UnicodeDecodeError: the bytes are UTF-8 that is damaged.
    """
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            return None if name == "utf-8-sig" else name
    if _has_many_nuls(content):
        guess = _guess_encoding(content[:_SAMPLE_BYTES], _CONFIDENCE) or ""
        return guess if guess.startswith("utf") else None
    if content.isascii():
        return _guess_encoding(content[:_SAMPLE_BYTES], _CONFIDENCE) if _SHIFT in content else None
    try:
        # The end of a stream's beginning may be within a character.
        codecs.getincrementaldecoder("utf-8")().decode(content)
        return None
    except UnicodeDecodeError as error:
        fault = error
    high = len(content.translate(None, _ASCII_BYTES))
    valid = 1 - (len(content) - len(content.decode("utf-8", "ignore").encode())) / high
    is_western = high <= _FEWEST and _is_western(content)
    if valid >= _LEAST_VALID or (_has_one_fault(content) and not (high == 1 and is_western)):
        return None
    if is_western:
        return WESTERN
    is_damaged = valid >= _LEAST_DAMAGED
    sample = _sample_lines(content)
    encoding = _guess_encoding(sample, _SURE if is_damaged else _UNSURE)
    if encoding is None and not is_damaged:
        return WESTERN if _is_western(sample) else _guess_encoding(sample, _CONFIDENCE)
    if encoding is None:
        reason = f"{valid:.0%} of its bytes above 127 are valid UTF-8, so that it is damaged"
        raise UnicodeDecodeError("utf-8", content, fault.start, fault.end, reason)
    return encoding


def _is_western(content: bytes) -> bool:
    return not _WESTERN.sub(b"", content).translate(None, _ASCII_BYTES)


def _guess_encoding(sample: bytes, confidence: float) -> str | None:
    """Return the encoding that chardet finds with this confidence; None for UTF-8 or none."""
    from chardet import EncodingEra, detect

    # Encodings of mainframes share no character with ASCII.
    era = EncodingEra.ALL & ~EncodingEra.MAINFRAME
    guess = detect(sample, should_rename_legacy=False, encoding_era=era, max_bytes=_SAMPLE_BYTES)
    if guess["encoding"] is None or guess["confidence"] < confidence:
        return None
    with suppress(LookupError):
        name = codecs.lookup(guess["encoding"]).name
        encoding = _BROWSER_ENCODINGS.get(name, name)
        return None if encoding == "utf-8" else encoding
    return None


def _has_many_nuls(content: bytes) -> bool:
    if b"\0" not in content:
        return False
    return len(_NULS.findall(content)) > max(1, len(content) // _NUL_SPACING)


def _has_one_fault(content: bytes) -> bool:
    """Return whether exactly one byte or cut character is no UTF-8."""
    text = content.decode("utf-8", "replace")
    return text.count(_REPLACEMENT) - content.count(_REPLACEMENT.encode()) == 1


def _sample_lines(content: bytes) -> bytes:
    """Return the lines around the first bytes above 127."""
    parts: list[bytes] = []
    size = 0
    end = 0
    while size < _SAMPLE_BYTES and (high := _HIGH.search(content, end)) is not None:
        place = high.start()
        first = max(end, place - _CONTEXT)
        start = max(first, content.rfind(b"\n", first, place) + 1)
        last = place + _CONTEXT
        end = content.find(b"\n", last, last + _CONTEXT) + 1 or last + _CONTEXT
        parts.append(content[start:end])
        size += len(parts[-1])
    # chardet takes a NUL as a sign of binary data.
    return b"".join(parts).replace(b"\0", b"")


def page_text(content: bytes, encoding: str | None = None) -> str:
    """Return the text of a page in an encoding, else in the one that the page declares."""
    declared = _CHARSET.search(content[:4096])
    # A page in UTF-16 cannot declare it in ASCII.
    if encoding is None and declared is not None and not declared[1].lower().startswith(b"utf-16"):
        encoding = browser_encoding(declared[1].decode())
    return text_of(content, encoding)


def browser_encoding(label: str | None) -> str | None:
    """Return the encoding that browsers use for a label of a page or a mail; None if unknown."""
    label = (label or "").strip().lower().removeprefix("x-")
    with suppress(LookupError, ValueError):
        return _BROWSER_ENCODINGS.get(codecs.lookup(_LABELS.get(label, label)).name)
    return None


def text_of(content: bytes, encoding: str | None) -> str:
    """Decode a text in an encoding, else in the detected one; replace bad bytes."""
    decoded = _decode_or_replace(content, encoding)
    if (records := _records.get()) is not None:
        records.append(decoded)
    return decoded.text


def _decode_or_replace(content: bytes, encoding: str | None) -> DecodedText:
    # A page that names another encoding may be UTF-8. Few other texts are valid UTF-8 by chance.
    for name in (encoding, "utf-8"):
        with suppress(UnicodeDecodeError):
            return DecodedText(_without_mark(content.decode(name or "utf-8")), name or "utf-8")
    for candidate in (None,) if encoding == "utf-8" else (encoding, None):
        with suppress(UnicodeDecodeError):
            return decode(content, candidate)
    name = encoding or "utf-8"
    text = content.decode(name, "replace")
    return DecodedText(_without_mark(text), name, replaced=text.count(_REPLACEMENT))


def _without_mark(text: str) -> str:
    return text.removeprefix("\ufeff")


def byte_losses(texts: Iterable[DecodedText]) -> tuple[Loss, ...]:
    """Return a loss per encoding for the bad bytes in the texts of a file."""
    replaced: dict[str, int] = {}
    for text in texts:
        if text.replaced:
            replaced[text.encoding] = replaced.get(text.encoding, 0) + text.replaced
    return tuple(
        Loss(
            "bytes",
            f"{number:,} bad {'byte' if number == 1 else 'bytes'} (not {encoding}, or NUL) "
            "replaced by U+FFFD",
        )
        for encoding, number in replaced.items()
    )


@contextmanager
def record_texts() -> Iterator[list[DecodedText]]:
    """Collect the results of `text_of` and `page_text`, so that readers need not pass them on."""
    records: list[DecodedText] = []
    token = _records.set(records)
    try:
        yield records
    finally:
        _records.reset(token)


def decode(content: bytes, encoding: str | None = None) -> DecodedText:
    """Decode a text in an encoding, else in the one that its bytes show.

    Raises:
        UnicodeDecodeError: more than one byte and a tenth of those above 127 are bad.
    """
    detected = None if encoding else detect_encoding(content)
    name = encoding or detected or "utf-8"
    replaced = 0
    try:
        text = content.decode(name)
    except UnicodeDecodeError:
        text, replaced = replace_bad_bytes(content, name)
    text = _without_mark(text)
    if "\0" in text and not _has_many_nuls(content if detected is None else text.encode()):
        text, nuls = _NUL_CHARACTERS.subn(_REPLACEMENT, text)
        replaced += nuls
    return DecodedText(text, name, detected is not None, replaced)


def replace_bad_bytes(content: bytes, encoding: str) -> tuple[str, int]:
    """Decode a text in an encoding, with U+FFFD for a few bad bytes; return their number too.

    Raises:
        UnicodeDecodeError: more than one byte and a tenth of those above 127 are bad.
    """
    text = content.decode(encoding, "replace")
    intact = content.decode(encoding, "ignore")
    replaced = text.count(_REPLACEMENT) - intact.count(_REPLACEMENT)
    is_wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    high = len(content) if is_wide else len(content.translate(None, _ASCII_BYTES))
    bad = len(content) - len(intact.encode(encoding, "ignore"))
    if replaced > 1 and bad > (1 - _LEAST_VALID) * high:
        content.decode(encoding)
    return text, replaced
