"""Meta-embeddings beside their sources: Tables 1 and 2 of Takahashi and Bollegala (2022).

    python benchmarks/meta_tables.py --output FOLDER [--data FOLDER] [--models FOLDER]
        [--sets NAME ...] [--groups NAME ...] [--seeds N] [--source NAME=FORM ...]

Sources are combined in groups by every method. svd, gcca and unsup are fitted on the sentences of
STS-B's training split, without its scores; sup is trained on the scores, and so is the source
`tuned`, which is MiniLM fine-tuned on them. sup is stopped by Pearson's correlation on STS-B dev;
unsup by its loss on held-out sentences (`unsup`), and as in the paper by STS-B dev (`unsup-dev`).
For each group one `retriever eval sts` scores its sources and their meta-embeddings, and compares
them with the group's first source; the sources are in the order of their scores, so that it is the
best of them. `sentence` maps vectors of texts, with the weights of words that uSIF and LSA have;
the rest maps vectors of words. A model or report that is there is not made again. At the end it
says how many pairs of each set STS-B's training split holds; with `--groups` and no name only that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval import read_pairs, read_sts

SentencePairs = tuple[Sequence[str], Sequence[str]]
RETRIEVER = str(Path(sys.executable).with_name("retriever"))
SETS = ("sts15", "sts16", "stsb")
# By group, its sources, the best alone first.
GROUPS = {
    "mpnet+minilm": ("mpnet", "minilm"),
    "minilm+layers": ("minilm", "minilm-middle"),
    "minilm+lsa": ("minilm", "lsa"),
    "minilm+usif": ("minilm", "usif"),
    "tuned+minilm": ("tuned", "minilm"),
    "four": ("mpnet", "minilm", "usif", "lsa"),
}
# By name in the table, the options of `retriever train meta`; with * once for each seed.
METHODS = {
    "conc, mean": "--method conc --pooling mean",
    "conc, max": "--method conc --pooling max",
    "avg, mean": "--method avg --pooling mean",
    "avg, max": "--method avg --pooling max",
    "svd": "--method svd",
    "gcca": "--method gcca",
    "conc, sentence": "--method conc --level sentence",
    "svd, sentence": "--method svd --level sentence",
    "gcca, sentence": "--method gcca --level sentence",
    "sup, max*": "--method sup --pooling max",
    "unsup, mean*": "--method unsup --pooling mean",
    "unsup, max*": "--method unsup --pooling max",
    "unsup, mean, no weights*": "--method unsup --pooling mean --no-weights",
    "unsup, max, no weights*": "--method unsup --pooling max --no-weights",
    "unsup-dev, mean*": "--method unsup --pooling mean --dev {stsb}",
    "unsup-dev, max*": "--method unsup --pooling max --dev {stsb}",
}
SIGNIFICANT = 0.05


def main() -> None:
    """Make what is not there yet, and print a table for each group."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    corpus = _sentences(arguments.data / "stsb" / "train.tsv", arguments.output)
    sources = _sources(arguments, corpus)
    for group in arguments.groups:
        forms = {name: sources[name] for name in GROUPS[group] if name in sources}
        if len(forms) < len(GROUPS[group]):
            print(f"{group}: skipped; needs {', '.join(GROUPS[group])} (--models)", file=sys.stderr)
            continue
        folders = dict(_metas(arguments, group, list(forms.values()), corpus))
        report = _report(arguments, group, [*forms.values(), *map(str, folders.values())])
        print("\n".join(_table(group, list(forms), folders, report)), flush=True)
    print("\n".join(_overlaps(arguments)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data, models = (os.environ.get(f"RETRIEVER_{name}") for name in ("DATA", "MODELS"))
    parser.add_argument("--output", type=Path, required=True, help="a folder for models, reports")
    parser.add_argument("--data", type=Path, default=data, required=data is None)
    parser.add_argument("--models", type=Path, default=models, help="of examples/offline_models.py")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--groups", nargs="*", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--source", nargs="+", default=[], help="NAME=FORM: another source, or other settings"
    )
    return parser.parse_args()


def _sentences(pairs: Path, output: Path) -> Path:
    """The sentences of a file of scored pairs, each once, as a corpus."""
    corpus = output / "sentences.jsonl"
    rows = (line.split("\t") for line in pairs.read_text(encoding="utf-8").splitlines()[1:])
    texts = dict.fromkeys(text for row in rows for text in row[1:3])
    lines = [json.dumps({"id": str(i), "text": text}) for i, text in enumerate(texts)]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return corpus


def _sources(arguments: argparse.Namespace, corpus: Path) -> dict[str, str]:
    """Every source that can be had, by name in `GROUPS`."""
    model = "all-MiniLM-L6-v2"
    found = {"minilm": model, "minilm-middle": f"{model}::layers=2,3,4"}
    fit = ["train", "static", str(corpus), "--method"]
    made = {"lsa": [*fit, "lsa"], "tuned": ["train", "encoder", str(arguments.data / "stsb")]}
    if arguments.models:
        found["mpnet"] = str(arguments.models / "all-mpnet-base-v2")
        made["usif"] = [*fit, "usif", "--vectors", str(arguments.models / "glove-6b-50d.txt")]
    needed = {name for group in arguments.groups for name in GROUPS[group]}
    if "mpnet" in needed & found.keys() and not Path(found["mpnet"]).is_dir():
        sys.exit(f"{found['mpnet']}: no such folder; make it by examples/offline_models.py")
    for name in sorted(needed & made.keys()):
        folder = arguments.output / name
        _make(made[name], folder)
        found[name] = str(folder)
    return found | dict(given.split("=", 1) for given in arguments.source)


def _metas(
    arguments: argparse.Namespace, group: str, sources: Sequence[str], corpus: Path
) -> Iterator[tuple[str, Path]]:
    """By method and seed, the meta-embeddings of some sources."""
    stsb = str(arguments.data / "stsb")
    for name in arguments.methods:
        options = METHODS[name].format(stsb=shlex.quote(stsb)).split()
        if "sup" in options:
            options += ["--train", stsb, "--dev", stsb]
        texts = [str(corpus)] if {"svd", "gcca", "unsup"} & set(options) else []
        for seed in range(arguments.seeds if name.endswith("*") else 1):
            label = name.replace("*", f", seed {seed}")
            folder = arguments.output / group / label.replace(", ", "_").replace(" ", "-")
            folder.parent.mkdir(exist_ok=True)
            named = [part for source in sources for part in ("--source", source)]
            _make(
                ["train", "meta", *texts, *named, *options, "--seed", str(seed)],
                folder,
            )
            yield label, folder


def _overlaps(arguments: argparse.Namespace) -> Iterator[str]:
    """How many pairs of each set are in STS-B's training split, by their words in either order."""

    def of(pairs: SentencePairs) -> list[frozenset[tuple[str, ...]]]:
        words = ([tuple(re.findall(r"\w+", text.lower())) for text in one] for one in pairs)
        return [frozenset(pair) for pair in zip(*words, strict=True)]

    stsb = arguments.data / "stsb"
    train = read_pairs([stsb / "train.tsv"])
    seen = set(of((train.left, train.right)))
    yield ""
    for name in arguments.sets:
        parts = [subset.pairs for subset in read_sts(arguments.data / name).subsets]
        found = [pair in seen for one in parts for pair in of((one.left, one.right))]
        yield f"{name}: {sum(found):,} of {len(found):,} pairs are in STS-B's training split"


def _make(command: list[str], folder: Path) -> None:
    if not folder.exists():
        _run([*command, "--output", str(folder)])


def _run(command: list[str]) -> None:
    started = time.perf_counter()
    print(shlex.join(["retriever", *command]), file=sys.stderr, flush=True)
    subprocess.run([RETRIEVER, *command], check=True, stdout=subprocess.DEVNULL)
    print(f"{time.perf_counter() - started:,.0f} s", file=sys.stderr, flush=True)


def _report(arguments: argparse.Namespace, group: str, encoders: Sequence[str]) -> dict[str, Any]:
    """The report of a group, which is made if it is not there."""
    folder = arguments.output / f"{group}-report"
    sets = [str(arguments.data / name) for name in arguments.sets]
    named = [part for encoder in encoders for part in ("-e", encoder)]
    command = ["eval", "sts", *sets, *named, "--output", str(folder)]
    if not (folder / "report.json").exists():
        _run(command)
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if found["command"] != shlex.join(["retriever", *command]):
        sys.exit(f"{folder}: made by another command; remove it or choose another --output")
    return found


def _table(
    group: str, sources: Sequence[str], folders: dict[str, Path], report: dict[str, Any]
) -> Iterator[str]:
    """The lines of a table of encoders by sets: Pearson / Spearman × 100."""
    sets = report["sets"]
    yield ""
    yield f"| {group} | {' | '.join(one['set'] for one in sets)} |"
    yield "|---" * (len(sets) + 1) + "|"
    for place, label in enumerate([*sources, *folders]):
        cells = " | ".join(_cell(one["scores"][place]["values"]) for one in sets)
        yield f"| {label} | {cells} |"


def _cell(values: dict[str, Any]) -> str:
    cells = []
    for measure in ("pearson", "spearman"):
        value = values[measure]
        one = value["difference"]
        mark = "*" if one is not None and one["adjusted"] < SIGNIFICANT else ""
        cells.append(f"{100 * value['value']:.2f}{mark}")
    return " / ".join(cells)


if __name__ == "__main__":
    main()
