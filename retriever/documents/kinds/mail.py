"""E-mail: a message with its parts and inner messages, and mailboxes of many messages.

The standard library parses the headers. The parts are divided here, since its parser fails on
deeply nested parts and loses the text of a multipart whose boundary is missing.
"""

from __future__ import annotations

import html
import os
import re
from binascii import a2b_base64, a2b_qp
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from email import policy
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import parseaddr, parsedate_to_datetime
from functools import cached_property
from typing import BinaryIO

from retriever.documents.dates import iso_date
from retriever.documents.decoding import browser_encoding, page_text, text_of
from retriever.documents.document import Json
from retriever.documents.kinds import (
    Attachment,
    OutlinedText,
    Parsed,
    PassedOverError,
    nonempty_metadata,
    one_line,
)
from retriever.documents.losses import Loss
from retriever.errors import SourceError

# Maximum length in characters of a header, and of a header `content-…`. The standard library takes
# quadratic time for them.
_LONGEST_HEADER = 1 << 14
_LONGEST_CONTENT = 1 << 11
# Maximum depth of parts and messages within each other, and number of parts of a message.
_DEEPEST = 50
_MOST_PARTS = 10_000
# Maximum number of attachments that may become documents, their bytes in all, and the length of a
# name in characters.
_MOST_FILES = 1000
_MOST_ATTACHED_BYTES = 1 << 26
_LONGEST_NAME = 200
# Maximum number of different losses that are reported of a message.
_MOST_LOSSES = 10
# Limits for alternatives. The share of its words that an alternative may have alone and still be
# left out. The words of a notice such as "view this mail in your browser". The characters that are
# compared.
_MOST_LACKING = 1 / 3
_NOTICE_WORDS = 40
_LONGEST_COMPARED = 1 << 20
# Bytes in which the first header is searched for.
_LONGEST_PREFACE = 1 << 12

_MAIL_HEADERS = (
    rb"(?:from|to|cc|bcc|subject|date|sender|reply-to|message-id|in-reply-to|references|received|"
    rb"return-path|delivered-to|envelope-to|mime-version|importance|priority|status|"
    rb"(?:arc|authentication|content|dkim|domainkey|list|resent|thread|x)-[!-9;-~]+)[ \t]*:"
)
_HEADER = rb"[!-9;-~]+[ \t]*:"
# White space, a byte-order mark, and the lines above a message in a mailbox.
_PREFACE = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n]|>*From [^\r\n]*(?:[\r\n]|\Z))*+")
_FIRST_HEADER = re.compile(_HEADER)
_FIRST_HEADERS = re.compile(rb"(?im)^%s.*\n(?:[ \t].*\n)*+%s" % (_MAIL_HEADERS, _MAIL_HEADERS))
_MAIL_HEADER = re.compile(_MAIL_HEADERS, re.IGNORECASE)
_BLANK_LINE = re.compile(rb"^\r?\n", re.MULTILINE)
# Mail of macOS writes the length of the message above it, and data of its own below.
_LENGTH = re.compile(rb"\s*([0-9]{1,10})[ \t]*\r?\n")
# The line above a message in a mailbox, with its date.
_ENVELOPE = re.compile(rb"From .*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? .*\d:\d\d")
_MAILBOX = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*From [^\n]*\n(?:>From [^\n]*\n)?(?i:%s)" % _MAIL_HEADERS
)
_SENDER = re.compile(rb"(?im)^(?:from|sender|return-path)[ \t]*:")
_ANY_BOUNDARY = re.compile(rb"(?im)^--([^\r\n]{1,200}?)[ \t]*\r?\ncontent-[a-z-]+:")
_BASE64_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_BAD_QUOTED = re.compile(rb"=(?![0-9A-Fa-f]{2}|[ \t]*(?:\r?\n|\Z))")
_ENCODED_WORD = re.compile(r"=\?([\w-]{1,40})(?=[?*])")
_UUENCODED = ("x-uuencode", "uuencode", "uue", "x-uue")
_ENRICHED = re.compile(r"(?is)<param>.*?(?:</param>|\Z)|<(?!<)[^<>]*>")
_ARMORED = re.compile(r"(?s)-----BEGIN PGP MESSAGE-----.*?(?:-----END PGP MESSAGE-----|\Z)")
_PAGE = re.compile(r"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_MESSAGE_TYPES = ("message/rfc822", "message/global", "message/news")
_CALENDAR_TYPES = ("text/calendar", "text/x-vcalendar")
# Types of text that is data, and is listed as an attachment.
_DATA_TYPES = ("text/rtf", "text/vcard", "text/x-vcard", "text/directory", "text/css")
_MEDIA_TYPES = ("image/", "audio/", "video/", "font/")
_MARKUP = re.compile(r"(?is)<(style|script|title)\b.*?(?:</\1\b|\Z)|<!--.*?(?:-->|\Z)|<[^<>]*>?")
_ADDRESS = re.compile(r"(?i)(?:https?:|www\.)\S+")
# A word; in scripts without spaces each character counts as a word.
_WORD = re.compile("[0-9a-z\u00c0-\u0dff]+|[\u0e00-\U0010ffff]")
_CALENDAR_LINE = re.compile(r'([A-Za-z-]++)((?:;(?:[^:"]|"[^"]*+")*+)?+):(.*)')
_CALENDAR_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_CALENDAR_PARTS = ("VEVENT", "VTODO", "VJOURNAL")
_CALENDAR_LABELS = {
    "SUMMARY": "Summary",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "LOCATION": "Location",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "DESCRIPTION": "Description",
    "COMMENT": "Comment",
}
_HEADER_FAULTS = (ValueError, IndexError, AttributeError, TypeError, KeyError, RecursionError)


class _BoundedPolicy(policy.EmailPolicy):
    """A policy that reads the beginning of a long header, and bytes of a header as text."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        is_content = name.lower().startswith("content-")
        value = value[: _LONGEST_CONTENT if is_content else _LONGEST_HEADER]
        if not value.isascii():
            value = text_of(value.encode(errors="surrogateescape"), None)
        return name, _ENCODED_WORD.sub(_browser_name, value)


def _browser_name(start: re.Match[str]) -> str:
    """Return the beginning of an encoded word with the encoding that browsers use for its name."""
    return f"=?{browser_encoding(start[1]) or start[1]}"


_PARSER = BytesHeaderParser(policy=_BoundedPolicy())


def read_mail(content: bytes) -> Parsed:
    """Return the text of a message and its inner messages, with the files attached to it."""
    message = _MailPart(_from_first_header(_without_data(content)))
    if not message.is_message:
        raise SourceError("no e-mail: it begins with no header such as From: or Subject:")
    reader = _MessageReader()
    leaves = reader.read_leaves(message, 0)
    reader.write(message, leaves)
    metadata: dict[str, Json] = nonempty_metadata(
        **{"from": message.sender, "to": message.header("to"), "date": message.date},
        message_id=message.header("message-id"),
    )
    if reader.attachments:
        metadata["attachments"] = list[Json](reader.attachments)
    parsed = reader.text.parsed(message.subject or None, metadata)
    return parsed._replace(losses=reader.losses(), attachments=tuple(reader.files))


def is_mail(head: bytes) -> bool:
    """Return whether the first bytes of a file are headers of a mail, including a sender."""
    preface = _PREFACE.match(head)
    head = head if preface is None else head[preface.end() :]
    end = _BLANK_LINE.search(head)
    headers = head if end is None else head[: end.start()]
    return _FIRST_HEADERS.match(headers) is not None and _SENDER.search(headers) is not None


def is_mailbox(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a mailbox."""
    return _MAILBOX.match(head) is not None


def messages(stream: BinaryIO, longest: int) -> Iterator[bytes]:
    """Yield the messages of a mailbox, cut after `longest` bytes and one line.

    A message follows a line that begins with `From ` after a blank line. Such a line is text if it
    has no time and no header below it.
    """
    parts: list[bytes] = []
    size = -1
    is_blank = True
    line = stream.readline(longest + 1).removeprefix(b"\xef\xbb\xbf")
    while line:
        following = stream.readline(longest + 1)
        is_start = line.startswith(b"From ") and is_blank
        if is_start and (
            size < 0 or _ENVELOPE.match(line[:200]) or _MAIL_HEADER.match(following[:200])
        ):
            if size >= 0:
                yield b"".join(parts)
            parts = []
            size = 0
        elif size < 0 and line.strip():
            raise SourceError("no mailbox: expected a first line that begins with `From `")
        elif 0 <= size <= longest:
            is_quoted = line.startswith(b">") and line.lstrip(b">").startswith(b"From ")
            parts.append(line[1:] if is_quoted else line)
            size += len(line)
        is_blank = not line.strip()
        line = following
    if size >= 0:
        yield b"".join(parts)


def _without_data(content: bytes) -> bytes:
    """Return a message without the data that Mail of macOS appends."""
    length = _LENGTH.match(content)
    if length is not None:
        end = length.end() + int(length[1])
        if content[end : end + 100].lstrip().startswith(b"<?xml"):
            return content[length.end() : end]
    return content


def _from_first_header(content: bytes) -> bytes:
    """Return a message from its first header on; without one, all but what may precede it."""
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    preface = _PREFACE.match(content)
    start = 0 if preface is None else preface.end()
    if _FIRST_HEADER.match(content, start) is None:
        # Text before the headers, such as the answer of a server.
        headers = _FIRST_HEADERS.search(content[start : start + _LONGEST_PREFACE])
        start += 0 if headers is None else headers.start()
    return content[start:]


class _MailPart:
    """A message or a part of one: its headers and the bytes below them."""

    def __init__(self, content: bytes, default_type: str = "text/plain") -> None:
        end = _BLANK_LINE.search(content)
        head = content if end is None else content[: end.start()]
        self.headers = _PARSER.parsebytes(head)
        self.headers.set_default_type(default_type)
        # Lines after the headers without a blank line between.
        rest = self._read_rest()
        body = b"" if end is None else content[end.end() :]
        self.body = rest + content[end.start() :] if rest and end is not None else rest or body
        self.type = self.call("get_content_type") or default_type
        self.file_name = one_line(self.call("get_filename"))
        self.is_attachment = self.call("get_content_disposition") == "attachment"

    def _read_rest(self) -> bytes:
        """Return the lines that follow the headers, as they are in the file."""
        headers = copy(self.headers)
        # Without these fields nothing is decoded.
        for name in ("content-transfer-encoding", "content-type"):
            del headers[name]
        return bytes(headers.get_payload(decode=True) or b"")

    def header(self, name: str) -> str:
        """Return a header; empty if it is missing or cannot be parsed."""
        return self.call("get", name)

    def call(self, method: str, *arguments: str) -> str:
        """Return the result of a method of the headers; empty where these cannot be parsed."""
        try:
            return str(getattr(self.headers, method)(*arguments) or "")
        except _HEADER_FAULTS:
            return ""

    @property
    def is_message(self) -> bool:
        """Whether the part has a header of mails."""
        names = (f"{name}:".encode(errors="replace") for name in self.headers)
        return any(map(_MAIL_HEADER.match, names))

    @cached_property
    def subject(self) -> str:
        return one_line(self.header("subject"))

    @cached_property
    def sender(self) -> str:
        return one_line(self.header("from"))

    @cached_property
    def date(self) -> str:
        """The date in UTC in ISO 8601; empty if there is none."""
        try:
            return iso_date(parsedate_to_datetime(self.header("date")).isoformat()) or ""
        except (ValueError, TypeError, IndexError, OverflowError):
            return ""

    @cached_property
    def label(self) -> str:
        """Day, sender and subject."""
        name, address = parseaddr(self.sender)
        return one_line(f"{self.date[:10]} {name or address or self.sender}: {self.subject}")

    def split_multipart(self) -> list[bytes]:
        """Return the parts of a multipart; empty if no boundary divides it."""
        boundary = self.call("get_boundary").encode(errors="surrogateescape")
        borders = _find_boundaries(self.body, boundary)
        if not borders and (line := _ANY_BOUNDARY.search(self.body)):
            borders = _find_boundaries(self.body, line[1].removesuffix(b"--"))
        starts = [*(border.start() for border in borders[1:]), len(self.body)]
        return [
            self.body[border.end() : start]
            for border, start in zip(borders, starts, strict=False)
            if border[1] is None
        ]


def _find_boundaries(body: bytes, boundary: bytes) -> list[re.Match[bytes]]:
    if not boundary:
        return []
    return [*re.finditer(rb"(?m)^--%s(--)?[ \t]*\r?(?:\n|\Z)" % re.escape(boundary), body)]


@dataclass(frozen=True, slots=True)
class _MailText:
    """A text of a message: plain text, a page of HTML, or a calendar."""

    text: str
    form: str = "plain"

    @property
    def words(self) -> set[str]:
        """The different words, without markup and addresses."""
        return _words(self.text, is_page=self.form == "page")


@dataclass(frozen=True, slots=True)
class _ForwardedMessage:
    """A message within another."""

    message: _MailPart
    leaves: list[_MailText | _ForwardedMessage]

    @property
    def words(self) -> set[str]:
        """The different words of its texts and its subject."""
        return _all_words([_MailText(self.message.subject), *self.leaves])


_Leaf = _MailText | _ForwardedMessage


class _MessageReader:
    """Reads the texts of a message, and writes them with the names of its attachments."""

    def __init__(self) -> None:
        self.text = OutlinedText()
        self.attachments: list[str] = []
        self.files: list[Attachment] = []
        self._bytes_left = _MOST_ATTACHED_BYTES
        self._losses: Counter[str] = Counter()
        self._parts = 0
        # Label of the message whose text was written last.
        self._label: str | None = None

    def losses(self) -> tuple[Loss, ...]:
        """Return the parts that could not be read."""
        details = [
            f"{detail} ({count:,} times)" if count > 1 else detail
            for detail, count in self._losses.items()
        ]
        return tuple(Loss("parts", detail) for detail in details[:_MOST_LOSSES])

    def read_leaves(self, part: _MailPart, level: int) -> list[_Leaf]:
        """Return the texts and inner messages of a part in order."""
        self._parts += 1
        if level > _DEEPEST or self._parts > _MOST_PARTS:
            where = f"deeper than {_DEEPEST} levels"
            if level <= _DEEPEST:
                where = f"after the first {_MOST_PARTS:,}"
            self._losses[f"parts {where} are not read"] += 1
            return []
        if part.type.startswith("multipart/"):
            return self._read_multipart(part, level)
        if part.type in _MESSAGE_TYPES or part.file_name.lower().endswith(".eml"):
            message = _MailPart(_from_first_header(self._decode_transfer(part)))
            if message.is_message:
                if part.file_name:
                    self.attachments.append(part.file_name)
                return [_ForwardedMessage(message, self.read_leaves(message, level + 1))]
        is_text = part.type.startswith(("text/", "message/")) and part.type not in _DATA_TYPES
        if is_text and not part.is_attachment:
            return self._read_text(part, self._decode_transfer(part))
        self._list_attachment(part)
        return []

    def _read_multipart(self, part: _MailPart, level: int) -> list[_Leaf]:
        contents = part.split_multipart()
        if not contents:
            part.body = self._decode_transfer(part)
            contents = part.split_multipart()
        if not contents:
            return self._read_text(part, part.body)
        if part.type == "multipart/encrypted":
            self._losses["its text is encrypted (PGP)"] += 1
        is_digest = part.type == "multipart/digest"
        default = "message/rfc822" if is_digest else "text/plain"
        branches: list[list[_Leaf]] = []
        for content in contents:
            if self._parts > _MOST_PARTS:
                break
            inner = _MailPart(content, default)
            if is_digest and (inner.sender or inner.subject):
                # A digest without blank lines above its messages.
                inner = _MailPart(content)
                branches.append([_ForwardedMessage(inner, self.read_leaves(inner, level + 1))])
            else:
                branches.append(self.read_leaves(inner, level + 1))
        if part.type == "multipart/alternative":
            return _choose_alternative(branches)
        return [leaf for branch in branches for leaf in branch]

    def _read_text(self, part: _MailPart, content: bytes) -> list[_Leaf]:
        encoding = browser_encoding(part.call("get_content_charset"))
        if part.type == "text/html":
            text = page_text(content, encoding)
        else:
            text = text_of(content, encoding)
        if part.type in ("text/enriched", "text/richtext"):
            text = _ENRICHED.sub("", text).replace("<<", "<")
        if not text.strip():
            return []
        if part.type in _CALENDAR_TYPES:
            return [_MailText(text, "calendar")]
        is_page = part.type.endswith("html") or _PAGE.match(text)
        return [_MailText(text, "page" if is_page else "plain")]

    def _list_attachment(self, part: _MailPart) -> None:
        """List a part that is not read, by name or type, and report text hidden in it."""
        name = part.file_name
        subtype = part.type.rpartition("/")[2].removeprefix("x-")
        if subtype == "pkcs7-mime" or name.lower() == "smime.p7m":
            is_signed = "signed" in part.header("content-type").lower()
            how = "within its signature" if is_signed else "encrypted"
            self._losses[f"{name or part.type}: its text is {how} (S/MIME)"] += 1
        elif subtype == "ms-tnef" or name.lower() == "winmail.dat":
            self._losses[f"{name or part.type}: Outlook's own format (TNEF) is not read"] += 1
        is_control = subtype.endswith(("-signature", "pgp-encrypted"))
        is_inline = part.type.startswith("image/") and not part.is_attachment
        if name or not (is_control or is_inline):
            self.attachments.append(name or part.type)
        if name and not is_control and not part.type.startswith(_MEDIA_TYPES):
            self._keep_file(name, part)

    def _keep_file(self, name: str, part: _MailPart) -> None:
        """Keep the bytes of an attachment, which may be a document of its own."""
        if len(self.files) >= _MOST_FILES:
            self._losses[f"attachments after the first {_MOST_FILES:,} are not read"] += 1
            return
        content = self._decode_transfer(part)
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            limit = f"{_MOST_ATTACHED_BYTES >> 20} MiB"
            self._losses[f"attachments of more than {limit} in all are not read"] += 1
            return
        name = name.replace("/", "_").replace("\\", "_")[:_LONGEST_NAME]
        stem, suffix = os.path.splitext(name)
        names = {file.name for file in self.files}
        number = 2
        while name in names:
            name = f"{stem} ({number}){suffix}"
            number += 1
        self.files.append(Attachment(name, content))

    def _decode_transfer(self, part: _MailPart) -> bytes:
        """Return the bytes of a part without their transfer encoding, as far as possible."""
        encoding = "".join(part.header("content-transfer-encoding").lower().split()[:1])
        body = part.body
        if encoding == "base64":
            return self._from_base64(body)
        if encoding == "quoted-printable":
            if _BAD_QUOTED.search(body):
                self._losses["damaged quoted-printable is read as it stands"] += 1
            return a2b_qp(re.sub(rb"=[ \t]++(?=\r?\n)", b"=", body))
        if encoding in _UUENCODED:
            message = Message()
            message["Content-Transfer-Encoding"] = encoding
            message.set_payload(body.decode("ascii", "surrogateescape"))
            decoded = message.get_payload(decode=True)
            if isinstance(decoded, bytes) and decoded != body:
                return decoded
            self._losses["damaged uuencoded text is read as it stands"] += 1
        return body

    def _from_base64(self, body: bytes) -> bytes:
        lines = [line for line in map(bytes.strip, body.splitlines()) if line]
        sound = [line for line in lines if _BASE64_LINE.fullmatch(line)]
        if 2 * len(sound) < len(lines):
            self._losses["text that is no base64, as it should be, is read as it stands"] += 1
            return body
        # Padding may occur within, where texts were joined.
        groups = [group for group in re.split(rb"=+", b"".join(sound)) if group]
        decoded = []
        for group in groups:
            length = len(group) - (len(group) % 4 == 1)
            decoded.append(a2b_base64(group[:length] + b"=" * (-length % 4)))
        is_cut = bool(groups) and len(groups[-1]) % 4 > 0 and not sound[-1].endswith(b"=")
        if is_cut or len(sound) < len(lines):
            self._losses["damaged base64 is read in part"] += 1
        return b"".join(decoded)

    def write(self, message: _MailPart, leaves: Iterable[_Leaf]) -> None:
        """Add the texts of a message, with a mark where it begins or continues."""
        for leaf in leaves:
            if isinstance(leaf, _ForwardedMessage):
                inner = leaf.message
                lines = {"Subject": inner.subject, "From": inner.sender, "Date": inner.date}
                heading = "\n".join(f"{name}: {line}" for name, line in lines.items() if line)
                self._add_block(inner, heading)
                self.write(inner, leaf.leaves)
            else:
                self._add_block(message, self._plain_text(leaf))

    def _add_block(self, message: _MailPart, block: str) -> None:
        if not block:
            return
        if message.label != self._label:
            self._label = message.label
            self.text.mark("message", message.label)
        self.text.add(block)

    def _plain_text(self, leaf: _MailText) -> str:
        if leaf.form == "calendar":
            text = "\n".join(
                _calendar_lines(leaf.text, _words(self.text.text[-_LONGEST_COMPARED:]))
            )
        elif leaf.form == "page":
            text = self._page_text(leaf.text)
        else:
            text, count = _ARMORED.subn("", leaf.text)
            if count:
                self._losses["its text is encrypted (PGP)"] += 1
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()

    def _page_text(self, page: str) -> str:
        try:
            from retriever.documents.kinds.html import read_blocks

            return read_blocks(page).parsed("").text
        except ImportError as error:
            raise PassedOverError(
                "its text is HTML, which needs trafilatura: "
                'pip install "layer-retriever[documents]"'
            ) from error
        except SourceError as error:
            self._losses[f"a page is not read: {error}"] += 1
            return ""


def _choose_alternative(branches: list[list[_Leaf]]) -> list[_Leaf]:
    """Return the plain text, or an alternative with many more words; calendars in any case."""
    calendars: list[_Leaf] = []
    texts = []
    for branch in branches:
        is_calendar = any(
            isinstance(leaf, _MailText) and leaf.form == "calendar" for leaf in branch
        )
        if is_calendar:
            calendars += branch
        elif branch:
            texts.append(branch)
    texts.sort(key=_has_page)
    leaves: list[_Leaf] = texts[0] if texts else []
    words = _all_words(leaves)
    for branch in texts[1:]:
        own = _all_words(branch)
        if len(own - words) <= _MOST_LACKING * len(own):
            continue
        rest = len(words - own)
        if rest > max(_NOTICE_WORDS, _MOST_LACKING * len(words)):
            # Each has many words that the other lacks.
            leaves = [*leaves, *branch]
            words |= own
        else:
            leaves = branch
            words = own
    return [*leaves, *calendars]


def _has_page(leaves: Iterable[_Leaf]) -> bool:
    return any(isinstance(leaf, _MailText) and leaf.form == "page" for leaf in leaves)


def _all_words(leaves: Iterable[_Leaf]) -> set[str]:
    return set().union(*(leaf.words for leaf in leaves))


def _words(text: str, *, is_page: bool = False) -> set[str]:
    """Return the different words of a text without web addresses, and of a page without markup."""
    text = text[:_LONGEST_COMPARED]
    if is_page:
        text = html.unescape(_MARKUP.sub(" ", text))
    return set(_WORD.findall(_ADDRESS.sub(" ", text).lower()))


def _calendar_lines(calendar: str, words: set[str]) -> Iterator[str]:
    """Yield the event, time, place and people of a calendar, if some words lack them."""
    open_components: list[str] = []
    for line in re.sub(r"\r?\n[ \t]", "", calendar).splitlines():
        match = _CALENDAR_LINE.match(line)
        if match is None:
            continue
        name = match[1].upper()
        options = match[2]
        value = match[3]
        if name == "BEGIN":
            open_components.append(value.strip().upper())
        elif name == "END":
            open_components = open_components[:-1]
        elif (
            name in _CALENDAR_LABELS and open_components and open_components[-1] in _CALENDAR_PARTS
        ):
            value = _calendar_value(options, value)
            if not _words(value) <= words:
                yield f"{_CALENDAR_LABELS[name]}: {value}"


def _calendar_value(options: str, value: str) -> str:
    """Return a value of a calendar as people write it."""
    if date := _CALENDAR_DATE.fullmatch(value.strip()):
        zone = re.search(r'(?i);TZID="?([^;:"]*)', options)
        time = f" {date[4]}:{date[5]} {'UTC' if date[6] else zone[1] if zone else ''}"
        return f"{date[1]}-{date[2]}-{date[3]}{time if date[4] else ''}".rstrip()
    name = re.search(r'(?i);CN=(?:"([^"]*)"|([^;:]*))', options)
    address = re.sub("(?i)^mailto:", "", value)
    if name is not None:
        return f"{name[1] or name[2]} {address}"
    return re.sub(r"\\([nN])|\\(.)", lambda sign: "\n" if sign[1] else sign[2], address)
