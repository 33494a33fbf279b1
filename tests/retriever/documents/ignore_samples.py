"""Random trees of files with ignore files, made to meet the odd corners of patterns."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

_NAMES = [
    *(b"a", b"b", b"c", b"ab", b"ba", b"abc", b"A", b"aXb", b"a b", b"a ", b" a", b"c[1]", b"[ab]"),
    *(b"\xc3\xa9a", b"\xc3\xa9", b"\xff", b"a\tb", b"#a", b"!a", b"a\\b", b"\\", b"a*", b"1", b"-"),
    *(b"x-y", b"]", b"a]", b"~", b"{a,b}", b"a\r", b"a\x0b", b"zz"),
]
_ATOMS = [
    *(b"a", b"b", b"c", b"ab", b"A", b"1", b"-", b".", b".txt", b".md", b"~", b"{a,b}", b"(", b"$"),
    *(b"*", b"*", b"**", b"***", b"?", b"?", b"\\", b"\\a", b"\\*", b"\\[", b"\\/", b"\\ ", b" "),
    *(b"  ", b"\t", b"#", b"!", b"\r", b"\x0b", b"\xc3\xa9", b"\xc3", b"\xff", b"[", b"]"),
    *(b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[c-a]", b"[a-Z]", b"[]a]", b"[!]a]", b"[a-]", b"[-a]"),
    *(
        b"[\\]a]",
        b"[a\\-c]",
        b"[--0]",
        b"[+--]",
        b"[a/b]",
        b"[\xc3\xa9]",
        b"[\x80-\xff]",
        b"[a-\\c]",
    ),
    *(b"[[:alpha:]]", b"[[:digit:]x]", b"[[:upper:]]", b"[[:space:]]", b"[[:punct:]]"),
    *(b"[[:foo:]]", b"[[:alpha:]-z]", b"[:a:]", b"[[:a]", b"[[::]]", b"[[:]", b"[[:graph:]]"),
    *(b"[[:blank:][:cntrl:]]", b"[[:xdigit:]]", b"[![:alnum:]]", b"[[:lower:][:print:]]"),
]
_ENDS = [b" ", b"  ", b"\t", b"\r", b" \r", b"\\ ", b"\\", b"\0x"]


def _disguised(chance: random.Random, name: bytes) -> bytes:
    """A pattern that a name may match, made of the name."""
    rate = chance.choice([0.0, 0.1, 0.3])
    parts = []
    for byte in name:
        literal = bytes([byte])
        if chance.random() < rate:
            forms = [b"\\%b", b"[%b]", b"[^%b]", b"[%b-z]", b"[ -%b]"]
            wildcards = [b"*", b"?", b"", b"**", b"[!x]", b"[[:alpha:][:punct:]]", b"[![:digit:]]"]
            literal = chance.choice([*wildcards, *(form % literal for form in forms)])
        parts.append(literal)
    return b"".join(parts)


def _pattern(chance: random.Random, paths: Sequence[bytes]) -> bytes:
    names = chance.choice(paths).split(b"/")
    start = chance.choice([0, chance.randint(0, len(names) - 1)])
    stop = chance.choice([len(names), chance.randint(start + 1, len(names))])
    parts = [_disguised(chance, name) for name in names[start:stop]]
    if chance.random() < 0.4:
        parts[chance.randint(0, len(parts) - 1)] = b"".join(
            chance.choice(_ATOMS) for _ in range(chance.choice([1, 2, 3]))
        )
    if chance.random() < 0.2:
        parts[chance.randint(0, len(parts) - 1)] = b"**"
    if chance.random() < 0.2:
        parts.insert(chance.randint(0, len(parts)), b"**")
    pattern = b"/".join(parts)
    if chance.random() < 0.2:
        pattern = b"/" + pattern
    if chance.random() < 0.1:
        pattern += b"/"
    if chance.random() < 0.25:
        pattern = b"!" + pattern
    if chance.random() < 0.1:
        pattern += chance.choice(_ENDS)
    return pattern


def make_tree(root: Path, seed: int) -> list[bytes]:
    """Make files and ignore files below a new folder; returns the paths of the files."""
    chance = random.Random(seed)
    folders = [b""]
    for _ in range(chance.randint(1, 8)):
        above = chance.choice(folders)
        if above.count(b"/") < 5:
            folders.append(above + chance.choice(_NAMES) + b"/")
    names = {
        chance.choice(folders) + chance.choice(_NAMES) + chance.choice([b".txt", b".txt", b".md"])
        for _ in range(chance.randint(3, 25))
    }
    top = os.fsencode(root) + b"/"
    for folder in folders:
        os.makedirs(top + folder, exist_ok=True)
    paths = sorted(names)
    for name in paths:
        Path(os.fsdecode(top + name)).write_bytes(b"x")
    for folder in folders:
        below = [path.removeprefix(folder) for path in paths if path.startswith(folder)]
        if below and (not folder or chance.random() < 0.3):
            end = chance.choice([b"\n", b"\n", b"\r\n"])
            content = end.join(_pattern(chance, below) for _ in range(chance.randint(0, 6)))
            content += chance.choice([b"", end])
            content = chance.choice([b"", b"", b"\xef\xbb\xbf"]) + content
            Path(os.fsdecode(top + folder + b".gitignore")).write_bytes(content)
    return paths
