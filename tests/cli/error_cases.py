"""Records, and what a refusal by the command line looks like."""

from __future__ import annotations

import json

GOOD = [{"id": "a", "text": "Apples are red.", "n": 1}, {"id": "b", "text": "Pears are green."}]


def line(record):
    return json.dumps(record).encode() + b"\n"


NEW = line({"id": "new", "text": "New text."})


def refused(outcome, *parts, code=2):
    """The command ended with `code` and one line on stderr that holds `parts`."""
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith("retriever: ")
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err
