"""Encoders by data sets: similarity, transfer, and the layers that BERT-LC chooses.

    python benchmarks/sentence_tables.py --output FOLDER [--data FOLDER] [--model MODEL]
        [--sets NAME ...] [--encoder FORM ...] [--classifier lr|mlp] [--seeds N]

One `retriever eval` per set writes its report into its own folder. An interrupted run resumes: a
set that has a report is not scored again. Then the tables are printed: Spearman of STS12 to STS16,
STS-B and SICK-R (`all`), Pearson of the supervised protocol on STS-B and SICK-R, accuracies on the
transfer tasks, and the choice of layers on each of them beside the last layer. * is a difference
from the first encoder with p < 0.05 after Holm's correction over the encoders of a set.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RETRIEVER = str(Path(sys.executable).with_name("retriever"))
SIMILARITY = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")
SUPERVISED = ("stsb", "sick")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "sst5", "trec", "mrpc", "sick")
SETS = tuple(dict.fromkeys((*SIMILARITY, *TRANSFER)))
SIGNIFICANT = 0.05


def main() -> None:
    """Score what is not there yet, and print the tables."""
    arguments = _arguments()
    encoders = [part for form in arguments.encoder for part in ("-e", form)]
    encoders = [*(encoders or ["--encoders", "paper"]), "--model", arguments.model]
    trained = ["--classifier", arguments.classifier, "--seeds", str(arguments.seeds)]
    kinds: list[tuple[str, str, Sequence[str], list[str]]] = [
        ("Spearman × 100", "sts", SIMILARITY, encoders),
        ("Supervised, Pearson × 100", "sts", SUPERVISED, [*encoders, "--supervised"]),
        ("Transfer, accuracy × 100", "transfer", TRANSFER, [*encoders, *trained]),
        ("Layers chosen, accuracy × 100", "transfer", TRANSFER, _search(arguments.model)),
    ]
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number, (title, kind, names, options) in enumerate(kinds, 1):
        chosen = [name for name in names if name in arguments.sets]
        reports = [
            _report(kind, arguments.data / name, options, arguments.output / f"{number}-{name}")
            for name in chosen
        ]
        if reports:
            measure = "pearson" if "--supervised" in options else reports[0]["measures"][0]
            print("\n".join(table(title, reports, measure)), flush=True)


def table(title: str, reports: Sequence[dict[str, Any]], measure: str) -> Iterator[str]:
    """The lines of a table of encoders by sets, and of their mean."""
    sets = [report["sets"][0] for report in reports]
    yield ""
    yield f"| {title} | {' | '.join(one['set'] for one in sets)} | mean |"
    yield "|---" * (len(sets) + 2) + "|"
    for place, score in enumerate(sets[0]["scores"]):
        values = [one["scores"][place]["values"][measure] for one in sets]
        mean = 100 * sum(value["value"] for value in values) / len(values)
        cells = " | ".join(map(_cell, values))
        yield f"| `{score['encoder']}` | {cells} | {mean:.2f} |"


def _cell(value: dict[str, Any]) -> str:
    spread = "" if value["spread"] is None else f" ± {100 * value['spread']:.2f}"
    one = value["difference"]
    mark = "*" if one is not None and one["adjusted"] < SIGNIFICANT else ""
    return f"{100 * value['value']:.2f}{spread}{mark}"


def _report(kind: str, data: Path, options: list[str], folder: Path) -> dict[str, Any]:
    """The report of one set, which is computed if it does not exist."""
    command = [RETRIEVER, "eval", kind, str(data), *options, "--output", str(folder)]
    file = folder / "report.json"
    if not file.exists():
        started = time.perf_counter()
        print(shlex.join(command), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"{time.perf_counter() - started:,.0f} s", file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if found["command"] != shlex.join(["retriever", *command[1:]]):
        sys.exit(f"{file}: made by another command; remove it or choose another --output")
    return found


def _search(model: str) -> list[str]:
    return ["--model", model, "--layers-search"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("RETRIEVER_DATA")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the reports")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--encoder", nargs="+", default=[], help="instead of the paper's list")
    parser.add_argument("--classifier", choices=["lr", "lr-senteval", "mlp"], default="mlp")
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
