"""Outlines in an index: what stays with a document, where its hits are, what its passages hold."""

import json
from dataclasses import replace

import pytest

from retriever import (
    Document,
    Index,
    Mark,
    PassageSettings,
    Place,
    encode_shards,
    export_jsonl,
    import_documents,
    reindexed,
)
from retriever.documents import CorpusReader
from retriever.errors import ConfigError, SourceError

# Its few words are none of the texts.
pytestmark = pytest.mark.filterwarnings("ignore:the encoder does not know the language")

TEXT = """# Guide
Sheep eat grass on the hills all day long.

## Wool
Wool is cut in spring with a pair of shears.

### Dyes
Onion skins dye it yellow, and walnut shells dye it brown."""
MARKS = [("# Guide", 1), ("## Wool", 2), ("### Dyes", 3)]
GUIDE = Document(
    "guide.md",
    TEXT,
    "Guide",
    {"year": 2020},
    (
        Mark(0, "line", "5"),
        *(
            Mark(TEXT.index(f"\n{name}") + 1 if n > 1 else 0, "heading", name.strip("# "), n)
            for name, n in MARKS
        ),
    ),
)
PLAIN = Document("plain", "Goats eat everything.")
DYES = Place(headings=("Guide", "Wool", "Dyes"), lines=(11, 12))


@pytest.fixture
def folder(tmp_path, model):
    with Index.create(tmp_path / "index", model, context="headings") as index:
        index.add([GUIDE, PLAIN])
    return tmp_path / "index"


def test_hit_has_place_only_with_outline(folder):
    with Index.open(folder) as index:
        assert index["guide.md"] == GUIDE
        (hit,) = index.search("onion walnut", mode="bm25")
        assert (hit.place, hit.to_json()["place"]) == (DYES, DYES.to_json())
        (plain,) = index.search("goats", mode="bm25")
        assert plain.place is None
        assert "place" not in plain.to_json()
        # The headings above a passage are words of it.
        assert index.search("wool walnut", mode="bm25")[0].bm25 > hit.bm25 / 2
        starts = {TEXT[start:stop].split(maxsplit=1)[0] for start, stop in index.spans("guide.md")}
        assert starts >= {"#", "Wool", "Dyes"}


def test_an_outline_stays_with_its_document_and_counts_as_its_content(folder):
    with Index.open(folder) as index:
        assert index.add([GUIDE, PLAIN]).unchanged == 2
        index.update("guide.md", metadata={"year": 2021})
        assert index["guide.md"] == replace(GUIDE, metadata={"year": 2021})
        moved = replace(GUIDE, outline=(Mark(0, "page", "1"), *GUIDE.outline))
        assert index.difference([moved, PLAIN]).changed == 1
        assert index.add([moved, PLAIN]).updated == 1
        assert index["guide.md"] == moved
        assert index.verify() == []
        with pytest.raises(SourceError, match="'bad': outline: mark 1 is"):
            index.add([Document("bad", "abc", outline=(Mark(9, "page", "1"),))])


def test_an_outline_goes_through_exports_shards_and_reindexing(folder, tmp_path, model):
    export_jsonl(folder, tmp_path / "out.jsonl", vectors=True)
    assert reindexed(folder, context="none").added == 2
    export_jsonl(folder, tmp_path / "texts.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert ["outline" in line for line in lines] == [True, False]
    assert list(CorpusReader([tmp_path / "texts.jsonl"])) == [GUIDE, PLAIN]
    import_documents(tmp_path / "a", tmp_path / "out.jsonl")
    done = encode_shards([GUIDE, PLAIN], tmp_path / "shards", model, context="headings")
    assert (done.made, encode_shards([GUIDE, PLAIN], tmp_path / "shards").made) == (1, 0)
    with pytest.raises(ConfigError, match="passages"):
        encode_shards([GUIDE, PLAIN], tmp_path / "shards", context="none")
    import_documents(tmp_path / "b", tmp_path / "shards")
    for one in (folder, tmp_path / "a", tmp_path / "b"):
        with Index.open(one) as index:
            assert list(index) == [GUIDE, PLAIN]
            assert index.search("onion walnut", mode="bm25")[0].place == DYES
            assert index.verify() == []


def test_an_index_of_an_earlier_release_keeps_its_passages(tmp_path, model):
    earlier = PassageSettings(context="title", structure=False)
    with Index.create(tmp_path / "index", model, passages=earlier) as index:
        index.add([replace(GUIDE, outline=()), PLAIN])
        spans = index.spans("guide.md")
        assert index.add([GUIDE, PLAIN]).unchanged == 2
        other = replace(GUIDE, id="other")
        index.add([other])
        assert (index.spans("other"), index["other"]) == (spans, other)
    with Index.create(tmp_path / "index", on_long="split") as index:
        assert not index.passages.structure
    with pytest.raises(ConfigError, match="context=headings"):
        Index.create(tmp_path / "index", context="headings")
