from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "python_docs_corpus.py"
KINDS = {"module", "class", "method", "function", "topic"}


def run(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    return path, run("--output", path)


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_thousands_of_valid_documents_with_unique_ids_and_texts(corpus):
    path, _ = corpus
    documents = records(path)
    assert len(documents) >= 3000
    assert len({document["id"] for document in documents}) == len(documents)
    assert len({document["text"] for document in documents}) == len(documents)
    for document in documents:
        assert list(document) == ["id", "title", "text", "module", "kind", "line"]
        assert document["id"] == document["title"] != ""
        assert document["kind"] in KINDS
        assert len(document["text"]) >= 40
        assert document["text"] == document["text"].strip()
        assert document["line"] is None or document["line"] >= 1
    assert {document["kind"] for document in documents} == KINDS


def test_known_documents_are_there_with_their_place_and_private_ones_are_not(corpus):
    documents = {document["id"]: document for document in records(corpus[0])}
    loads = documents["json.loads"]
    assert (loads["module"], loads["kind"]) == ("json", "function")
    source = Path(importlib.util.find_spec("json").origin).read_text(encoding="utf-8")
    node = next(n for n in ast.parse(source).body if getattr(n, "name", "") == "loads")
    assert loads["line"] == node.lineno
    assert loads["text"] == ast.get_docstring(node).strip()
    assert documents["pathlib.Path.glob"]["kind"] == "method"
    assert documents["len"] | {"text": ""} == {
        **{"id": "len", "title": "len", "text": "", "module": "builtins"},
        **{"kind": "function", "line": None},
    }
    assert documents["itertools.chain"]["kind"] == "class"
    assert documents["topic:lambda"]["kind"] == "topic"
    for name, document in documents.items():
        if document["kind"] != "topic":
            assert not any(part.startswith("_") for part in name.split(".")), name
        assert document["module"].split(".")[0] not in {"test", "idlelib", "lib2to3"}


def test_a_limit_keeps_the_first_documents_and_leaves_no_other_file(corpus, tmp_path):
    path, _ = corpus
    run("--output", tmp_path / "again.jsonl", "--limit", 7)
    assert records(tmp_path / "again.jsonl") == records(path)[:7]
    assert [child.name for child in tmp_path.iterdir()] == ["again.jsonl"]


def test_one_line_on_stderr_counts_the_documents(corpus):
    path, finished = corpus
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert f"{len(records(path))} documents" in finished.stderr
    assert "topic" in finished.stderr


def test_a_bad_limit_or_folder_is_one_error_and_exit_code_2(tmp_path):
    finished = run("--output", tmp_path / "c.jsonl", "--limit", "0", check=False)
    assert finished.returncode == 2
    finished = run("--output", tmp_path / "absent" / "c.jsonl", "--limit", 1, check=False)
    assert finished.returncode == 2
    assert "cannot write the corpus" in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
