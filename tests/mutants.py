"""Measures the power of the tests: the share of small faults, put into the product, that they find.

    python tests/mutants.py --count 200 --output mutants.jsonl

A mutant is the product with one fault: another operator, another constant, a condition turned
around, a statement left out. Each runs against the tests that `make check` selects for its file. A
fault is known by its function and its text rather than by its line, so that most mutants of a seed
stay the same when code moves.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
TEST_SECONDS = 900


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


def chosen(root: Path, seed: int, count: int) -> list[Mutant]:
    """The first faults in the order of their hashes with the seed, as long as they parse."""
    pool: list[Mutant] = []
    for package in PRODUCT:
        for file in sorted((root / package).rglob("*.py")):
            pool += mutants_of(str(file.relative_to(root)), file.read_text())
    pool.sort(key=lambda one: hashlib.sha256(f"{seed}{one.key}".encode()).hexdigest())
    return pool[:count]


def outcome(mutant: Mutant, copied: Path, selection: list[str]) -> str:
    """`killed`, `survived` or `timeout` (which counts as killed)."""
    file = copied / mutant.path
    before = file.read_bytes()
    after = before[: mutant.start] + mutant.replacement.encode() + before[mutant.end :]
    compile(after, mutant.path, "exec")
    file.write_bytes(after)
    environment = {**os.environ, "PYTHONPATH": str(copied), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-m", "not soak and not milvus", *selection],
            cwd=copied, env=environment, capture_output=True, timeout=TEST_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        file.write_bytes(before)
    # 5: no test was selected.
    return "survived" if done.returncode in (0, 5) else "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--output", type=Path, required=True, help="One JSON line per mutant; resumed."
    )
    given = parser.parse_args()
    selection = runpy.run_path(str(ROOT / "tests/changed.py"))["selection"]
    done = {}
    if given.output.exists():
        done = {(row := json.loads(line))["key"]: row for line in given.output.open()}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied = Path(folder) / "tree"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache"))
        for number, mutant in enumerate(chosen(ROOT, given.seed, given.count), 1):
            if mutant.key not in done:
                tests = [one for one in selection([mutant.path], ROOT) if "architecture" not in one]
                start = time.monotonic()
                result = outcome(mutant, copied, tests)
                row = {
                    **mutant._asdict(), "outcome": result, "tests": tests,
                    "seconds": round(time.monotonic() - start, 1),
                }  # fmt: skip
                done[mutant.key] = row
                with given.output.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
            row = done[mutant.key]
            place = f"{mutant.path}:{mutant.line}"
            sys.stdout.write(f"{number} {row['outcome']} {place} {mutant.kind}\n")
            sys.stdout.flush()
    survived = sum(row["outcome"] == "survived" for row in done.values())
    sys.stdout.write(f"{len(done)} mutants, {len(done) - survived} found by the tests\n")


if __name__ == "__main__":
    main()
