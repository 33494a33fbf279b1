"""TREC's topics, judgments (qrels) and a corpus in one folder.

Topics are in the classic form, `<top> <num> Number: 301 <title> ... </top>`, or in the later one,
`<topic number="1"> <query> ... </query> </topic>`. Of the classic form the title is the question,
or the description where there is none (TREC-4); of the other the query, else the title, else the
text of the topic itself.
"""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path
from xml.sax.saxutils import unescape

from eval.datasets.files import matching
from eval.datasets.qa.question_set import Question, QuestionSet
from eval.datasets.records import SHOWN, check_answered, check_judged, put_new, text_of
from eval.metrics.trec import read_qrels
from retriever.errors import SourceError

_OPEN = re.compile(r"<(top|topic)\b([^>]*)>", re.IGNORECASE)
_NUMBER = re.compile(r"<num>\s*(?:Number\s*:)?\s*([^\s<]+)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\b(?:number|id)\s*=\s*["']([^"']*)["']""", re.IGNORECASE)
_FIELD = r"<{0}>\s*(?:(?:Topic|Description)\s*:)?([^<]*)"
_QUOTES = {"&quot;": '"', "&apos;": "'"}


def splits(folder: Path) -> tuple[str, ...]:
    """There is one."""
    return ("test",)


def read(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read the topics, in their order; the whole corpus is ranked.

    A topic written with leading zeros (051) is also found in judgments without them (51).

    Raises:
        SourceError: there are several files of topics, judgments or corpora, one is malformed, or
            a topic is judged that is not there; names file and, if known, line.
    """
    topics = _only(folder, "topics.*")
    qrels = _only(folder, "qrels.*")
    corpus = _only(folder, "corpus.*", "corpus")
    judged = read_qrels(qrels)
    asked = _topics(topics, judged)
    check_judged(qrels, judged, asked, topics)
    check_answered(qrels, judged, topics)
    questions = tuple(
        Question(query, text, (), judged.get(query, {})) for query, text in asked.items()
    )
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))


def _only(folder: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in matching(folder, pattern)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SourceError(
            f"{folder}: expected one file {patterns[0]}, found {names}; leave one in the folder"
        )
    return found[0]


def _topics(path: Path, judged: Container[str]) -> dict[str, str]:
    text = text_of(path)
    topics: dict[str, str] = {}
    seen: dict[str, str] = {}
    openings = list(_OPEN.finditer(text))
    ends = [*(opening.start() for opening in openings), len(text)][1:]
    for opening, end in zip(openings, ends, strict=True):
        where = f"{path}:{text.count(chr(10), 0, opening.start()) + 1}"
        tag = opening[1]
        body, closed, _ = text[opening.end() : end].partition(f"</{tag}>")
        if not closed:
            raise SourceError(
                f"{where}: expected </{tag}> for this topic, found none; correct the file"
            )
        number = _ATTRIBUTE.search(opening[2]) or _NUMBER.search(body)
        question = _question(body, classic=tag.lower() == "top")
        if number is None or not question:
            what = "a number" if number is None else "a title or query"
            raise SourceError(
                f"{where}: expected {what} in this topic, found "
                f"{' '.join(body.split())[:SHOWN]!r}; correct the file"
            )
        id_ = number[1]
        if id_ not in judged and id_.lstrip("0") in judged:
            id_ = id_.lstrip("0")
        put_new(seen, where, id_, "topic")
        topics[id_] = question
    if not topics:
        raise SourceError(
            f"{path}: expected topics (<top> or <topic number=...>), found none; check that it is "
            "the right file"
        )
    return topics


def _question(body: str, *, classic: bool) -> str:
    for name in ("title", "desc") if classic else ("query", "title"):
        found = re.search(_FIELD.format(name), body, re.IGNORECASE)
        if found and found[1].strip():
            return _plain(found[1])
    return "" if classic else _plain(body.partition("<")[0])


def _plain(text: str) -> str:
    return " ".join(unescape(text, _QUOTES).split())
