"""Write a set of questions whose candidates are read with the sentences before and after them.

    python examples/neighboring_sentences.py DATASET --output FOLDER

DATASET is a folder with `corpus.jsonl` and `candidates.SPLIT.jsonl` whose candidate lists are
documents, sentence by sentence in order, as in WikiQA. A text becomes the sentence itself, then
the one before it and the one after it, separated by " | ", so that a model sees which of the
three is the candidate. Ids, questions and judgments are copied. This changes the task: compare
figures on the new set with the old ones only to learn what context is worth. Needs the standard
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
    found: dict[str, list[str]] = {}
    for ids in candidates:
        for place, id_ in enumerate(ids):
            near = ids[max(place - 1, 0) : place] + ids[place + 1 : place + 2]
            if found.setdefault(id_, near) != near:
                sys.exit(f"{id_}: expected the same neighbors in each list, found others")
    return found


def main() -> None:
    """Read the arguments and write the set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    lists = sorted(asked.dataset.glob("candidates.*.jsonl"))
    corpus = asked.dataset / "corpus.jsonl"
    if not corpus.is_file() or not lists:
        sys.exit(f"{asked.dataset}: expected corpus.jsonl and candidates.SPLIT.jsonl")
    records = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    texts = {record["id"]: record["text"] for record in records}
    near = neighbors(
        [json.loads(line)["candidates"] for path in lists for line in path.open(encoding="utf-8")]
    )
    asked.output.mkdir(parents=True)
    with (asked.output / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for record in records:
            id_ = record["id"]
            around = [texts[one] for one in near.get(id_, [])]
            record["text"] = " | ".join([texts[id_], *around])
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
    for path in asked.dataset.glob("*.*.*"):
        shutil.copyfile(path, asked.output / path.name)


if __name__ == "__main__":
    main()
