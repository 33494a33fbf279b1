"""Measures the power of the tests: the share of small faults, put into the product, that they find.

    pip install pytest-cov
    python tests/mutants.py --count 200 --tree /tmp/tree --output mutants.jsonl

A mutant is the product with one fault: another operator, another constant, a condition turned
around, a statement left out. Each runs against the tests that ran its lines, those that ran the
fewest lines first, within half a minute. A fault is known by its function and its text rather than
by its line, so that most mutants of a seed stay the same when code moves.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("indexes", "retriever", "eval", "cli")
OTHER_COMPARISON = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OTHER_OPERATOR = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
# What is no computation, or has positions that Python 3.11 does not know.
LEFT_ALONE = (ast.JoinedStr, ast.arg, ast.AnnAssign)
# What the tests of one mutant may take by the record, and how long is waited for them.
TEST_SECONDS, LIMIT_SECONDS = 30, 400
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "not soak and not milvus"]


class Mutant(NamedTuple):
    """One fault: the file, the text that it replaces, and the text in its place."""

    key: str
    path: str
    line: int
    kind: str
    start: int
    end: int
    replacement: str
    original: str


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Every fault of a file, in the order of its lines."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    repeated: Counter[str] = Counter()

    def mutant(kind: str, node: ast.AST, replacement: str, scope: str) -> Mutant:
        start = offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        original = ast.unparse(node)
        text = f"{scope}|{kind}|{original}|{replacement}"
        repeated[text] += 1
        key = hashlib.sha256(f"{text}|{repeated[text]}".encode()).hexdigest()
        return Mutant(key, path, node.lineno, kind, start, end, replacement, original)  # type: ignore[attr-defined]

    def visit(node: ast.AST, scope: str) -> Iterator[Mutant]:
        if isinstance(node, LEFT_ALONE):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope = f"{scope}.{node.name}"
        for kind, replacement in _faults(node):
            yield mutant(kind, node, replacement, scope)
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "returns", "bases", "annotation"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, scope)

    yield from visit(ast.parse(source), "")


def _faults(node: ast.AST) -> Iterator[tuple[str, str]]:
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[operator, *_]) if type(operator) in OTHER_COMPARISON:
            changed.ops[0] = OTHER_COMPARISON[type(operator)]()
            yield "comparison", f"({ast.unparse(changed)})"
        case ast.BinOp(op=operator) if type(operator) in OTHER_OPERATOR:
            changed.op = OTHER_OPERATOR[type(operator)]()
            yield "operator", f"({ast.unparse(changed)})"
        case ast.BoolOp(op=operator):
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "condition", f"({ast.unparse(changed)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", str(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", repr(value * 2 if value else 1.0)
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "statement", "pass"
        case ast.Continue() | ast.Break():
            yield "statement", "pass"
        case ast.IfExp(test=test):
            changed.test = ast.UnaryOp(ast.Not(), test)
            yield "condition", f"({ast.unparse(changed)})"


def draw_mutants(root: Path, seed: int, count: int) -> list[Mutant]:
    """Draw `count` mutants of the product, ordered by a hash of the seed and their key."""
    pool: list[Mutant] = []
    for package in PRODUCT:
        for file in sorted((root / package).rglob("*.py")):
            pool += mutants_of(str(file.relative_to(root)), file.read_text())
    pool.sort(key=lambda mutant: hashlib.sha256(f"{seed}{mutant.key}".encode()).hexdigest())
    return pool[:count]


class Record:
    """Record of the lines that each test ran, and of its seconds."""

    def __init__(self, tree: Path) -> None:
        self._seconds: dict[str, float] = {}
        for case in ElementTree.parse(tree / "tests.xml").iter("testcase"):
            # Tests that fail or skip find nothing.
            if not {"failure", "error", "skipped"} & {child.tag for child in case}:
                name = f"{case.get('classname')}.{case.get('name')}"
                self._seconds[name] = float(case.get("time") or 0)
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._size: Counter[str] = Counter()
        with sqlite3.connect(tree / ".coverage") as database:
            rows = database.execute(
                "SELECT path, context, numbits FROM line_bits JOIN file ON file.id = file_id"
                " JOIN context ON context.id = context_id"
            )
            for path, context, bits in rows:
                test = context.rpartition("|")[0]
                if not test or test.startswith("tests/architecture"):
                    continue
                if self._name(test) not in self._seconds:
                    continue
                lines = self._lines.setdefault(str(Path(path).relative_to(tree)), {})
                for index, byte in enumerate(bits):
                    for bit in range(8):
                        if byte >> bit & 1:
                            lines.setdefault(index * 8 + bit, set()).add(test)
                            self._size[test] += 1

    def tests(self, path: str, first: int, last: int) -> list[str]:
        """List tests that ran a line of the span; without any, tests that ran the file."""
        lines = self._lines.get(path, {})
        covering_tests = set().union(*(lines.get(line, set()) for line in range(first, last + 1)))
        selected_tests, seconds_left = [], float(TEST_SECONDS)
        for test in sorted(
            covering_tests or set().union(*lines.values()),
            key=lambda test: (self._size[test], test),
        ):
            if seconds_left > self._seconds[self._name(test)] or not selected_tests:
                selected_tests.append(test)
                seconds_left -= self._seconds[self._name(test)]
        return selected_tests

    @staticmethod
    def _name(test: str) -> str:
        path, _, name = test.partition("::")
        return f"{path.removesuffix('.py').replace('/', '.')}.{name.replace('::', '.', 1)}"


def copy_tree(tree: Path) -> None:
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache"))


def environment(tree: Path) -> dict[str, str]:
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def outcome(mutant: Mutant, tree: Path, tests: list[str]) -> str:
    """`killed`, `survived` or `timeout` (which counts as killed)."""
    if not tests:
        return "survived"
    file, names = tree / mutant.path, tree / "tests.txt"
    before = file.read_bytes()
    after = before[: mutant.start] + mutant.replacement.encode() + before[mutant.end :]
    compile(after, mutant.path, "exec")
    file.write_bytes(after)
    names.write_text("\n".join(tests))
    try:
        done = subprocess.run(
            [*PYTEST, "-x", "-p", "no:cacheprovider", f"@{names}"],
            cwd=tree, env=environment(tree), capture_output=True, timeout=LIMIT_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        file.write_bytes(before)
    return "killed" if done.returncode else "survived"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--tree", type=Path, required=True, help="A copy to work in, made with its record."
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="One JSON line per mutant; resumed."
    )
    arguments = parser.parse_args()
    if not arguments.tree.exists():
        copy_tree(arguments.tree)
        measured = [f"--cov={package}" for package in PRODUCT]
        # What fails in a copy is left out.
        subprocess.run(
            [*PYTEST, "-n", str(arguments.jobs), "--dist", "loadscope", *measured,
             "--cov-context=test", "--cov-report=", "--junitxml=tests.xml"],
            cwd=arguments.tree, env=environment(arguments.tree), check=False,
        )  # fmt: skip
    record = Record(arguments.tree)
    done = {}
    if arguments.output.exists():
        done = {(row := json.loads(line))["key"]: row for line in arguments.output.open()}
    pending = [
        mutant
        for mutant in draw_mutants(ROOT, arguments.seed, arguments.count)
        if mutant.key not in done
    ]

    def work(job: int) -> None:
        tree = arguments.tree.with_name(f"{arguments.tree.name}-{job}")
        if not tree.exists():
            copy_tree(tree)
        while pending:
            mutant = pending.pop(0)
            source = (tree / mutant.path).read_bytes()
            last = mutant.line + source[mutant.start : mutant.end].count(b"\n")
            tests = record.tests(mutant.path, mutant.line, last)
            start = time.monotonic()
            row = {
                **mutant._asdict(), "outcome": outcome(mutant, tree, tests), "tests": len(tests),
                "seconds": round(time.monotonic() - start, 1),
            }  # fmt: skip
            done[mutant.key] = row
            with arguments.output.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            place = f"{mutant.path}:{mutant.line}"
            sys.stdout.write(f"{len(done)} {row['outcome']} {place} {mutant.kind}\n")
            sys.stdout.flush()

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in [pool.submit(work, job) for job in range(arguments.jobs)]:
            result.result()
    survived = sum(row["outcome"] == "survived" for row in done.values())
    sys.stdout.write(f"{len(done)} mutants, {len(done) - survived} found by the tests\n")


if __name__ == "__main__":
    main()
