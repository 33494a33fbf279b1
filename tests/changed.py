"""Prints the tests that belong to the files changed since the last commit, for `make check`.

A test belongs to the module whose place below `tests` it has, else to the folder. The tests of the
architecture always run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = "tests/architecture"
PAGES = "tests/docs"


def changed_files() -> list[str]:
    """List the paths of changed and new files, relative to the root."""
    changed = _git("diff", "--name-only", "HEAD")
    return [*changed, *_git("ls-files", "--others", "--exclude-standard")]


def selection(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """List the test files and folders that belong to `paths`, ascending."""
    selected = {ALWAYS}
    for path in map(PurePosixPath, paths):
        if path.parts[0] == "tests":
            is_test = path.name.startswith("test_") and (root / path).is_file()
            selected.add(str(path if is_test else path.parent))
        elif path.suffix == ".md" or path.parts[0] == "docs":
            selected.add(PAGES)
        elif path.suffix == ".py" and (root / "tests" / path.parts[0]).is_dir():
            folder = PurePosixPath("tests", path.parent)
            own = folder / f"test_{path.name}"
            while not (root / folder).is_dir():
                folder = folder.parent
            selected.add(str(own if (root / own).is_file() else folder))
    # A folder holds its files.
    return sorted(
        path for path in selected if not selected & set(map(str, PurePosixPath(path).parents))
    )


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


if __name__ == "__main__":
    sys.stdout.write(" ".join(selection(changed_files())) + "\n")
