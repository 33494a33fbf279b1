"""Definitions of source code by tree-sitter, with the grammars of the extra `code`."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retriever.documents.outline import Mark

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

# Maximum length of a text in characters; longer ones are generated.
_LONGEST_TEXT = 1 << 20
_LONGEST_LABEL = 100
# Brackets, and how many may be open.
_OPENING = tuple(b"([{")
_CLOSING = tuple(b")]}")
_MOST_BRACKETS = 300
# Seconds for a text, and bytes that are parsed at once.
_SECONDS = 3.0
_CHUNK = 1 << 16
_DEEPEST = 6


class _Grammar(NamedTuple):
    """A grammar: its package, its function, and the words of its kinds of definitions."""

    package: str
    function: str
    # By type of node; an empty word stands for a name alone.
    words: dict[str, str]


# Only where its value is a function.
_VARIABLE = "variable_declarator"
_TYPES = {
    "class_declaration": "class",
    "interface_declaration": "interface",
    "enum_declaration": "enum",
    "struct_declaration": "struct",
    "record_declaration": "record",
    "namespace_declaration": "namespace",
    "method_declaration": "",
    "constructor_declaration": "",
}
_SCRIPT = {
    "class_declaration": "class",
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "method_definition": "",
    _VARIABLE: "const",
}
_C = {"function_definition": "", "struct_specifier": "struct", "enum_specifier": "enum"}
_CPP = {**_C, "class_specifier": "class", "namespace_definition": "namespace"}
_RUST = {
    "function_item": "fn",
    "struct_item": "struct",
    "enum_item": "enum",
    "trait_item": "trait",
    "impl_item": "impl",
    "mod_item": "mod",
}
_TYPED = {**_SCRIPT, "interface_declaration": "interface", "abstract_class_declaration": "class"}
_GRAMMARS: tuple[tuple[str, _Grammar], ...] = (
    (
        ".py .pyi .pyw",
        _Grammar(
            "tree_sitter_python",
            "language",
            {"function_definition": "def", "class_definition": "class"},
        ),
    ),
    (".js .jsx .mjs", _Grammar("tree_sitter_javascript", "language", _SCRIPT)),
    (".ts .mts", _Grammar("tree_sitter_typescript", "language_typescript", _TYPED)),
    (".tsx", _Grammar("tree_sitter_typescript", "language_tsx", _TYPED)),
    (".java", _Grammar("tree_sitter_java", "language", _TYPES)),
    (".cs", _Grammar("tree_sitter_c_sharp", "language", _TYPES)),
    (".c", _Grammar("tree_sitter_c", "language", _C)),
    # Headers of C parse as C++ does.
    (".h .hh .hpp .hxx .cc .cpp .cxx", _Grammar("tree_sitter_cpp", "language", _CPP)),
    (
        ".go",
        _Grammar(
            "tree_sitter_go",
            "language",
            {"function_declaration": "func", "method_declaration": "func", "type_spec": "type"},
        ),
    ),
    (".rs", _Grammar("tree_sitter_rust", "language", _RUST)),
    (
        ".rb .rake .gemspec",
        _Grammar(
            "tree_sitter_ruby", "language", {"method": "def", "class": "class", "module": "module"}
        ),
    ),
)
_BY_SUFFIX = {suffix: grammar for suffixes, grammar in _GRAMMARS for suffix in suffixes.split()}
# Types of nodes around a definition that belong to it, and above it.
_WRAPPERS = (
    "lexical_declaration",
    "decorated_definition",
    "export_statement",
    "template_declaration",
    "type_declaration",
)
_ABOVE = ("comment", "line_comment", "block_comment", "attribute_item", "decorator")


def has_grammar(suffix: str) -> bool:
    """Return whether a grammar for files of a suffix is installed."""
    grammar = _BY_SUFFIX.get(suffix)
    return grammar is not None and _is_installed(grammar.package)


@cache
def _is_installed(package: str) -> bool:
    return find_spec("tree_sitter") is not None and find_spec(package) is not None


def find_parsed_definitions(text: str, suffix: str) -> Iterator[Mark] | None:
    """Return headings as `find_definitions` of `code` does; None without a grammar for a suffix."""
    if not has_grammar(suffix) or len(text) > _LONGEST_TEXT:
        return None
    grammar = _BY_SUFFIX[suffix]
    parser, query = _loaded(suffix)
    from tree_sitter import QueryCursor

    content = text.encode("utf-8", "replace")
    tree = None if _is_too_deep(content) else _parse(parser, content)
    if tree is None:
        return None
    nodes = QueryCursor(query).captures(tree.root_node).get("definition", [])
    spans = [
        (_begin_of(node), node.end_byte, label)
        for node in nodes
        if (label := _label_of(node, grammar.words[node.type]))
    ]
    # Outer definitions before those within.
    spans.sort(key=lambda span: (span[0], -span[1]))
    return _marks(text, content, spans)


def _is_too_deep(content: bytes) -> bool:
    """Return whether brackets are nested so deep that a parser takes quadratic time."""
    codes = np.frombuffer(content, np.uint8)
    opened = np.isin(codes, _OPENING).astype(np.int8)
    depths = np.cumsum(opened - np.isin(codes, _CLOSING), dtype=np.int64)
    return bool(depths.size) and int(depths.max()) > _MOST_BRACKETS


def _parse(parser: Parser, content: bytes) -> Tree | None:
    """Return the tree of a text; None if it takes too long, as thousands of brackets do."""
    deadline = time.monotonic() + _SECONDS
    try:
        return parser.parse(
            lambda offset, _: content[offset : offset + _CHUNK],
            progress_callback=lambda *_: time.monotonic() > deadline,
        )
    except ValueError:
        parser.reset()
        return None


@cache
def _loaded(suffix: str) -> tuple[Any, Any]:
    """Return the parser of a grammar, and the query for its definitions."""
    from tree_sitter import Language, Parser, Query

    grammar = _BY_SUFFIX[suffix]
    language = Language(getattr(import_module(grammar.package), grammar.function)())
    kinds = [kind for kind in grammar.words if language.id_for_node_kind(kind, True)]
    patterns = " ".join(f"({kind}) @definition" for kind in kinds if kind != _VARIABLE)
    if _VARIABLE in kinds:
        patterns += f" ({_VARIABLE} value: [(arrow_function) (function_expression)]) @definition"
    return Parser(language), Query(language, patterns)


def _label_of(node: Node, word: str) -> str:
    """Return the label of a definition; empty if it has no name or no body."""
    name = node.child_by_field_name("name")
    if node.type == "impl_item":
        name = node.child_by_field_name("type")
    while name is None and (declarator := node.child_by_field_name("declarator")) is not None:
        node = declarator
        if node.child_by_field_name("declarator") is None:
            name = node
    has_body = node.type != "struct_specifier" or node.child_by_field_name("body") is not None
    if name is None or name.text is None or not has_body:
        return ""
    return " ".join(f"{word} {name.text.decode('utf-8', 'replace')}".split())[:_LONGEST_LABEL]


def _begin_of(node: Node) -> int:
    """Return the offset at which a definition begins with its decorators and comments."""
    while node.parent is not None and node.parent.type in _WRAPPERS:
        node = node.parent
    begin = node
    above = node.prev_sibling
    while (
        above is not None
        and above.type in _ABOVE
        and begin.start_point.row - above.end_point.row <= 1
        and (above.prev_sibling is None or above.prev_sibling.end_point.row < above.start_point.row)
    ):
        begin = above
        above = above.prev_sibling
    return begin.start_byte


def _marks(text: str, content: bytes, spans: Sequence[tuple[int, int, str]]) -> Iterator[Mark]:
    """Yield a heading at each definition, and one without a label where code follows its end."""
    offsets = _character_offsets(text, content, spans)
    begins = [offsets[begin] for begin, _, _ in spans]
    # The ends of the open definitions.
    ends: list[int] = []
    marks: list[Mark] = []
    for begin, end, label in [*spans, (len(content), len(content), "")]:
        while ends and ends[-1] <= begin:
            closed = offsets[ends.pop()]
            place = closed + len(text[closed:]) - len(text[closed:].lstrip(" \t\r\n;,"))
            is_next = bisect_left(begins, place)
            follows = is_next < len(begins) and begins[is_next] == place
            if place < len(text) and not follows and text[place] not in "})]":
                marks.append(Mark(place, "heading", "", min(len(ends) + 1, _DEEPEST)))
        if label:
            ends.append(end)
            marks.append(Mark(offsets[begin], "heading", label, min(len(ends), _DEEPEST)))
    yield from sorted(marks, key=lambda mark: mark.offset)


def _character_offsets(
    text: str, content: bytes, spans: Sequence[tuple[int, int, str]]
) -> dict[int, int]:
    """Return the offsets in characters of the bytes at which definitions begin and end."""
    places = sorted({place for begin, end, _ in spans for place in (begin, end)})
    if len(text) == len(content):
        return {place: place for place in places}
    offsets = {}
    characters = 0
    before = 0
    for place in places:
        characters += len(content[before:place].decode("utf-8", "replace"))
        before = place
        offsets[place] = characters
    return offsets
