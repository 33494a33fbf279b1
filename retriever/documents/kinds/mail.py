"""E-mail by the standard library: one message, and mailboxes of many."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, Message
from email.utils import parseaddr, parsedate_to_datetime
from typing import BinaryIO, cast

from retriever.documents import Json
from retriever.documents.decoding import browser_encoding, page_text, text_of
from retriever.documents.kinds import OutlinedText, Parsed, PassedOverError, named, one_line
from retriever.documents.text import iso_date
from retriever.errors import SourceError

# Characters of a header that are read, and of one that says what a part is: the standard library
# takes quadratic time.
_LONGEST_HEADER = 1 << 14
_LONGEST_CONTENT = 1 << 11


class _BoundedPolicy(policy.EmailPolicy):
    """Reads the beginning of a long header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        is_content = name.lower().startswith("content-")
        return name, value[: _LONGEST_CONTENT if is_content else _LONGEST_HEADER]


_POLICY = _BoundedPolicy()


def read_mail(content: bytes) -> Parsed:
    """The text of a message (of its HTML if it has no other); attachments are named, not read."""
    message = message_from_bytes(content, policy=_POLICY)
    assert isinstance(message, EmailMessage)
    if not message.keys():
        raise SourceError("no e-mail: it begins with no header such as From: or Subject:")
    subject, sender = (one_line(_header(message, name)) for name in ("subject", "from"))
    date = _date(_header(message, "date"))
    parts = list(message.walk())
    files = [one_line(one.get_filename()) for one in parts if one.get_filename()]
    metadata: dict[str, Json] = named(
        **{"from": sender, "to": _header(message, "to"), "date": date},
        message_id=_header(message, "message-id"),
    )
    if files:
        metadata["attachments"] = list[Json](files)
    found = OutlinedText()
    name = parseaddr(sender)
    found.mark("message", one_line(f"{date[:10]} {name[0] or name[1] or sender}: {subject}"))
    for text in _texts(message):
        found.add(text)
    return found.parsed(subject or None, metadata)


def _texts(part: Message) -> list[str]:
    """The texts of a part that is no attachment; of alternatives the first that is not blank."""
    kind = part.get_content_type()
    if part.get_filename() or part.get_content_disposition() == "attachment":
        return []
    if kind in ("text/plain", "text/html"):
        raw = part.get_payload(decode=True)
        content = raw if isinstance(raw, bytes) else b""
        encoding = browser_encoding(part.get_content_charset())
        if kind == "text/plain":
            text = text_of(content, encoding)
        else:
            text = _text_of_page(page_text(content, encoding))
        return list(filter(None, [text.replace("\r\n", "\n").strip()]))
    if not (kind.startswith("multipart/") and part.is_multipart()):
        return []
    parts = cast("list[Message]", part.get_payload())
    if kind == "multipart/alternative":
        parts = sorted(parts, key=lambda one: one.get_content_type() != "text/plain")
        return next(filter(None, map(_texts, parts)), [])
    return [text for one in parts for text in _texts(one)]


def _text_of_page(page: str) -> str:
    try:
        from retriever.documents.kinds.html import read_blocks

        return read_blocks(page).parsed("").text
    except ImportError as error:
        raise PassedOverError(
            'its text is HTML, which needs trafilatura: pip install "layer-retriever[documents]"'
        ) from error


def _header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name) or "")
    except (ValueError, IndexError, AttributeError, TypeError, RecursionError):
        # What the standard library says of some malformed headers.
        return ""


def _date(header: str) -> str:
    try:
        return iso_date(parsedate_to_datetime(header).isoformat()) or ""
    except (ValueError, TypeError, IndexError):
        return ""


def messages(stream: BinaryIO, longest: int) -> Iterator[bytes]:
    """The messages of a mailbox, each after a line that begins with `From ` below a blank line."""
    parts: list[bytes] = []
    size, is_blank = -1, True
    while line := stream.readline(longest + 1):
        if line.startswith(b"From ") and is_blank:
            if size >= 0:
                yield b"".join(parts)
            parts, size = [], 0
        elif size < 0:
            raise SourceError("no mailbox: expected a first line that begins with `From `")
        elif size <= longest:
            quoted = line.startswith(b">") and line.lstrip(b">").startswith(b"From ")
            parts.append(line[1:] if quoted else line)
            size += len(line)
        is_blank = not line.strip()
    if size >= 0:
        yield b"".join(parts)
