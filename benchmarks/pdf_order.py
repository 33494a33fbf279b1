"""The order of words in PDF files beside `pdftotext`, the words that are missing, and the time.

    python benchmarks/pdf_order.py FOLDER [--files 50]

Needs pdftotext of poppler-utils. The order is that of its default mode. Words that occur once in
both texts are matched; those outside of the longest increasing run of positions are in another
order. Running headers and footers, which are kept once, count as missing only if no page has them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from retriever.documents.kinds import PassedOverError
from retriever.documents.kinds.pdf import read_pdf
from retriever.errors import SourceError

_WORD = re.compile(r"\w{3,}")


def main() -> None:
    """Print the sums over all files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=50)
    arguments = parser.parse_args()
    sums: Counter[str] = Counter()
    seconds = 0.0
    for path in sorted(arguments.folder.rglob("*.pdf"))[: arguments.files]:
        started = time.perf_counter()
        try:
            parsed = read_pdf(path.read_bytes())
        except (PassedOverError, SourceError):
            continue
        seconds += time.perf_counter() - started
        command = ["pdftotext", "-enc", "UTF-8", path, "-"]
        expected = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        words, other_order, missing = compare(parsed.text, expected)
        pages = parsed.metadata["pages"]
        assert isinstance(pages, int)
        sums.update(files=1, words=words, other=other_order, missing=missing, pages=pages)
    share = 100 * sums["other"] / max(sums["words"], 1)
    print(
        f"{sums['files']} files, {sums['pages']:,} pages, "
        f"{1000 * seconds / max(sums['pages'], 1):.2f} ms a page\n"
        f"{sums['words']:,} words matched, {sums['other']:,} ({share:.2f}%) in another order\n"
        f"{sums['missing']:,} different words missing"
    )


def compare(text: str, expected: str) -> tuple[int, int, int]:
    """Return the words matched, those in another order, and the different words missing."""
    ours = _WORD.findall(text.casefold())
    theirs = _WORD.findall(expected.casefold())
    counts = Counter(ours)
    expected_counts = Counter(theirs)
    places = {word: number for number, word in enumerate(ours) if counts[word] == 1}
    matched = [places[word] for word in theirs if expected_counts[word] == 1 and word in places]
    missing = sum(word not in counts for word in expected_counts)
    return len(matched), len(matched) - increasing_length(matched), missing


def increasing_length(numbers: list[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    tails: list[int] = []
    for number in numbers:
        place = bisect_left(tails, number)
        tails[place : place + 1] = [number]
    return len(tails)


if __name__ == "__main__":
    main()
