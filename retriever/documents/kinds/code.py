"""Source code with its definitions, such as `class Index › def add`, as headings.

Without a grammar, definitions are recognized by their first line and end by indentation, in all
languages alike. So a definition is missed rather than made up: text in strings and comments defines
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from retriever.documents.kinds import Parsed
from retriever.documents.kinds.plain import numbered_lines, without_data
from retriever.documents.kinds.syntax import find_parsed_definitions
from retriever.documents.outline import Mark

_DEEPEST = 6
# Maximum length of a label in characters, and number of definitions of a file.
_LONGEST_LABEL = 100
_MOST_DEFINITIONS = 50_000
_MODIFIERS = (
    r"(?:(?:pub(?:\([a-z]{1,20}\))?|public|private|protected|internal|static|final|abstract|export"
    r"|default|async|unsafe|extern|inline|override|open|data|sealed|virtual|partial|readonly"
    r"|constexpr|explicit|synchronized)[ \t]+){0,6}"
)
_NAME = r"[A-Za-z_$][\w$]*"
# A line that begins a definition. Every alternative has its own group, which holds the label.
_DEFINITION = re.compile(
    rf"(?m)^[ \t]*+{_MODIFIERS}(?:"
    # Python, Ruby, Lua.
    r"(?P<python>def[ \t]+[A-Za-z_][\w.]*[?!=]?(?=[ \t]*(?:\(|$))|class[ \t]+\w+(?=[ \t]*[(:]))"
    r"|(?P<ruby>(?:class|module)[ \t]+[A-Z][\w:]*(?=[ \t]*(?:<[ \t]*[A-Z][\w:]*)?[ \t]*$))"
    # Types and modules in braces.
    rf"|(?P<type>(?:class|struct|interface|enum(?:[ \t]+class)?|trait|union|namespace|protocol"
    rf"|extension|object|record|mod)[ \t]+{_NAME}(?:::{_NAME})*)"
    r"(?=[^;(){}=\n]{0,200}(?:\([^;{}\n]{0,200}\))?[^;(){}=\n]{0,200}(?:\{|\n[ \t]*\{))"
    r"|(?P<implementation>impl(?:<[^{\n]{0,80}>)?[ \t]+[^{;\n]{1,120}?)(?=[ \t]*(?:where\b.*)?\{)"
    # Functions with a word for them.
    rf"|(?P<function>(?:fn|func|fun|function\*?)[ \t]+(?:\([^)\n]{{0,80}}\)[ \t]*)?{_NAME})"
    r"(?=[ \t]*[<(\[])"
    rf"|(?P<arrow>(?:const|let|var)[ \t]+{_NAME})(?=[ \t]*=[ \t]*(?:async[ \t]*)?"
    r"(?:function\b|\([^;\n]{0,200}\)[^;\n]{0,80}=>|\w+[ \t]*=>))"
    # Functions of C, Java and C#: a type, a name, and a body.
    r"|(?P<plain>[A-Za-z_][\w:<>,*&\[\] \t]{0,120}?[ \t*&]~?[A-Za-z_][\w:~]*)"
    r"(?=\([^;{}()\n]{0,300}\)[ \t]*(?:const|noexcept|throws[ \t][\w, .]{1,80}|override)?[ \t]*"
    r"(?:\{|\n[ \t]*\{)))"
)
_GO_RECEIVER = re.compile(r"\([^)\n]*\)[ \t]*")
_LAST_NAME = re.compile(r"~?[A-Za-z_][\w:~]*$")
# Words that begin no function.
_STATEMENT = re.compile(
    r"(?:if|for|while|switch|return|else|catch|do|new|throw|case|sizeof|using|typedef|delete|await"
    r"|yield|with|goto|elif|except|assert|in|not|and|or|package|import)\b"
)
# Parts of a text that define nothing: strings of several lines, and comments.
_UNREAD = re.compile(r'"""(?s:.)*?"""|\'\'\'(?s:.)*?\'\'\'|(?m:^[ \t]*/\*)(?s:.)*?\*/')
_LINE = re.compile(r"(?m)^([ \t]*)(\S.*)$")
# Lines at the indentation of a definition that belong to it: closing brackets, a brace below the
# first line, labels, and lines of the preprocessor.
_CONTINUED = re.compile(
    r"[})\]{]|end\b|#|//|/\*|\*|->|where\b|(?!(?:try|else|finally)\b)\w+:\s*$|rescue\b|ensure\b"
)
# Lines above a definition that belong to it: decorators, attributes and comments.
_ABOVE = re.compile(r"@|#(?!(?:if|else|end|include|define|pragma)\b)|//|/\*|\*|--|\[\[|template\b")
_TAB = 8


def read_code(text: str, suffix: str = "") -> Parsed:
    """Return source code with its definitions as headings, and the numbers of its lines.

    If the grammar for the suffix is installed, it tells the definitions.
    """
    source = without_data(text)

    def find_headings(body: str) -> Iterator[Mark]:
        return find_parsed_definitions(body, suffix) or find_definitions(body)

    return numbered_lines(source, source.text, find_headings=find_headings)


def find_definitions(text: str) -> Iterator[Mark]:
    """Yield a heading for each definition, and one without a label where code follows one."""
    labels = _find_labels(text)
    if not labels:
        return
    unread = [match.span() for match in _UNREAD.finditer(text)]
    # Indentation of each open definition.
    open_indents: list[int] = []
    above = -1
    next_unread = 0
    for match in _LINE.finditer(text):
        start = match.start()
        while next_unread < len(unread) and unread[next_unread][1] <= start:
            next_unread += 1
        if next_unread < len(unread) and unread[next_unread][0] < start:
            continue
        indent = len(match[1].expandtabs(_TAB))
        label = labels.get(start)
        if label is None and _ABOVE.match(match[2]):
            above = start if above < 0 else above
            continue
        begin = start if above < 0 else above
        above = -1
        is_continued = label is None and _CONTINUED.match(match[2]) is not None
        closed = 0
        while open_indents and indent <= open_indents[-1] and not is_continued:
            open_indents.pop()
            closed += 1
        if label is not None:
            open_indents.append(indent)
            yield Mark(begin, "heading", label, min(len(open_indents), _DEEPEST))
        elif closed:
            yield Mark(begin, "heading", "", min(len(open_indents) + 1, _DEEPEST))


def _find_labels(text: str) -> dict[int, str]:
    """Return the labels of definitions by the offsets of their lines."""
    labels: dict[int, str] = {}
    for match in _DEFINITION.finditer(text):
        kind = str(match.lastgroup)
        label = " ".join(match[kind].split())
        if kind == "plain":
            name = _LAST_NAME.search(label)
            if _STATEMENT.match(label) or name is None or name.start() == 0:
                continue
            label = name[0]
        elif kind == "function":
            label = _GO_RECEIVER.sub("", label)
        labels[match.start()] = label[:_LONGEST_LABEL]
        if len(labels) >= _MOST_DEFINITIONS:
            break
    return labels
