"""Write a real corpus of some thousand short passages: the documentation of this Python.

    python examples/python_docs_corpus.py --output corpus.jsonl [--limit N]

Passages are the docstrings of the public standard library (read from its sources, nothing of it
is run), and of the functions and types written in C. Each line is a document `{"id": "json.loads",
"title": "json.loads", "text": …, "module": "json", "kind": "module" | "class" | "method" |
"function", "line": 123}`; `line` is null where there is no Python source. Ids are unique, the
order is that of modules, then lines; the same Python writes the same bytes. Needs the standard
library only.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import itertools
import json
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# What says nothing about Python's library: its tests, an editor, codecs generated from tables.
SKIPPED_PACKAGES = frozenset(
    ("test", "tests", "distutils", "idlelib", "lib2to3", "site-packages", "encodings", "pydoc_data")
)
# Modules written in C that do nothing when imported.
C_MODULES = (
    *("array", "binascii", "builtins", "cmath", "errno", "faulthandler", "gc", "itertools"),
    *("marshal", "math", "sys", "time", "unicodedata", "zlib"),
)
SHORTEST = 40  # characters; less is seldom more than the name again


class Passage(NamedTuple):
    """One document; `name` is its id and title."""

    name: str
    text: str
    module: str
    kind: str
    line: int | None


def source_passages(library: Path) -> Iterator[Passage]:
    """Docstrings of the public modules below a folder of Python sources."""
    sources = []
    for path in library.rglob("*.py"):
        parts = path.relative_to(library).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        public = not any(part.startswith("_") or part in SKIPPED_PACKAGES for part in parts)
        if public and parts and parts[0] in sys.stdlib_module_names:
            sources.append((".".join(parts), path))
    for module, path in sorted(sources):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in a source are not this script's matter
            tree = ast.parse(path.read_bytes())
        text = ast.get_docstring(tree)
        if text:
            yield Passage(module, text, module, "module", 1)
        yield from definitions(tree.body, module, module, "function")


def definitions(
    body: list[ast.stmt], module: str, prefix: str, function_kind: str
) -> Iterator[Passage]:
    """Docstrings of public classes and functions, also of those below `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            for branch in (node.body, *handlers, node.orelse, getattr(node, "finalbody", [])):
                yield from definitions(branch, module, prefix, function_kind)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        name = f"{prefix}.{node.name}"
        is_class = isinstance(node, ast.ClassDef)
        text = ast.get_docstring(node)
        if text:
            yield Passage(name, text, module, "class" if is_class else function_kind, node.lineno)
        if is_class:
            yield from definitions(node.body, module, name, "method")


def c_passages() -> Iterator[Passage]:
    """Docstrings of what is written in C, through introspection of a few safe modules."""
    for name in C_MODULES:
        module = importlib.import_module(name)
        yield Passage(name, inspect.getdoc(module) or "", name, "module", None)
        for attribute, member in sorted(vars(module).items()):
            if attribute.startswith("_") or not callable(member):
                continue
            path = attribute if name == "builtins" else f"{name}.{attribute}"
            if not isinstance(member, type):
                yield Passage(path, inspect.getdoc(member) or "", name, "function", None)
                continue
            yield Passage(path, member.__doc__ or "", name, "class", None)
            for method, value in sorted(vars(member).items()):
                text = getattr(value, "__doc__", None)
                if not method.startswith("_") and callable(getattr(member, method, None)):
                    yield Passage(f"{path}.{method}", str(text or ""), name, "method", None)


def corpus() -> Iterator[Passage]:
    """All passages long enough, cleaned; the first with a name or a text wins."""
    names: set[str] = set()
    texts: set[str] = set()
    library = Path(sysconfig.get_paths()["stdlib"])
    for passage in itertools.chain(source_passages(library), c_passages()):
        # Some docstrings hold text that UTF-8 cannot, as examples of it.
        text = inspect.cleandoc(passage.text).encode("utf-8", "replace").decode("utf-8").strip()
        if len(text) < SHORTEST or passage.name in names or text in texts:
            continue
        names.add(passage.name)
        texts.add(text)
        yield passage._replace(text=text)


def write(path: Path, passages: Iterator[Passage]) -> Counter[str]:
    """Write the passages as JSON lines, whole or not at all; count them by kind."""
    counts: Counter[str] = Counter()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for passage in passages:
                fields = passage._asdict()
                name = fields.pop("name")
                record = {"id": name, "title": name, **fields}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                counts[passage.kind] += 1
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return counts


def positive(text: str) -> int:
    """An integer from 1."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main() -> None:
    """Parse the command line, write the corpus, say what was written."""
    parser = argparse.ArgumentParser(description="Write Python's own documentation as a corpus.")
    parser.add_argument("--output", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--limit", type=positive, help="write only the first N documents")
    options = parser.parse_args()
    try:
        counts = write(options.output, itertools.islice(corpus(), options.limit))
    except OSError as error:
        parser.exit(2, f"{options.output}: cannot write the corpus: {error.strerror}\n")
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    print(f"{options.output}: {counts.total()} documents ({kinds})", file=sys.stderr)


if __name__ == "__main__":
    main()
