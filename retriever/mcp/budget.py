"""Answers within a number of tokens, which describe the parts that they omit.

The number of tokens is estimated as a quarter of the bytes of the answer's JSON, rounded up.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from retriever.documents.document import Document
from retriever.search.engine import Hit
from retriever.search.queries import Excerpt

_BYTES_PER_TOKEN = 4
# Bytes reserved for the fields `truncated` and `more`.
_RESERVED = 320
# Least bytes for each of several documents, as long as so many remain.
_LEAST_PART = 400
# Least characters of a passage that is cut, except for the first hit.
_SHORTEST = 200


def fit_hits(
    index: str,
    hits: Sequence[tuple[Hit, Excerpt]],
    offset: int,
    max_tokens: int,
    notes: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the answer of a search.

    Args:
        index: name of the index.
        hits: the hits in order, each with its excerpt.
        offset: number of hits before the first one.
        max_tokens: maximum size of the answer.
        notes: notes for the agent; they get at most a quarter of the size.
        details: further fields.
    """
    answer: dict[str, Any] = {"index": index, **(details or {}), "hits": []}
    if notes:
        share = max_tokens * _BYTES_PER_TOKEN // 4 // len(notes)
        answer["notes"] = [note[: _longest_prefix(note, share)] for note in notes]
    more = []
    for position, (hit, excerpt) in enumerate(hits):
        room = max_tokens * _BYTES_PER_TOKEN - _RESERVED - _size(answer)
        record = _fit_hit(hit, excerpt, room, is_first=position == 0)
        if record is None:
            more.append(
                f"the hits from rank {hit.rank} did not fit: search again with "
                f"offset={offset + position} or a higher max_tokens"
                if position
                else f"the id of rank {hit.rank} alone is too long: search again with a higher "
                f"max_tokens, or with offset={offset + 1}"
            )
            break
        answer["hits"].append(record)
        if record.get("cut"):
            more.append(
                f"the text of rank {hit.rank} was cut: get its id with start={record['stop']}"
            )
            if position + 1 < len(hits):
                more.append(f"the next hits did not fit: offset={offset + position + 1}")
            break
    answer["truncated"] = bool(more)
    if more:
        answer["more"] = "; ".join(more)
    return answer


def _fit_hit(hit: Hit, excerpt: Excerpt, room: int, *, is_first: bool) -> dict[str, Any] | None:
    """Return a hit in at most `room` bytes; None if it does not fit.

    A hit loses its neighboring passages first, then the end of its passage. The first hit also
    loses its description.
    """
    record = _hit_record(hit, excerpt)
    if _size(record) <= room:
        return record
    passage = Excerpt(hit.id, hit.start, hit.stop, hit.passage, excerpt.length)
    record = {**_hit_record(hit, passage), "context_left_out": True}
    if excerpt != passage and _size(record) <= room:
        return record
    del record["context_left_out"]
    record |= {"text": "", "cut": True}
    least = 1 if is_first else _SHORTEST
    if is_first and _longest_prefix(passage.text, room - _size(record)) < least:
        _remove_fields(record, "title", "place", "section", "metadata")
    length = _longest_prefix(passage.text, room - _size(record))
    record["text"] = passage.text[:length]
    record["stop"] = passage.start + length
    if length == len(passage.text):
        del record["cut"]
    is_fitting = (length >= least or not passage.text) and _size(record) <= room
    return record if is_fitting else None


def _hit_record(hit: Hit, excerpt: Excerpt) -> dict[str, Any]:
    """Return the fields of a hit for an agent; scores have four decimals."""
    record: dict[str, Any] = {"rank": hit.rank, "id": hit.id}
    if hit.title is not None:
        record["title"] = hit.title
    if hit.place is not None:
        path, section = hit.place.of(hit.id, hit.title)
        has_lines = hit.place.lines is not None
        record["place"] = path if has_lines else ", ".join(filter(None, (path, section)))
        if has_lines and section:
            record["section"] = section
    record |= {"start": excerpt.start, "stop": excerpt.stop, "text": excerpt.text}
    if (excerpt.start, excerpt.stop) != (hit.start, hit.stop):
        record["passage"] = [hit.start, hit.stop]
    record |= {"length": excerpt.length, "score": round(hit.score, 4)}
    for name in ("dense", "bm25"):
        score = getattr(hit, name)
        if score is not None:
            record[name] = round(score, 4)
            record[f"{name}_rank"] = getattr(hit, f"{name}_rank")
    return record | ({"metadata": hit.metadata} if hit.metadata else {})


def fit_document(
    index: str, document: Document, start: int, stop: int | None, max_tokens: int
) -> dict[str, Any]:
    """Return a document's text from `start` to `stop`, cut or without metadata if necessary."""
    answer: dict[str, Any] = {"index": index}
    room = max_tokens * _BYTES_PER_TOKEN - _RESERVED
    answer["truncated"] = _add_part(answer, document, start, stop, room)
    if answer["truncated"]:
        remedy = f"start={answer['stop']}" if answer["text"] else "a higher max_tokens"
        answer["more"] = f"the text was cut: get the same id with {remedy}"
    return answer


def fit_documents(
    index: str,
    parts: Sequence[tuple[str, tuple[Document, int, int | None] | str]],
    max_tokens: int,
) -> dict[str, Any]:
    """Return parts of documents, each in an equal share of the remaining bytes.

    Args:
        index: name of the index.
        parts: for each requested text, a document with the start and stop of its part, or the
            reason why it cannot be read.
        max_tokens: maximum size of the answer.
    """
    answer: dict[str, Any] = {"index": index, "documents": []}
    more = []
    for number, (name, part) in enumerate(parts):
        room = max_tokens * _BYTES_PER_TOKEN - _RESERVED - _size(answer)
        record: dict[str, Any] = {}
        if isinstance(part, str):
            record = {"id": name, "error": part}
        else:
            share = min(room, max(room // (len(parts) - number), _LEAST_PART))
            if _add_part(record, *part, share - len(',"cut":true')):
                record["cut"] = True
        if _size(record) > room or (record.get("cut") and not record["text"]):
            more.append(
                f"ids from number {number + 1} on did not fit: get them in another call"
                if number
                else "the first id did not fit: get it with a higher max_tokens"
            )
            break
        answer["documents"].append(record)
    if any(record.get("cut") for record in answer["documents"]):
        more.append("texts with cut=true go on at their stop: get ID[stop:]")
    answer["truncated"] = bool(more)
    if more:
        answer["more"] = "; ".join(more)
    return answer


def _add_part(
    answer: dict[str, Any], document: Document, start: int, stop: int | None, room: int
) -> bool:
    """Add a part of a document to an answer of at most `room` bytes; return if it was cut."""
    length = len(document.text)
    start = min(start, length)
    stop = length if stop is None else max(start, min(stop, length))
    answer["id"] = document.id
    for name, value in (("title", document.title), ("metadata", document.metadata)):
        if value:
            answer[name] = value
            if _size(answer) > room // 2:
                _remove_fields(answer, name)
    answer |= {"length": length, "start": start, "stop": stop, "text": ""}
    size = _longest_prefix(document.text[start:stop], room - _size(answer))
    answer["text"] = document.text[start : start + size]
    answer["stop"] = start + len(answer["text"])
    return start + size < stop


def _remove_fields(record: dict[str, Any], *names: str) -> None:
    """Remove fields from a record, and list the removed ones in it."""
    removed = [name for name in names if record.pop(name, None) is not None]
    if removed:
        record["left_out"] = [*record.get("left_out", ()), *removed]


def fit_state(
    explanations: dict[str, str], indexes: Sequence[dict[str, Any]], max_tokens: int
) -> dict[str, Any]:
    """Return the state of indexes.

    Too large an answer loses the last fields of the indexes, then explanations, then the last
    indexes.
    """
    states = [{**state, "fields": dict(state["fields"])} for state in indexes]
    answer: dict[str, Any] = {**explanations, "indexes": states, "truncated": False}
    room = max_tokens * _BYTES_PER_TOKEN - _RESERVED
    for state in reversed(states):
        while state["fields"] and _size(answer) > room:
            state["fields"].popitem()
    for name in reversed(explanations):
        if _size(answer) > room:
            del answer[name]
    while states and _size(answer) > room:
        states.pop()
    if answer != {**explanations, "indexes": list(indexes), "truncated": False}:
        answer["truncated"] = True
        answer["more"] = "not all fits: ask for one index, or with a higher max_tokens"
    return answer


def _size(value: Any) -> int:
    """Return the bytes of a JSON value."""
    return len(to_json(value).encode("utf-8", "surrogatepass"))


def to_json(value: Any) -> str:
    """Return JSON for agents: compact, without escapes of letters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _longest_prefix(text: str, room: int) -> int:
    """Return how many characters fit in `room` bytes of JSON, of whole words if possible."""
    if _size(text) - 2 <= room:
        return len(text)
    # A character takes at least one byte.
    length = bisect_right(
        range(1, min(len(text), max(room, 0)) + 1), room, key=lambda n: _size(text[:n]) - 2
    )
    word_ends = (i for i in range(length, max(0, length - 80), -1) if text[i].isspace())
    return max(word_ends, default=0) or length
