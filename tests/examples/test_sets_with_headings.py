"""`examples/sets_with_headings.py` writes documents that `index` reads, and where answers are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retriever.documents import CorpusReader

SCRIPT = Path(__file__).parents[2] / "examples/sets_with_headings.py"
PAGE = """<html><body><a id="outside"></a><div class="body" role="main"><section id="s">
<h1>Expressions<a class="headerlink" href="#s">¶</a></h1><p>Some   words.</p>
<h2 id="p">Precedence</h2><p><span id="index-1"></span>Operators bind.</p>
<pre>a  = 1
</pre></section></div><div>Footer</div></body></html>"""
INDEX = """<ul><li>operator<ul><li><a href="reference/a.html#index-1">precedence</a></li></ul></li>
<li><a href="reference/a.html#index-1">Precedence</a></li>
<li><a href="c-api/x.html#y">f()</a></li></ul>"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], check=True, capture_output=True, text=True
    )


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def html(tmp_path):
    for name in ["reference/a.html", *(f"library/{number}.html" for number in range(12))]:
        path = tmp_path / "html" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE, "utf-8")
    more = "".join(f'<a href="library/{n}.html#index-9">one two</a>' for n in range(12))
    (tmp_path / "html/genindex-all.html").write_text(f"{INDEX}<li>{more}</li>", "utf-8")
    return tmp_path / "html"


def test_python_docs_pages_get_outlines_and_index_entries_become_questions(html, tmp_path):
    run("python-docs", html, "--output", tmp_path / "set")
    *_, page = CorpusReader([tmp_path / "set/corpus.jsonl"])
    assert (page.id, page.title) == ("reference/a.html", "Expressions")
    assert page.text == "Expressions\n\nSome words.\n\nPrecedence\n\nOperators bind.\n\na  = 1"
    assert [(mark.label, mark.level) for mark in page.outline] == [
        ("Expressions", 1),
        ("Precedence", 2),
    ]
    (place,) = lines(tmp_path / "set/places.jsonl")
    assert (place["question"], place["id"]) == ("operator precedence", "reference/a.html")
    assert page.text[place["start"] :].startswith("Operators")
    # Of two hits in the document, one is at the place.
    hits = [
        {
            "query": "q0",
            "id": page.id,
            "rank": rank,
            "score": 1 / rank,
            "start": start,
            "stop": stop,
        }
        for rank, (start, stop) in enumerate([(0, 20), (20, 60)], 1)
    ]
    (tmp_path / "hits.jsonl").write_text("".join(json.dumps(hit) + "\n" for hit in hits))
    run("places", tmp_path / "set", "--hits", tmp_path / "hits.jsonl", "--output", tmp_path / "run")
    ids = [line.split()[2] for line in (tmp_path / "run").read_text().splitlines()]
    assert ids == ["reference/a.html/elsewhere", "reference/a.html"]


def test_medquad_topics_become_headings_of_one_document_per_source(tmp_path):
    records = [("CDC_1", "Flu", "It spreads."), ("CDC_2", "Flu", "Rest."), ("X_1", "Other", "No.")]
    rows = {
        "corpus.jsonl": [{"id": i, "title": title, "text": text} for i, title, text in records],
        "queries.all.jsonl": [{"id": f"q_{i}", "text": f"About {i}?"} for i, *_ in records],
    }
    (tmp_path / "medquad").mkdir()
    for name, file_rows in rows.items():
        (tmp_path / "medquad" / name).write_text(
            "".join(json.dumps(row) + "\n" for row in file_rows)
        )
    qrels = "".join(f"q_{i} 0 {i} 1\n" for i, *_ in records)
    (tmp_path / "medquad/qrels.all.tsv").write_text(qrels)
    run("medquad", tmp_path / "medquad", "--output", tmp_path / "set")
    (chapter,) = CorpusReader([tmp_path / "set/corpus.jsonl"])
    assert chapter.text == "Flu\n\nIt spreads.\n\nRest."
    answers = {
        place["question"]: chapter.text[place["start"] : place["stop"]]
        for place in lines(tmp_path / "set/places.jsonl")
    }
    assert answers == {"About CDC_1?": "It spreads.", "About CDC_2?": "Rest."}
