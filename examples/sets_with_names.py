"""Write a set with headings as a folder of files, to measure what their names are worth.

    python examples/sets_with_names.py SET --names headings --output FOLDER

SET is a folder of `examples/sets_with_headings.py`. Each section of its documents becomes a
Markdown file, in a folder named after its document; a question's file is that of its answer.
`--names` says what the files are called:

- `headings`: after the section's heading, which stays in the text.
- `alone`: the same, without the heading in the text, so that the name alone has its words.
- `hashes`, `dates`, `pictures`: `9f8c2a4b7d01.md`, `2021-03-05.md`, `IMG_2031.md`, which say
  nothing of the text.

FOLDER gets `notes`, `queries.jsonl` and `qrels.tsv`. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

# Headings of a lower level begin no section.
LEVEL = 2
FIRST_DAY = date(2019, 1, 1)


def file_name(kind: str, heading: str, number: int) -> str:
    """Return the name of a section's file, without its suffix."""
    if kind == "hashes":
        return hashlib.blake2b(f"{number}".encode(), digest_size=6).hexdigest()
    if kind == "dates":
        return str(FIRST_DAY + timedelta(number))
    if kind == "pictures":
        return f"IMG_{number:04}"
    return re.sub(r"\W+", "-", heading.lower()).strip("-")[:80] or f"section-{number}"


def sections_of(document: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Return where each section begins and ends, and its heading."""
    text = document["text"]
    marks = [mark for mark in document["outline"] if mark[1] == "heading" and mark[3] <= LEVEL]
    starts = [mark[0] for mark in marks]
    stops = [*starts[1:], len(text)]
    headings = [mark[2] for mark in marks]
    return [*zip(starts, stops, headings, strict=True)]


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", type=Path)
    kinds = ["headings", "alone", "hashes", "dates", "pictures"]
    parser.add_argument("--names", choices=kinds, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.output.exists():
        sys.exit(f"{arguments.output}: exists; choose another name")
    places: dict[str, list[tuple[int, int, str]]] = {}
    used = Counter[str]()
    number = 0
    for line in (arguments.set / "corpus.jsonl").read_text("utf-8").splitlines():
        document = json.loads(line)
        folder = arguments.output / "notes" / Path(document["id"]).with_suffix("")
        folder.mkdir(parents=True)
        for start, stop, heading in sections_of(document):
            number += 1
            name = file_name(arguments.names, heading, number)
            used[f"{folder}/{name}"] += 1
            if used[f"{folder}/{name}"] > 1:
                name += f"-{used[f'{folder}/{name}']}"
            body = document["text"][start:stop].strip().removeprefix(heading).strip()
            text = body if arguments.names == "alone" else f"# {heading}\n\n{body}"
            (folder / f"{name}.md").write_text(f"{text}\n", "utf-8")
            id_ = (folder / f"{name}.md").relative_to(arguments.output / "notes").as_posix()
            places.setdefault(document["id"], []).append((start, stop, id_))
    judged: dict[str, None] = {}
    for line in (arguments.set / "places.jsonl").read_text("utf-8").splitlines():
        answer = json.loads(line)
        for start, stop, id_ in places[answer["id"]]:
            if start <= answer["start"] < stop:
                judged[f"{answer['query']} 0 {id_} 1\n"] = None
    (arguments.output / "qrels.tsv").write_text("".join(judged), "utf-8")
    queries = (arguments.set / "queries.jsonl").read_text("utf-8")
    (arguments.output / "queries.jsonl").write_text(queries, "utf-8")
    print(f"{arguments.output}: {number:,} files, {len(judged):,} judgments")


if __name__ == "__main__":
    main()
