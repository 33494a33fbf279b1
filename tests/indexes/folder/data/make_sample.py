"""Made `format-N.zip` and `answers.json`: an index of each format, and what it answered then.

Run in a checkout of the commit whose format is wanted, as ``python make_sample.py OUTPUT`` with
the checkout as PYTHONPATH; it writes `index.zip` and `answers.json` there. Format 1 is of commit
3615479, the first to write it; format 2 of 4cc8236, the last; format 3 of 248ee7b, the last whose
segments have an order.npy. Their answers are equal up to rounding.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from retriever import Document, Index, SearchSettings
from retriever.encoders.encoder import Encoder
from tests.conftest import FakeEncoder

WORDS = [f"word{number}" for number in range(40)]
QUERIES = ["harbour lights", "word3 word17", "café au lait", "orchards", "word30"]
FILTER = "year >= 1995 and tag in ('b', 'c')"
FIRST = [
    Document("a", "Harbour lights in the fog.", "Ships", {"year": 1990, "tag": "a"}),
    Document("b", "An orchard behind the harbour.", None, {"year": 1995, "tag": "b"}),
    Document("long", " ".join(WORDS), "A long text", {"year": 2000, "tag": "c"}),
    Document("é", "Café au lait, naïve façade.", None, {"year": 2005, "tag": "b", "x": [1, None]}),
    Document("gone", "A text about harbour lights, deleted later.", None, {"year": 2010}),
]
SECOND = [
    Document("b", "Orchards, orchards and one orchard.", None, {"year": 1996, "tag": "b"}),
    Document("f", "word3 meets word30 at the harbour.", "word17", {"year": 2020, "tag": "c"}),
]


def main() -> None:
    output = Path(sys.argv[1])
    encoder = FakeEncoder()
    patch = pytest.MonkeyPatch()
    patch.setattr(Encoder, "load", lambda *_, **__: encoder)
    patch.setattr(Encoder, "from_spec", lambda *_, **__: encoder)
    # From format 3 on few passages wait in the database, and a run ends with a merge.
    patch.setattr("indexes.folder.writer.PENDING_LIMIT", 0, raising=False)
    has_merge = "compact" in inspect.signature(Index.add).parameters
    apart: dict[str, Any] = {"compact": False} if has_merge else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "index"
        with Index.create(folder) as index:
            index.add(FIRST, **apart)
            index.add(SECOND, **apart)
            index.delete(["gone"])
            answers = [
                {
                    "query": query,
                    "mode": mode,
                    "where": where,
                    "hits": [
                        {key: hit[key] for key in ("id", "title", "passage", "metadata", "score")}
                        for hit in map(
                            asdict,
                            index.search(query, SearchSettings(mode=mode, k=20), where=where),
                        )
                    ],
                }
                for query in QUERIES
                for mode in ("bm25", "dense", "hybrid")
                for where in (None, FILTER)
            ]
        with zipfile.ZipFile(output / "index.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name != "writer.lock":
                    archive.write(path, path.relative_to(folder))
    lines = ",\n".join(json.dumps(answer, ensure_ascii=False) for answer in answers)
    (output / "answers.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
