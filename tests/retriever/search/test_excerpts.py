"""A hit's passage with those beside it."""

from __future__ import annotations

import pytest

from retriever import BadInputError, Index

LONG = " ".join(f"Sentence {i} is about apples." for i in range(40))


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index", overlap=6) as index:
        index.add([{"id": "long", "text": LONG}, {"id": "short", "text": "pears"}])
        yield index


def spans(index):
    """The passages of the long document, found one by one."""
    found = {}
    for i in range(40):
        hit = index.search(f"Sentence {i}", k=1, mode="bm25")[0]
        found[hit.passage_number] = (hit.start, hit.stop)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 2), (1, 1), (99, 99)])
def test_an_excerpt_reaches_over_the_neighboring_passages(index, before, after):
    passages = spans(index)
    for i in (0, 13, 39):
        hit = index.search(f"Sentence {i}", k=1, mode="bm25")[0]
        place = passages.index((hit.start, hit.stop))
        first = passages[max(0, place - before)]
        last = passages[min(len(passages) - 1, place + after)]
        found = index.excerpt(hit, before, after)
        assert (found.start, found.stop) == (first[0], last[1])
        assert found.text == LONG[found.start : found.stop]
        assert found.length == len(LONG)


def test_a_document_that_is_gone_or_a_negative_number_of_passages_has_no_excerpt(index):
    hit = index.search("pears", k=1)[0]
    with pytest.raises(BadInputError, match="-1"):
        index.excerpt(hit, before=-1)
    index.add([{"id": "short", "text": "plums"}])
    with pytest.raises(KeyError):
        index.excerpt(hit)
    index.delete(["short"])
    with pytest.raises(KeyError):
        index.excerpt(hit)
