import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "python_docs_corpus.py"
KINDS = {"module", "class", "method", "function"}


def run(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    return path, run("--output", path)


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_corpus_has_thousands_of_valid_documents_with_unique_ids_and_texts(corpus):
    path, finished = corpus
    documents = records(path)
    assert len(documents) >= 3000
    for field in ("id", "text"):
        assert len({document[field] for document in documents}) == len(documents)
    for document in documents:
        assert list(document) == ["id", "title", "text", "module", "kind", "line"]
        assert document["id"] == document["title"] != ""
        assert len(document["text"]) >= 40
        assert document["text"] == document["text"].strip()
        assert document["line"] is None or document["line"] >= 1
    assert {document["kind"] for document in documents} == KINDS
    # One line on stderr counts them.
    (line,) = finished.stderr.splitlines()
    assert f"{len(documents)} documents" in line
    assert finished.stdout == ""


def test_corpus_has_public_objects_with_their_place_and_no_private_ones(corpus):
    documents = {document["id"]: document for document in records(corpus[0])}
    loads = documents["json.loads"]
    assert (loads["module"], loads["kind"]) == ("json", "function")
    source = Path(importlib.util.find_spec("json").origin).read_text(encoding="utf-8")
    node = next(n for n in ast.parse(source).body if getattr(n, "name", "") == "loads")
    assert loads["line"] == node.lineno
    assert loads["text"] == ast.get_docstring(node).strip()
    assert documents["fractions.Fraction.limit_denominator"]["kind"] == "method"
    assert documents["len"] | {"text": ""} == {
        **{"id": "len", "title": "len", "text": "", "module": "builtins"},
        **{"kind": "function", "line": None},
    }
    assert documents["itertools.chain"]["kind"] == "class"
    for name, document in documents.items():
        assert not any(part.startswith("_") for part in name.split(".")), name
        assert document["module"].split(".")[0] not in {"test", "idlelib", "lib2to3"}


def test_limit_keeps_the_first_documents_and_bad_arguments_are_one_error(corpus, tmp_path):
    run("--output", tmp_path / "again.jsonl", "--limit", 7)
    assert records(tmp_path / "again.jsonl") == records(corpus[0])[:7]
    for name, limit, message in (
        ("c.jsonl", 0, "--limit"),
        ("absent/c.jsonl", 1, "cannot write the"),
    ):
        finished = run("--output", tmp_path / name, "--limit", limit, check=False)
        assert finished.returncode == 2
        assert message in finished.stderr.splitlines()[-1]
    assert [child.name for child in tmp_path.iterdir()] == ["again.jsonl"]
