"""Files whose suffix names no kind: mails, mailboxes, scripts and plain text, by first bytes.

Possible secrets, backup copies of editors, and data such as JSON are not read.
"""

from __future__ import annotations

import codecs
import os
import re
import zlib

from retriever.documents.kinds.mail import is_mail, is_mailbox

# Number of bytes at the beginning of a file that are inspected.
HEAD = 4096

# Names of text files, which may have an ending: README.de, LICENSE-MIT, Dockerfile.dev.
_TEXT_NAMES = """
appfile apkbuild authors berksfile brewfile bugs build buildfile caddyfile cakefile capfile
cartfile changelog changes codeowners configure containerfile contributing contributors copying
copyright credits dockerfile earthfile fastfile faq gemfile gnumakefile go guardfile hacking
history install jenkinsfile justfile kbuild kconfig lesser licence license licenses
maintainers makefile manifest matchfile meson news notice pipfile pkgbuild podfile
procfile puppetfile rakefile readme release releasing roadmap sconscript sconstruct security
snakefile support thanks tiltfile todo unlicense upgrading vagrantfile version workspace wscript
"""
_TEXT_STEMS = frozenset(_TEXT_NAMES.split())
_STEM = re.compile(r"[^.\-_ ]+")
_SUFFIX = re.compile(r"\.[a-z0-9_+-]{1,12}")
# Suffixes of files that are left out, whatever their names.
_OTHER_SUFFIXES = """
.asc .bak .csv .db .env .gpg .json .jsonl .key .lock .log .map .ndjson .netrc .old .orig .p12
.pem .pfx .pgp .ppk .rej .sig .sqlite .sum .swp .tmp .tsv .xml
"""
_LEFT_SUFFIXES = frozenset(_OTHER_SUFFIXES.split())
_SECRET_NAME = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519).*|(?:_?netrc|_?pgpass|htpasswd|g?shadow|(?:dot)?env"
    r"|(?:aws_?)?credentials?|secrets?|passwords?|tokens?|cookies?|keyring|kubeconfig|wallet"
    r"|.*_history)(?:\..*)?"
)
_SECRET_SIGNS = (
    b"PRIVATE KEY-----",
    b"PRIVATE KEY BLOCK-----",
    b"PuTTY-User-Key-File",
    b"AGE-SECRET-KEY-",
    b"$ANSIBLE_VAULT",
    b"aws_secret_access_key",
)
# A file that is a private key, whatever its name; a text may show one further below.
_PRIVATE_KEY = re.compile(
    rb"\s*(?:-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-)"
)
_NETRC = re.compile(rb"(?m)^[ \t]*(?:machine\s+\S+|default)\s+login\s")
# Lines in the history of Zsh and Bash, with the time of each command.
_HISTORY = re.compile(rb": \d{9,}:\d+;|#\d{9,}\r?\n")
# Names in a Maildir: time, number of the delivery, host, and flags once the mail was seen.
_MAILDIR = re.compile(
    r"(?:.*/)?(?:(?:cur|new)/[0-9]{9,}\.[^/.]+\.[^/]+|[0-9]{9,}\.[^/]+[:;!]2,[a-z]*)"
)
_UNFINISHED_MAIL = re.compile(r"(?:.*/)?tmp/[0-9]{9,}\.[^/.]+\.[^/]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# JSON, XML, RTF and PostScript.
_DATA = re.compile(
    rb"\s*(?:\{\s*[\"\\}]|\[\s*[\[{\"\d]|<[?!]|<svg\b|<[A-Za-z][\w:.-]*(?:\s[^<>]*)?>|%!PS)"
)
# A run of 1,000 ASCII characters without a space is base64 or similar.
_LONG_WORD = re.compile(rb"(?<![!-~])[!-~]{1000}")
_PAGE = re.compile(rb"(?i)\s*<(?:!doctype html|html)\b")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP = b"\x1f\x8b"


def head_of(path: str | os.PathLike[str]) -> bytes:
    """Return the first bytes of a plain file, decompressed; raises OSError."""
    with open(path, "rb", buffering=0) as file:
        head = file.read(HEAD)
    if head.startswith(_GZIP):
        try:
            return zlib.decompressobj(31).decompress(head, HEAD)
        except zlib.error:
            return b""
    return head


def is_maildir_file(path: str) -> bool:
    """Return whether a path, in lower case, is that of a message in a Maildir."""
    return _is_delivery(path) and _MAILDIR.fullmatch(path) is not None


def is_unfinished_mail(path: str) -> bool:
    """Return whether a path, in lower case, is that of a message still being delivered."""
    return _is_delivery(path) and _UNFINISHED_MAIL.fullmatch(path) is not None


def name_exclusion(path: str) -> str | None:
    """Return the group, such as a suffix, under which a file is left out for its name.

    `path`, in lower case, has no suffix of a kind. None if the first bytes decide.
    """
    if is_unfinished_mail(path):
        return "unfinished mails"
    name = path[path.rfind("/") + 1 :]
    suffix = _suffix(name)
    if suffix and (suffix in _LEFT_SUFFIXES or not has_text_name(name)):
        return suffix
    if name.endswith(("~", "#")):
        return "backup copies"
    if _SECRET_NAME.fullmatch(name):
        return "possible secrets"
    return None


def _is_delivery(path: str) -> bool:
    """Return whether a name begins with digits, as all names in a Maildir do."""
    return path[path.rfind("/") + 1 :][:9].isdigit()


def is_binary(head: bytes) -> bool:
    """Return whether the first bytes of a file hold a NUL and no byte-order mark of UTF-16."""
    return b"\0" in head and not head.startswith(_UTF16)


def is_private_key(head: bytes) -> bool:
    """Return whether a file begins as a private key does."""
    return _PRIVATE_KEY.match(head) is not None


def has_text_name(path: str) -> bool:
    """Return whether a path, in lower case, has a name such as README or Makefile.am."""
    stem = _STEM.match(path, path.rfind("/") + 1)
    return stem is not None and stem[0] in _TEXT_STEMS


def kind_of_head(path: str, head: bytes) -> str | None:
    """Return the kind that the first bytes of a file show; None if it is not read.

    `path`, in lower case, has no `name_exclusion`.
    """
    if is_mailbox(head):
        return "mbox"
    if is_mail(head):
        return "mail"
    if head.startswith(b"%PDF-"):
        return "pdf"
    if _PAGE.match(head):
        return "html"
    return "text" if head_exclusion(path, head) is None else None


def head_exclusion(path: str, head: bytes) -> str | None:
    """Return the group under which a file is left out for its first bytes; None for text."""
    is_named = has_text_name(path)
    if not head.strip():
        return None if is_named else "empty without a suffix"
    if head.startswith(_UTF16):
        return None
    if _CONTROL.search(head) or not (is_named or _is_utf8(head)):
        return _suffix(path) or "binary without a suffix"
    if _has_secret(head):
        return "possible secrets"
    if _DATA.match(head) or _LONG_WORD.search(head):
        return "data without a suffix"
    return None


def _suffix(path: str) -> str:
    suffix = os.path.splitext(path)[1]
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def _has_secret(head: bytes) -> bool:
    is_netrc = b"login" in head and _NETRC.search(head) is not None
    return (
        is_netrc or _HISTORY.match(head) is not None or any(map(head.__contains__, _SECRET_SIGNS))
    )


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
