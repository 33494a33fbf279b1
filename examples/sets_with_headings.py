"""Write documents with headings, and questions on them, to measure what headings are worth.

    python examples/sets_with_headings.py python-docs /usr/share/doc/python3/html --output FOLDER
    python examples/sets_with_headings.py medquad $RETRIEVER_DATA/medquad --output FOLDER
    python examples/sets_with_headings.py places FOLDER --hits HITS.jsonl --output FILE.run

`python-docs` reads the tutorial, the language reference and some pages of the library from the
Debian package python3-doc: each page is a document. The questions are entries of its index with a
place in the text, such as "operator precedence", but for those that a heading of the page repeats.

`medquad` makes five topics of a source a document, with the topics as headings and the answers
below them. The questions are those of the set.

FOLDER gets `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`, in which the document with the answer is
relevant, and `places.jsonl`, which says where in it. `places` reads the output of
`retriever query --queries FOLDER/queries.jsonl --json` and writes a TREC run in which a document
counts as another one where the passage of the hit is not at that place. Needs the standard library
only.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from html.parser import HTMLParser
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

QUESTIONS = 300
# Parts of the documentation, and how many pages of the last one: all would take an hour.
PARTS, LIBRARY_PAGES = ("tutorial", "reference", "library"), 12
SOURCES, TOPICS = ("CDC", "NINDS"), 5
BLOCKS = {"p", "pre", "dt", "dd", "li", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6", "div"}


class Answer(NamedTuple):
    """A question, and the characters of a document that answer it."""

    question: str
    id: str
    start: int
    stop: int


class Page(HTMLParser):
    """The text of a page's body, its headings as an outline, and the offsets of its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.outline, self.anchors = "", list[list[Any]](), dict[str, int]()
        self._depth, self._skipped, self._verbatim, self._heading = 0, False, False, 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        attributes = dict(attrs)
        if tag == "div":
            self._depth += bool(self._depth or attributes.get("role") == "main")
        self._skipped = tag == "a" and attributes.get("class") == "headerlink"
        if self._depth and tag in BLOCKS:
            self.text = self.text.rstrip()
            self.text += "\n\n" if self.text else ""
            if tag[0] == "h":
                self._heading = int(tag[1])
                self.outline.append([len(self.text), "heading", "", self._heading])
            self._verbatim = tag == "pre"
        if name := attributes.get("id"):
            self.anchors[name] = len(self.text)

    def handle_endtag(self, tag: str) -> None:  # noqa: D102
        if tag == "div" and self._depth:
            self._depth -= 1
        elif tag == "pre":
            self._verbatim = False
        elif tag in BLOCKS and self._heading:
            self.outline[-1][2] = " ".join(self.text[self.outline[-1][0] :].split())
            self._heading = 0
        self._skipped = False

    def handle_data(self, data: str) -> None:  # noqa: D102
        if self._depth and not self._skipped:
            self.text += data if self._verbatim else re.sub(r"\s+", " ", data)


class Index(HTMLParser):
    """(words, address) of each entry of the index, after the words of those that it is under."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, str]] = []
        self._words: list[str] = []
        self._address = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        if tag == "li":
            self._words.append("")
        elif tag == "a":
            self._address = dict(attrs).get("href") or ""

    def handle_endtag(self, tag: str) -> None:  # noqa: D102
        if tag == "a" and self._address and self._words:
            self.entries.append((" ".join(" ".join(self._words).split()), self._address))
            self._address = ""
        elif tag == "li" and self._words:
            self._words.pop()

    def handle_data(self, data: str) -> None:  # noqa: D102
        if self._words and not re.fullmatch(r"\[\d+\]", data) and data.strip() != ",":
            self._words[-1] += data


def python_docs(folder: Path) -> tuple[list[dict[str, Any]], list[Answer]]:
    """The pages, and their index."""
    index = Index()
    index.feed((folder / "genindex-all.html").read_text("utf-8"))
    terms = [
        (words, *address.partition("#")[::2])
        for words, address in index.entries
        if "#index-" in address and len(words.split()) > 1
    ]
    ids = {part: sorted({page for _, page, _ in terms if page.startswith(part)}) for part in PARTS}
    ids["library"] = random.Random(0).sample(ids["library"], LIBRARY_PAGES)
    documents, answers = [], []
    for id_ in sorted(chain.from_iterable(ids.values())):
        page = Page()
        page.feed((folder / id_).read_text("utf-8"))
        text, labels = page.text.rstrip(), {mark[2].casefold() for mark in page.outline}
        title = page.outline[0][2]
        documents.append({"id": id_, "title": title, "text": text, "outline": page.outline})
        for words, own, anchor in terms:
            if own == id_ and words.casefold() not in labels and anchor in page.anchors:
                start = page.anchors[anchor]
                start += len(text[start:]) - len(text[start:].lstrip())
                answers.append(Answer(words, id_, start, start + 1))
    return documents, answers


def medquad(folder: Path) -> tuple[list[dict[str, Any]], list[Answer]]:
    """The chapters, and the questions of the set."""
    lines = (folder / "queries.all.jsonl").read_text("utf-8").splitlines()
    texts = {query["id"]: query["text"] for query in map(json.loads, lines)}
    judged = (folder / "qrels.all.tsv").read_text("utf-8").splitlines()
    questions = {row[2]: texts[row[0]] for row in map(str.split, judged)}
    records = map(json.loads, (folder / "corpus.jsonl").read_text("utf-8").splitlines())
    documents, answers = [], []
    for source, own in groupby(records, key=lambda record: record["id"].split("_")[0]):
        topics = [
            (name, [*topic_records])
            for name, topic_records in groupby(own, key=itemgetter("title"))
        ]
        for first in range(0, len(topics) if source in SOURCES else 0, TOPICS):
            id_, text, outline = f"{source}-{first}", "", []
            for name, topic_records in topics[first : first + TOPICS]:
                outline.append([len(text), "heading", name, 1])
                text += f"{name}\n\n"
                for topic_record in topic_records:
                    start, answer = len(text), topic_record["text"].strip()
                    answers.append(
                        Answer(questions[topic_record["id"]], id_, start, start + len(answer))
                    )
                    text += f"{answer}\n\n"
            record = {"id": id_, "title": source, "text": text.rstrip(), "outline": outline}
            documents.append(record)
    return documents, answers


def write_set(documents: list[dict[str, Any]], answers: list[Answer], output: Path) -> None:
    """Write the files of a set, with some of the questions."""
    by_question = defaultdict[str, list[Answer]](list)
    for answer in answers:
        by_question[answer.question].append(answer)
    sampled_questions = random.Random(0).sample(
        sorted(by_question), min(QUESTIONS, len(by_question))
    )
    queries = [{"id": f"q{number}", "text": text} for number, text in enumerate(sampled_questions)]
    places = [
        {"query": query["id"], **answer._asdict()}
        for query in queries
        for answer in by_question[query["text"]]
    ]
    output.mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries), ("places", places)):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (output / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    qrels = dict.fromkeys(f"{place['query']} 0 {place['id']} 1\n" for place in places)
    (output / "qrels.tsv").write_text("".join(qrels), "utf-8")
    print(f"{output}: {len(documents):,} documents, {len(queries):,} questions")


def write_places(folder: Path, hits: Path, output: Path) -> None:
    """Write hits as a run in which only those at the place of an answer keep their document."""
    places = defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    for place in map(json.loads, (folder / "places.jsonl").read_text("utf-8").splitlines()):
        places[place["query"], place["id"]].append((place["start"], place["stop"]))
    with output.open("w", encoding="utf-8") as run:
        for hit in map(json.loads, hits.read_text("utf-8").splitlines()):
            answer_place = places[hit["query"], hit["id"]]
            is_there = any(
                hit["start"] < stop and start < hit["stop"] for start, stop in answer_place
            )
            id_ = hit["id"] if is_there else f"{hit['id']}/elsewhere"
            run.write(f"{hit['query']} Q0 {id_} {hit['rank']} {hit['score']!r} places\n")


def main() -> None:
    """Read the arguments and write the set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["python-docs", "medquad", "places"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hits", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.output.exists():
        sys.exit(f"{arguments.output}: exists; choose another name")
    if arguments.kind == "places":
        write_places(arguments.folder, arguments.hits, arguments.output)
    else:
        read = python_docs if arguments.kind == "python-docs" else medquad
        write_set(*read(arguments.folder), arguments.output)


if __name__ == "__main__":
    main()
