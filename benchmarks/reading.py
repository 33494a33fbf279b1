"""The speed of reading files by kind, and what is read of them.

    python benchmarks/reading.py FOLDER

Prints a row for each kind of file below FOLDER: files, documents, megabytes, seconds, megabytes a
second, and the files that were not read or read in part. Kinds other than text
are read in up to four processes; their start is part of the time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

from retriever import CorpusReader
from retriever.documents.file_kinds import KINDS, kind_of_file


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    paths_by_kind = group_files(arguments.folder)
    print(
        "| kind | files | documents | MB | seconds | MB a second | not read | in part |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for kind in KINDS:
        if kind in paths_by_kind:
            print(measure_kind(arguments.folder, kind, paths_by_kind[kind]), flush=True)


def group_files(folder: Path) -> dict[str, set[str]]:
    """Return the relative paths of the files below a folder by their kind."""
    paths_by_kind = defaultdict(set)
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            kind = kind_of_file(path)
            if kind is not None:
                paths_by_kind[kind].add(path.relative_to(folder).as_posix())
    return paths_by_kind


def measure_kind(folder: Path, kind: str, paths: set[str]) -> str:
    """Read the files of a kind, and return its row of the table."""
    reader = CorpusReader(folder, on_error="skip-files", on_empty="yield", only=paths)
    started = time.perf_counter()
    documents = sum(1 for _ in reader)
    seconds = time.perf_counter() - started
    megabytes = reader.bytes_read / 1e6
    cells = [
        KINDS[kind].label,
        f"{len(paths):,}",
        f"{documents:,}",
        f"{megabytes:,.1f}",
        f"{seconds:.1f}",
        f"{megabytes / seconds:.1f}",
        f"{reader.skipped:,}",
        f"{reader.files.in_part:,}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
