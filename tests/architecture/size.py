"""How much code the packages have and a query loads: `make size` prints the table.

`test_size` enforces `LIMITS`, so that neither grows unseen.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("indexes", "retriever", "eval", "cli")
# Folders whose statements are counted, the rest of `retriever` after its parts.
PACKAGES = (
    "indexes",
    "retriever/documents",
    "retriever/encoders",
    "retriever/index",
    "retriever/search",
    "retriever",
    "eval",
    "cli",
)
# Each is 10% above the count when it was set. Statements are those of the syntax tree, however they
# are wrapped; docstrings are among them.
LIMITS = {
    "statements in indexes": 8_220,
    "statements in retriever/documents": 9_000,
    "statements in retriever/encoders": 7_500,
    "statements in retriever/index": 3_870,
    "statements in retriever/search": 2_710,
    "statements in retriever": 4_380,
    "statements in eval": 9_760,
    "statements in cli": 3_360,
    "own modules that a BM25 query loads": 79,
    "files that a hybrid query enters": 62,
    "functions that a hybrid query enters": 358,
}
# Whole processes; not enforced, since machines differ.
SECONDS = {"BM25 query, s": 0.15, "hybrid query, s": 0.3}
REPEATS = 9


def measured() -> dict[str, int]:
    """Return the current value of each name in `LIMITS`."""
    counts = {f"statements in {package}": 0 for package in PACKAGES}
    for path in sorted(path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        package = next(package for package in PACKAGES if name.startswith(f"{package}/"))
        tree = ast.parse(path.read_text("utf-8"))
        counts[f"statements in {package}"] += sum(
            isinstance(node, ast.stmt) for node in ast.walk(tree)
        )
    bm25 = entered("bm25")
    hybrid = entered("hybrid")
    return {
        **counts,
        "own modules that a BM25 query loads": bm25["modules"],
        "files that a hybrid query enters": hybrid["files"],
        "functions that a hybrid query enters": hybrid["functions"],
    }


def seconds() -> dict[str, float]:
    """Median times of whole commands, beside the start of Python with NumPy."""
    with tempfile.TemporaryDirectory() as folder:
        index = _small_index(Path(folder))
        query = [sys.executable, "-m", "cli.main", "query", "honey bees", "-i", str(index)]
        commands = {
            "python -c 'import numpy', s": [sys.executable, "-c", "import numpy"],
            "BM25 query, s": [*query, "--mode", "bm25"],
            "hybrid query, s": query,
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(REPEATS):
            for name, command in commands.items():
                start = time.perf_counter()
                subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(runs) for name, runs in times.items()}


def entered(mode: str) -> dict[str, int]:
    """Own modules that a query loads, and the files and named functions that it enters."""
    with tempfile.TemporaryDirectory() as folder:
        index = _small_index(Path(folder))
        query = ["query", "honey bees", "-i", str(index), "--mode", mode]
        command = [sys.executable, __file__, *query]
        process = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True, env=_environment()
        )
    counts: dict[str, int] = json.loads(process.stderr.splitlines()[-1])
    return counts


def _small_index(folder: Path) -> Path:
    corpus = folder / "corpus.jsonl"
    texts = ["Bees make honey.", "Cats sleep most of the day.", "Rain falls from clouds."]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = [sys.executable, "-m", "cli.main", "index", str(corpus), "-i", str(folder / "index")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=_environment())
    return folder / "index"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _profiled(arguments: list[str]) -> None:
    """Run a command, and write what it loaded and entered as the last line of standard error."""
    import threading

    from cli.main import run

    own = tuple(f"{ROOT / package}{os.sep}" for package in PRODUCT)
    codes = set()

    def profile(frame, event, _):  # type: ignore[no-untyped-def]
        if event == "call" and frame.f_code.co_filename.startswith(own):
            codes.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    run(arguments)
    sys.setprofile(None)
    functions = {
        code
        for code in codes
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    }
    counts = {
        "modules": sum(name.split(".")[0] in PRODUCT for name in sys.modules),
        "files": len({code.co_filename for code in functions}),
        "functions": len(functions),
    }
    sys.stderr.write(json.dumps(counts) + "\n")


def main() -> None:
    """Print the table."""
    rows: dict[str, float] = {**measured(), **seconds()}
    limits: dict[str, float] = {**LIMITS, **SECONDS}
    width = max(map(len, rows))
    sys.stdout.write(f"{'':{width}} {'now':>9} {'limit':>9}\n")
    for name, value in rows.items():
        number = f"{value:9,}" if isinstance(value, int) else f"{value:9.3f}"
        sys.stdout.write(f"{name:{width}} {number} {limits.get(name, ''):>9}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if len(sys.argv) > 1:
        _profiled(sys.argv[1:])
    else:
        main()
