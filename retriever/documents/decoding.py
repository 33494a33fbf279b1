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
# What browsers read (https://encoding.spec.whatwg.org/#names-and-labels) by Python's names of the
# encodings. Others are not read in a page or a mail: Punycode takes quadratic time. ASCII says no
# more than no name.
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


def page_text(content: bytes, encoding: str | None = None) -> str:
    """The text of a page in an encoding, else in the one that it says it has itself."""
    declared = _CHARSET.search(content[:4096])
    # A page in UTF-16 could not say so in ASCII.
    if encoding is None and declared is not None and not declared[1].lower().startswith(b"utf-16"):
        encoding = browser_encoding(declared[1].decode())
    return text_of(content, encoding)


def browser_encoding(label: str | None) -> str | None:
    """The encoding that browsers read by a label of a page or a mail; None if it names none."""
    label = (label or "").strip().lower().removeprefix("x-")
    with suppress(LookupError, ValueError):
        return _BROWSER_ENCODINGS.get(codecs.lookup(_LABELS.get(label, label)).name)
    return None


def text_of(content: bytes, encoding: str | None) -> str:
    """A text in an encoding, else in what `decoded` finds; bad bytes are replaced."""
    for candidate in (encoding, None):
        with suppress(UnicodeDecodeError):
            return decoded(content, candidate)[0]
    return decoded(content, encoding, "replace")[0]


def decoded(
    content: bytes, encoding: str | None = None, errors: str = "strict"
) -> tuple[str, str | None]:
    """A text, and the encoding that was found where none was given and it is not UTF-8."""
    found = None if encoding else encoding_of(content)
    text = content.decode(encoding or found or "utf-8", errors)
    return text.removeprefix("\ufeff"), found
