"""The definition that encloses a line of source code, against Python's own parser and by hand."""

from __future__ import annotations

import ast
import sysconfig
import time
from pathlib import Path

import pytest

from retriever import CorpusReader, Index
from retriever.documents.kinds.code import read_code
from retriever.documents.kinds.syntax import has_grammar
from retriever.documents.outline import heading_path
from tests.retriever.documents.source_samples import write

LIBRARY = Path(sysconfig.get_path("stdlib"))
MODULES = (
    *("bisect", "heapq", "textwrap", "shutil", "json/decoder"),
    *("asyncio/queues", "email/header", "argparse", "csv"),
)


def paths(text, suffix=""):
    """The path of definitions at the first character of each line."""
    parsed = read_code(text, suffix)
    offset = 0
    for line in parsed.text.split("\n"):
        start = offset + len(line) - len(line.lstrip())
        yield line, [mark.label for mark in heading_path(parsed.outline, start)]
        offset += len(line) + 1


def enclosing(tree):
    """The definitions around each line, by its number."""
    by_line = {}

    def visit(node, path):
        for child in ast.iter_child_nodes(node):
            below = path
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                word = "class" if isinstance(child, ast.ClassDef) else "def"
                below = [*path, f"{word} {child.name}"]
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                by_line.update(dict.fromkeys(range(first, child.end_lineno + 1), below))
            visit(child, below)

    visit(tree, [])
    return by_line


@pytest.mark.parametrize("suffix", ["", ".py"])
@pytest.mark.parametrize("name", MODULES)
def test_lines_of_python_have_the_definitions_of_its_parser(name, suffix):
    if suffix:
        pytest.importorskip("tree_sitter_python")
    text = (LIBRARY / f"{name}.py").read_text("utf-8")
    expected = enclosing(ast.parse(text))
    first = text[: len(text) - len(text.lstrip())].count("\n") + 1
    right = wrong = 0
    for number, (line, path) in enumerate(paths(text, suffix), first):
        # Comments may stand above the next definition.
        if line.strip() and not line.strip().startswith(("#", ")", "]", "}", '"""', "'''")):
            is_right = path == expected.get(number, [])
            right += is_right
            wrong += not is_right
    assert right > 50
    # The grammar knows every line.
    assert wrong <= (0 if suffix else 0.01 * right)


BRACES = {
    ".cpp": (
        """\
#include <stdio.h>

/* Adds two numbers. */
static int add(int a, int b)
{
    return a + b;
}

int counter = 0;

struct point { int x; };

void Shape::draw(const Canvas &canvas) const {
    if (visible) {
        paint(canvas);
    }
#ifdef DEBUG
    log();
#endif
}
""",
        {
            "return a + b": ["add"],
            "int counter": [],
            "paint(": ["Shape::draw"],
            "log()": ["Shape::draw"],
        },
    ),
    ".go": (
        """\
package main

// Index holds postings.
type Index struct { size int }

func (index *Index) Add(text string) error {
    return nil
}

var limit = 5
""",
        {"return nil": ["func Add"], "var limit": []},
    ),
    ".rs": (
        """\
pub struct Index { size: usize }

impl Index {
    pub fn add(&mut self) -> usize {
        self.size += 1;
        self.size
    }
}

const LIMIT: usize = 5;
""",
        {"self.size += 1": ["impl Index", "fn add"], "const LIMIT": []},
    ),
    ".js": (
        """\
export class Index extends Base {
  add(text) {
    this.size += 1;
  }
}

const search = async (query) => {
  return query;
};

export default function main() {
  search("x");
}
""",
        {
            "return query": ["const search"],
            'search("x")': ["function main"],
        },
    ),
    ".java": (
        """\
public class Index {
    private int size;

    public static int add(String text) throws IOException {
        return size + 1;
    }
}
""",
        {"return size": ["class Index", "add"], "private int": ["class Index"]},
    ),
    ".rb": (
        """\
module Search
  class Index < Base
    def add(text)
      @size += 1
    end
  end
end

puts "done"
""",
        {"@size": ["module Search", "class Index", "def add"], "puts": []},
    ),
}


@pytest.mark.parametrize("is_parsed", [False, True])
@pytest.mark.parametrize("suffix", BRACES)
def test_lines_of_other_languages_have_their_definitions(suffix, is_parsed):
    if is_parsed and not has_grammar(suffix):
        pytest.skip(f"no grammar for {suffix} is installed")
    text, expected_paths = BRACES[suffix]
    lines = list(paths(text, suffix if is_parsed else ""))
    for part, expected in expected_paths.items():
        [path] = [path for line, path in lines if part in line]
        assert path == expected, part


@pytest.mark.parametrize(
    "text",
    [
        "[section]\nname = value\nclass = 5\n",
        "1\n00:00:01 --> 00:00:02\nclass act, they said\n",
        'text = """\ndef no():\n    pass\n"""\nx = 1\n',
        "/*\nint no(int a) {\n*/\nx = 1;\n",
        "if (a) {\n  return f(a);\n}\nwhile (b) {\n}\n",
        "{\n  key: function\n}\n",
    ],
)
def test_other_lines_define_nothing(text):
    assert [mark for mark in read_code(text).outline if mark.kind == "heading"] == []


def test_a_definition_has_its_decorators_and_comments():
    text = "x = 1\n\n# Adds.\n@cache\ndef add(a):\n    return a\n\ny = 2\n"
    parsed = read_code(text)
    marks = [mark for mark in parsed.outline if mark.kind == "heading"]
    assert [(mark.label, parsed.text[mark.offset :][:6]) for mark in marks] == [
        ("def add", "# Adds"),
        ("", "y = 2"),
    ]


def test_a_hit_in_code_names_its_definition_and_is_found_by_it(tmp_path, minilm):
    methods = "".join(
        f"    def step{number}(self):\n" + "        self.count += 1\n" * 60 for number in range(6)
    )
    write(tmp_path / "notes/a.py", f"class WalrusArchive:\n{methods}")
    with Index.create(tmp_path / "my.index", encoder=minilm) as index:
        index.add(CorpusReader(tmp_path / "notes"))
        [hit] = index.search("step4", k=1, mode="bm25")
        assert hit.place.headings == ("class WalrusArchive", "def step4")
        assert hit.title is None


@pytest.mark.parametrize(
    "text",
    [
        "class A {\n" * 20_000,
        "(" * 200_000,
        "int f(" * 50_000,
        "public " * 100_000,
        '"""' * 100_001,
        "def f():\r\n\tpass\r\n" * 20_000,
        "a b " * 100_000,
        " " * 10**6 + "def f():",
    ],
)
def test_hostile_code_takes_little_time(text):
    for suffix in ("", ".py", ".c", ".js"):
        started = time.monotonic()
        read_code(text, suffix)
        assert time.monotonic() - started < 10
