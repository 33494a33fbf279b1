"""Make a code search set of a library: its files without docstrings, which are the questions.

    python examples/code_search_set.py --output DIR [--source LIBRARY] [--questions 600]

DIR/files has the files, DIR/queries.jsonl the first sentence of each docstring of a function, and
DIR/qrels.tsv the file in which the function is. The library is the standard library of the Python
that runs this.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Fewer words are seldom a question.
LEAST_WORDS = 6
SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "__pycache__", "turtledemo"}


def main() -> None:
    """Write the set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--source", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--questions", type=int, default=600)
    arguments = parser.parse_args()
    questions: list[tuple[str, str]] = []
    for path in sorted(arguments.source.rglob("*.py")):
        name = path.relative_to(arguments.source).as_posix()
        if SKIPPED.intersection(name.split("/")):
            continue
        try:
            text = path.read_text("utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError):
            continue
        target = arguments.output / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(without_docstrings(text, tree), "utf-8")
        questions += [(sentence, name) for sentence in first_sentences(tree)]
    chosen = random.Random(0).sample(questions, min(arguments.questions, len(questions)))
    write_questions(arguments.output, chosen)


def docstring_nodes(tree: ast.AST) -> Iterator[ast.Expr]:
    """Yield the docstrings of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first


def without_docstrings(text: str, tree: ast.AST) -> str:
    """Return a module with `...` in place of its docstrings."""
    lines = text.splitlines(keepends=True)
    for node in docstring_nodes(tree):
        first = node.lineno - 1
        last = node.end_lineno or node.lineno
        indentation = " " * node.col_offset
        lines[first:last] = [f"{indentation}...\n", *[""] * (last - first - 1)]
    return "".join(lines)


def first_sentences(tree: ast.AST) -> Iterator[str]:
    """Yield the first sentence of the docstring of each function, if it is long enough."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0]
            sentence = re.split(r"(?<=[.!?])\s", " ".join(paragraph.split()))[0]
            if len(sentence.split()) >= LEAST_WORDS:
                yield sentence


def write_questions(folder: Path, questions: list[tuple[str, str]]) -> None:
    """Write the questions, and the file that answers each."""
    with (
        (folder / "queries.jsonl").open("w", encoding="utf-8") as queries,
        (folder / "qrels.tsv").open("w", encoding="utf-8") as judgments,
    ):
        judgments.write("query-id\tcorpus-id\tscore\n")
        for number, (sentence, name) in enumerate(questions):
            queries.write(json.dumps({"id": f"q{number}", "text": sentence}) + "\n")
            judgments.write(f"q{number}\t{name}\t1\n")


if __name__ == "__main__":
    main()
