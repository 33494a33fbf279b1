"""Encodings of text: as given, as a byte-order mark says, UTF-8, or Windows-1252 by a rule."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress

from retriever.errors import ConfigError

# The longer ones first.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
WESTERN = "cp1252"
# What browsers read by these names (https://encoding.spec.whatwg.org/#names-and-labels), and ASCII,
# which says no more than none.
_WIDER = {
    "ascii": None,
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": WESTERN,
    "shift_jis": "cp932",
}
# Queries, judgments and data sets have no option.
REMEDY = "convert it to UTF-8, or give `--set encoding=NAME` if the command has that setting"
_LETTERS = rb"\xc0-\xd6\xd8-\xf6\xf8-\xff\x8a\x8c\x8e\x9a\x9c\x9e\x9f"
_LETTER = re.compile(rb"[%s]" % _LETTERS)
_CHARSET = re.compile(
    rb"(?i)<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,99}?encoding)\s*=\s*[\"']?([\w-]+)"
)
_ASCII = re.compile(rb"[A-Za-z]")
_IN_WORD = re.compile(rb"(?<=[A-Za-z])[%s]|[%s](?=[A-Za-z])" % (_LETTERS, _LETTERS))
# Sequences of UTF-8, and the first bytes of cut ones: capitals after small letters.
_SEQUENCES = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[a-z][\xc0-\xde]")
# What Windows-1252 does not have.
_NONE = re.compile(rb"[\x81\x8d\x8f\x90\x9d\0]")


def check_encoding(name: str | None) -> None:
    """Raise ConfigError for a name that is not one of an encoding of text."""
    try:
        "".encode(name or "utf-8")
    except (LookupError, UnicodeError, TypeError) as error:
        raise ConfigError(
            f"encoding: expected a name such as utf-8, cp1252, utf-16 or shift_jis, found {name!r}"
        ) from error


def not_in(encoding: str, error: UnicodeError) -> str:
    """What is wrong with bytes that are not in the encoding that they should be in."""
    return f"not {encoding}: {error}; {REMEDY}"


def encoding_of(head: bytes) -> str | None:
    """What the first bytes of a text show, if it is not UTF-8 and not unknown."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return None if name == "utf-8-sig" else name
    if head.isascii():
        return None
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head)
        return None
    # In a language of Western Europe letters with accents are few among the others, and most stand
    # within words. Other one-byte encodings have mostly such letters, and broken UTF-8 has
    # sequences of UTF-8.
    high, inside, sequences, letters = (
        len(one.findall(head)) for one in (_LETTER, _IN_WORD, _SEQUENCES, _ASCII)
    )
    few = 10 * sequences <= high <= 2 * inside and 2 * high <= letters
    return WESTERN if few and _NONE.search(head) is None else None


def page_text(content: bytes, name: str | None = None) -> str:
    """The text of a page in the encoding of a name, else in the one that it says it has itself."""
    said = _CHARSET.search(content[:4096])
    # A page in UTF-16 could not say so in ASCII.
    if name is None and said is not None and not said[1].lower().startswith(b"utf-16"):
        name = said[1].decode()
    return text_of(content, name)


def text_of(content: bytes, name: str | None) -> str:
    """A text in the encoding of a name, else in what `decoded` finds; bad bytes are replaced."""
    encoding, name = None, (name or "").lower().removeprefix("x-")
    with suppress(LookupError, ValueError):
        "".encode(name)
        found = codecs.lookup(name).name
        encoding = _WIDER.get(found, found)
    for one in (encoding, None):
        with suppress(UnicodeDecodeError):
            return decoded(content, one)[0]
    return decoded(content, encoding, "replace")[0]


def decoded(
    content: bytes, encoding: str | None = None, errors: str = "strict"
) -> tuple[str, str | None]:
    """A text, and the encoding that was found where none was given and it is not UTF-8."""
    found = None if encoding else encoding_of(content)
    text = content.decode(encoding or found or "utf-8", errors)
    return text.removeprefix("\ufeff"), found
