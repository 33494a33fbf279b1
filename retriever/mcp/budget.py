"""Answers that fit a number of tokens, and say what they leave out.

Tokens are estimated as the bytes of the answer's JSON in UTF-8 over four, rounded up.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from retriever.documents.document import Document
from retriever.search.engine import Hit
from retriever.search.queries import Excerpt

_BYTES_A_TOKEN = 4
# Bytes kept for the fields `truncated` and `more`.
_RESERVED = 320
# Several documents share what there is; none gets less, if there is as much.
_LEAST_PART = 400
# A passage is not cut to fewer characters than this, except of the first hit.
_SHORTEST = 200


def fit_hits(
    index: str,
    hits: Sequence[tuple[Hit, Excerpt]],
    offset: int,
    max_tokens: int,
    notes: Sequence[str] = (),
    judged: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The answer of a search, whose hits come in order with the stretch of text to show."""
    answer: dict[str, Any] = {"index": index, **(judged or {}), "hits": []}
    if notes:
        share = max_tokens * _BYTES_A_TOKEN // 4 // len(notes)
        answer["notes"] = [note[: _longest(note, share)] for note in notes]
    more = []
    for place, (hit, excerpt) in enumerate(hits):
        room = max_tokens * _BYTES_A_TOKEN - _RESERVED - _size(answer)
        shown = _fit_hit(hit, excerpt, room, first=place == 0)
        if shown is None:
            more.append(
                f"the hits from rank {hit.rank} did not fit: search again with "
                f"offset={offset + place} or a higher max_tokens"
                if place
                else f"the id of rank {hit.rank} alone is too long: search again with a higher "
                f"max_tokens, or with offset={offset + 1}"
            )
            break
        answer["hits"].append(shown)
        if shown.get("cut"):
            more.append(
                f"the text of rank {hit.rank} was cut: get its id with start={shown['stop']}"
            )
            if place + 1 < len(hits):
                more.append(f"the next hits did not fit: offset={offset + place + 1}")
            break
    answer["truncated"] = bool(more)
    if more:
        answer["more"] = "; ".join(more)
    return answer


def _fit_hit(hit: Hit, excerpt: Excerpt, room: int, *, first: bool) -> dict[str, Any] | None:
    """A hit in at most `room` bytes, or None.

    It loses its neighboring passages first and the end of its passage next; if the first hit still
    does not fit, what describes it.
    """
    whole = _shown(hit, excerpt)
    if _size(whole) <= room:
        return whole
    own = Excerpt(hit.id, hit.start, hit.stop, hit.passage, excerpt.length)
    shown = {**_shown(hit, own), "context_left_out": True}
    if excerpt != own and _size(shown) <= room:
        return shown
    del shown["context_left_out"]
    shown |= {"text": "", "cut": True}
    least = 1 if first else _SHORTEST
    if first and _longest(own.text, room - _size(shown)) < least:
        _leave_out(shown, "title", "place", "section", "metadata")
    length = _longest(own.text, room - _size(shown))
    shown["text"], shown["stop"] = own.text[:length], own.start + length
    if length == len(own.text):
        del shown["cut"]
    fits = (length >= least or not own.text) and _size(shown) <= room
    return shown if fits else None


def _shown(hit: Hit, excerpt: Excerpt) -> dict[str, Any]:
    """What an agent sees of a hit; scores have four decimals."""
    shown: dict[str, Any] = {"rank": hit.rank, "id": hit.id}
    if hit.title is not None:
        shown["title"] = hit.title
    if hit.place is not None:
        path, rest = hit.place.of(hit.id, hit.title)
        by_line = hit.place.lines is not None
        shown["place"] = path if by_line else ", ".join(filter(None, (path, rest)))
        if by_line and rest:
            shown["section"] = rest
    shown |= {"start": excerpt.start, "stop": excerpt.stop, "text": excerpt.text}
    if (excerpt.start, excerpt.stop) != (hit.start, hit.stop):
        shown["passage"] = [hit.start, hit.stop]
    shown |= {"length": excerpt.length, "score": round(hit.score, 4)}
    for name in ("dense", "bm25"):
        score = getattr(hit, name)
        if score is not None:
            shown[name] = round(score, 4)
            shown[f"{name}_rank"] = getattr(hit, f"{name}_rank")
    return shown | ({"metadata": hit.metadata} if hit.metadata else {})


def fit_document(
    index: str, document: Document, start: int, stop: int | None, max_tokens: int
) -> dict[str, Any]:
    """A document's text from `start` to `stop`, cut at its end and without metadata if need be."""
    answer: dict[str, Any] = {"index": index}
    room = max_tokens * _BYTES_A_TOKEN - _RESERVED
    answer["truncated"] = _fit_part(answer, document, start, stop, room)
    if answer["truncated"]:
        how = f"start={answer['stop']}" if answer["text"] else "a higher max_tokens"
        answer["more"] = f"the text was cut: get the same id with {how}"
    return answer


def fit_documents(
    index: str, asked: Sequence[tuple[str, tuple[Document, int, int | None] | str]], max_tokens: int
) -> dict[str, Any]:
    """Parts of documents, each in an equal share of what is left; or why one cannot be read."""
    answer: dict[str, Any] = {"index": index, "documents": []}
    more = []
    for number, (name, part) in enumerate(asked):
        room = max_tokens * _BYTES_A_TOKEN - _RESERVED - _size(answer)
        shown: dict[str, Any] = {}
        if isinstance(part, str):
            shown = {"id": name, "error": part}
        else:
            share = min(room, max(room // (len(asked) - number), _LEAST_PART))
            if _fit_part(shown, *part, share - len(',"cut":true')):
                shown["cut"] = True
        if _size(shown) > room or (shown.get("cut") and not shown["text"]):
            more.append(
                f"ids from number {number + 1} on did not fit: get them in another call"
                if number
                else "the first id did not fit: get it with a higher max_tokens"
            )
            break
        answer["documents"].append(shown)
    if any(shown.get("cut") for shown in answer["documents"]):
        more.append("texts with cut=true go on at their stop: get ID[stop:]")
    answer["truncated"] = bool(more)
    if more:
        answer["more"] = "; ".join(more)
    return answer


def _fit_part(
    answer: dict[str, Any], document: Document, start: int, stop: int | None, room: int
) -> bool:
    """Add a part of a document to an answer of at most `room` bytes; whether its text was cut."""
    length = len(document.text)
    start = min(start, length)
    stop = length if stop is None else max(start, min(stop, length))
    answer["id"] = document.id
    for name, value in (("title", document.title), ("metadata", document.metadata)):
        if value:
            answer[name] = value
            if _size(answer) > room // 2:
                _leave_out(answer, name)
    answer |= {"length": length, "start": start, "stop": stop, "text": ""}
    fits = _longest(document.text[start:stop], room - _size(answer))
    answer["text"] = document.text[start : start + fits]
    answer["stop"] = start + len(answer["text"])
    return start + fits < stop


def _leave_out(shown: dict[str, Any], *names: str) -> None:
    """Remove fields, and say which there were."""
    removed = [name for name in names if shown.pop(name, None) is not None]
    if removed:
        shown["left_out"] = [*shown.get("left_out", ()), *removed]


def fit_state(
    explanations: dict[str, str], indexes: Sequence[dict[str, Any]], max_tokens: int
) -> dict[str, Any]:
    """The state of indexes; drops their last fields, then explanations, then the last indexes."""
    shown = [{**one, "fields": dict(one["fields"])} for one in indexes]
    answer: dict[str, Any] = {**explanations, "indexes": shown, "truncated": False}
    room = max_tokens * _BYTES_A_TOKEN - _RESERVED
    for one in reversed(shown):
        while one["fields"] and _size(answer) > room:
            one["fields"].popitem()
    for name in reversed(explanations):
        if _size(answer) > room:
            del answer[name]
    while shown and _size(answer) > room:
        shown.pop()
    if answer != {**explanations, "indexes": list(indexes), "truncated": False}:
        answer["truncated"] = True
        answer["more"] = "not all fits: ask for one index, or with a higher max_tokens"
    return answer


def _size(value: Any) -> int:
    """Bytes of a JSON value."""
    return len(to_json(value).encode("utf-8", "surrogatepass"))


def to_json(value: Any) -> str:
    """JSON as agents read it: compact, without escapes of letters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _longest(text: str, room: int) -> int:
    """The most characters, of whole words if possible, whose JSON takes at most `room` bytes."""
    if _size(text) - 2 <= room:
        return len(text)
    # A character takes at least a byte.
    fits = bisect_right(
        range(1, min(len(text), max(room, 0)) + 1), room, key=lambda n: _size(text[:n]) - 2
    )
    end = max((i for i in range(fits, max(0, fits - 80), -1) if text[i].isspace()), default=0)
    return end or fits
