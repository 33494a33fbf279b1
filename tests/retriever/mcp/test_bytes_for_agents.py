"""How much an agent reads until it has the passage that answers a question on Python's library.

`python_questions.tsv` has 50 questions with the names of what answers each, written before any
search. Every module is a file with the docstrings of `examples/python_docs_corpus.py`.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytest.importorskip("layer_retriever_minilm")

import anyio
from mcp import Client

from retriever import Index
from retriever.documents.languages import ENGLISH_FUNCTION_WORDS
from retriever.documents.outline import place
from retriever.documents.reader import CorpusReader
from retriever.mcp.server import make_server

QUESTIONS = Path(__file__).with_name("python_questions.tsv")
SCRIPT = Path(__file__).parents[3] / "examples/python_docs_corpus.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with a file per module, and the file and lines of each docstring by its name."""
    folder = tmp_path_factory.mktemp("library")
    corpus = folder.with_suffix(".jsonl")
    subprocess.run([sys.executable, SCRIPT, "--output", corpus], check=True, capture_output=True)
    documents = sorted(
        map(json.loads, corpus.read_text().splitlines()), key=lambda one: str(one["module"])
    )
    places = {}
    for module, members in groupby(documents, lambda one: one["module"]):
        lines = [f"# {module}", ""]
        for one in members:
            lines += [f"## {one['id']}", ""]
            start = len(lines) + 1
            # Indented as pydoc does it, so that a comment in an example is no heading.
            lines += [f"    {line}".rstrip() for line in one["text"].split("\n")]
            places[one["id"]] = (f"{module}.md", range(start, len(lines) + 1))
            lines.append("")
        (folder / f"{module}.md").write_text("\n".join(lines))
    return folder, places


def grepped(folder, words):
    """The lines that `grep` prints, as (file, line number, bytes)."""
    patterns = [part for word in words for part in ("-e", word)]
    files = sorted(file.name for file in folder.iterdir())
    done = subprocess.run(
        ["grep", "-Hniw", *patterns, *files], cwd=folder, capture_output=True, check=False
    )
    lines = [[*line.split(b":", 2), line] for line in done.stdout.splitlines(keepends=True)]
    return [(file.decode(), int(number), len(line)) for file, number, _, line in lines]


def reached(read, answers):
    """Bytes of all that was read, those until an answer, or of all, and whether there is one."""
    sizes = [size for *_, size in read]
    for number, (file, lines, _) in enumerate(read, 1):
        numbers = lines if isinstance(lines, range) else (lines,)
        if any(file == path and set(numbers) & set(span) for path, span in answers):
            return sum(sizes), sum(sizes[:number]), True
    return sum(sizes), sum(sizes), False


def size_of(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def hits(found):
    """The hits of a search, as (file, lines, bytes); all else it says is read before the first."""
    sizes = [size_of(hit) for hit in found["hits"]]
    sizes[0] += size_of(found) - sum(sizes)
    for hit, size in zip(found["hits"], sizes, strict=True):
        first, *last = map(int, re.split("[:-]", hit["place"].removeprefix(hit["id"]))[1:])
        yield hit["id"], range(first, (last or [first])[0] + 1), size


@pytest.mark.soak
def test_an_agent_reads_less_than_with_grep_or_of_whole_files(library, tmp_path):
    folder, places = library
    rows = [line.split("\t") for line in QUESTIONS.read_text().splitlines()]
    assert len(rows) == 50
    measured = defaultdict(list)
    with Index.create(tmp_path / "library.index") as index:
        index.add(CorpusReader([folder]))

        async def run():
            async with Client(make_server({"library": index})) as client:
                for question, names in rows:
                    answers = [places[name] for name in names.split() if name in places]
                    assert answers, question
                    asked = set(re.findall(r"[a-z]+", question.lower()))
                    words = sorted(asked - ENGLISH_FUNCTION_WORDS)
                    each = [one for one in (grepped(folder, [word]) for word in words) if one]
                    # An agent that is told the right file reads it as a whole.
                    size = min((folder / file).stat().st_size for file, _ in answers)
                    read = {
                        "grep, all words": grepped(folder, words),
                        "grep, the rarest word": min(each, key=len),
                        "the file": [(*answers[0], size)],
                    }
                    for k in (5, 10):
                        found = await client.call_tool("search", {"query": question, "k": k})
                        read[f"search, k={k}"] = list(hits(found.structured_content))
                    # One that finds no answer in the hits reads on in the file of the first.
                    read["search, then get"] = read["search, k=5"]
                    if not reached(read["search, k=5"], answers)[-1]:
                        first = read["search, k=5"][0][0]
                        got = (await client.call_tool("get", {"id": first})).structured_content
                        lines = place(
                            index[first].outline, index[first].text, (0, got["stop"])
                        ).lines
                        part = (first, range(lines[0], lines[1] + 1), size_of(got))
                        read["search, then get"] = [*read["search, k=5"], part]
                    for how, one in read.items():
                        measured[how].append(reached(one, answers))

        anyio.run(run)
    medians = {}
    for how, values in measured.items():
        whole, until, found = zip(*values, strict=True)
        medians[how] = statistics.median(whole)
        sys.stdout.write(
            f"{how:22} found {sum(found)} of {len(found)}, median bytes {medians[how]:,.0f}, "
            f"until the answer {statistics.median(until):,.0f}\n"
        )
    assert sum(found for *_, found in measured["search, k=5"]) >= 30
    assert medians["search, k=5"] < min(medians["grep, all words"] / 50, medians["the file"])
