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

from retriever import Index
from retriever.documents import CorpusReader
from retriever.documents.languages import ENGLISH_FUNCTION_WORDS
from retriever.mcp.budget import to_json
from retriever.mcp.server import _Tools

QUESTIONS = Path(__file__).with_name("python_questions.tsv")
SCRIPT = Path(__file__).parents[3] / "examples/python_docs_corpus.py"


@pytest.fixture
def library(tmp_path):
    """A folder with a file per module, and the file and lines of each docstring by its name."""
    folder, corpus, places = tmp_path / "library", tmp_path / "library.jsonl", {}
    folder.mkdir()
    subprocess.run([sys.executable, SCRIPT, "--output", corpus], check=True, capture_output=True)
    documents = sorted(
        map(json.loads, corpus.read_text().splitlines()), key=lambda one: str(one["module"])
    )
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


def grep_lines(folder, words):
    """Yield (file, line numbers, bytes) of each line that `grep` prints."""
    patterns = [part for word in words for part in ("-e", word)]
    files = sorted(file.name for file in folder.iterdir())
    done = subprocess.run(
        ["grep", "-Hniw", *patterns, *files], cwd=folder, capture_output=True, check=False
    )
    for line in done.stdout.splitlines(keepends=True):
        file, number, _ = line.split(b":", 2)
        yield file.decode(), {int(number)}, len(line)


def search_lines(answer):
    """Yield (file, line numbers, bytes) of each hit; the first one includes the other fields."""
    sizes = [len(to_json(hit).encode()) for hit in answer["hits"]]
    sizes[0] += len(to_json(answer).encode()) - sum(sizes)
    for hit, size in zip(answer["hits"], sizes, strict=True):
        first, *last = map(int, re.split("[:-]", hit["place"].removeprefix(hit["id"]))[1:])
        yield hit["id"], set(range(first, (last or [first])[0] + 1)), size


def bytes_read(read, answers):
    """Return bytes read in total, bytes read up to an answer, and whether an answer was read."""
    sizes = [size for *_, size in read]
    for number, (file, numbers, _) in enumerate(read, 1):
        if any(file == path and numbers & set(span) for path, span in answers):
            return sum(sizes), sum(sizes[:number]), True
    return sum(sizes), sum(sizes), False


@pytest.mark.soak
def test_agent_reads_fewer_bytes_by_search_than_by_grep(library, tmp_path):
    folder, places = library
    rows = [line.split("\t") for line in QUESTIONS.read_text().splitlines()]
    assert len(rows) == 50
    measured = defaultdict(list)
    with Index.create(tmp_path / "library.index") as index:
        index.add(CorpusReader([folder]))
        tools = _Tools({"library": index})
        for question, names in rows:
            answers = [places[name] for name in names.split() if name in places]
            assert answers, question
            words = set(re.findall(r"[a-z]+", question.lower())) - ENGLISH_FUNCTION_WORDS
            answer = tools.call("search", {"query": question}).structured_content
            # An agent that is told the right file reads it as a whole.
            size = min((folder / file).stat().st_size for file, _ in answers)
            for how, read in (
                ("grep", list(grep_lines(folder, sorted(words)))),
                ("the file", [(answers[0][0], set(answers[0][1]), size)]),
                ("search", list(search_lines(answer))),
            ):
                measured[how].append(bytes_read(read, answers))
    medians = {}
    for how, values in measured.items():
        whole, until, answer = zip(*values, strict=True)
        medians[how] = statistics.median(whole)
        sys.stdout.write(
            f"{how:9} found {sum(answer)} of {len(answer)}, median bytes {medians[how]:,.0f}, "
            f"until the answer {statistics.median(until):,.0f}\n"
        )
    assert sum(answer for *_, answer in measured["search"]) >= 30
    assert medians["search"] < min(medians["grep"] / 50, medians["the file"])
