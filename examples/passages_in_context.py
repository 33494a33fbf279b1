"""Write a set of questions whose passages are read with their titles or their neighbors.

    python examples/passages_in_context.py DATASET title|neighbors --output FOLDER

DATASET is a folder with `corpus.jsonl` and `candidates.SPLIT.jsonl`, as WikiQA has. `title` puts
the title of each passage before it. `neighbors` puts the sentence before it and the one after it
behind it; each list of candidates must then be a document, sentence by sentence in order. Parts are
separated by " | ". Ids, questions and judgments are copied. This changes the task: compare figures
on the new set with those on the old one only to learn what context is worth. Needs the standard
library only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path


def neighbors(candidates: list[list[str]]) -> dict[str, list[str]]:
    """The ids before and after each id; a document that several lists share counts once."""
    neighbor_ids: dict[str, list[str]] = {}
    for ids in candidates:
        for place, id_ in enumerate(ids):
            near = ids[max(place - 1, 0) : place] + ids[place + 1 : place + 2]
            if neighbor_ids.setdefault(id_, near) != near:
                sys.exit(f"{id_}: expected the same neighbors in each list, found others")
    return neighbor_ids


def main() -> None:
    """Read the arguments and write the set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("context", choices=["title", "neighbors"])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    lists = sorted(arguments.dataset.glob("candidates.*.jsonl"))
    corpus = arguments.dataset / "corpus.jsonl"
    if not corpus.is_file() or not lists:
        sys.exit(f"{arguments.dataset}: expected corpus.jsonl and candidates.SPLIT.jsonl")
    if arguments.output.exists():
        sys.exit(f"{arguments.output}: exists; name another folder")
    records = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    texts = {record["id"]: record["text"] for record in records}
    near: dict[str, list[str]] = {}
    if arguments.context == "neighbors":
        lines = (line for path in lists for line in path.open(encoding="utf-8"))
        near = neighbors([json.loads(line)["candidates"] for line in lines])
    arguments.output.mkdir(parents=True)
    with (arguments.output / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for record in records:
            id_ = record["id"]
            if arguments.context == "title":
                parts = [record.get("title", ""), texts[id_]]
            else:
                parts = [texts[id_], *(texts[neighbor] for neighbor in near.get(id_, []))]
            record["text"] = " | ".join(part for part in parts if part)
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
    for path in arguments.dataset.glob("*.*.*"):
        shutil.copyfile(path, arguments.output / path.name)


if __name__ == "__main__":
    main()
