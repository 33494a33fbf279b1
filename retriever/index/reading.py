"""Read an open index: its documents and vectors, and facts of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from indexes import LANGUAGES
from indexes.filters import id_forms
from retriever.documents.document import Document, document_of, is_id
from retriever.errors import BadInputError
from retriever.search.opened import read_structures, uncounted_passages
from retriever.search.queries import Excerpt
from retriever.search.settings import CALIBRATION, FIT, MODEL_REASON

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from indexes import Store, StoredDocument, View
    from retriever.index.transfer.export import Exported
    from retriever.search.engine import Hit
    from retriever.search.opened import OpenedIndex

# Documents whose stored hashes are looked up together.
_BATCH = 512


class CorpusDifference(NamedTuple):
    """Numbers of documents in a corpus, and of those that an index lacks or has changed."""

    corpus: int
    missing: int
    changed: int
    foreign: int  # of the index, which the corpus does not have


def find_stored(view: View, id_: str) -> StoredDocument:
    """Return a document with its passages; KeyError if the index holds none with this id."""
    forms = id_forms(id_) if is_id(id_) else []
    stored = next(filter(None, map(view.document, forms)), None)
    if stored is None:
        raise KeyError(id_)
    return stored


def read_document(opened: OpenedIndex, id_: str) -> Document:
    """Return a document; KeyError if the index holds none with this id."""
    with opened.view() as view:
        stored = find_stored(view, id_)
    return document_of(stored)


def read_documents(opened: OpenedIndex) -> Iterator[Document]:
    """Yield all documents of one commit, in ascending order of ids."""
    with opened.view() as view:
        for stored in view.documents():
            yield document_of(stored)


def read_spans(opened: OpenedIndex, id_: str) -> list[tuple[int, int]]:
    """Return the spans of the passages of a document; KeyError if unknown."""
    with opened.view() as view:
        stored = find_stored(view, id_)
    return [(start, stop) for _, start, stop in stored.passages]


def read_excerpt(opened: OpenedIndex, hit: Hit, before: int, after: int) -> Excerpt:
    """Return the passage of a hit with its neighbors; see `Index.excerpt`."""
    if before < 0 or after < 0:
        raise BadInputError(f"excerpt: expected 0 or more passages, found {min(before, after)}")
    with opened.view() as view:
        stored = find_stored(view, hit.id)
    passage = (hit.passage_number, hit.start, hit.stop)
    if passage not in stored.passages:
        raise KeyError(hit.id)
    position = stored.passages.index(passage)
    neighbors = stored.passages[max(0, position - before) : position + after + 1]
    start = neighbors[0][1]
    stop = max(stop for _, _, stop in neighbors)
    return Excerpt(hit.id, start, stop, stored.text[start:stop], len(stored.text))


def read_vectors(opened: OpenedIndex, hits: Iterable[Hit]) -> NDArray[np.float32]:
    """Return the stored vectors of the passages of hits; see `Index.vectors`."""
    with opened.view() as view:
        listed_hits = list(hits)
        for hit in listed_hits:
            passage = (hit.passage_number, hit.start, hit.stop)
            if passage not in find_stored(view, hit.id).passages:
                raise KeyError(hit.id)
        return view.vectors([hit.passage_number for hit in listed_hits])


def compare_corpus(opened: OpenedIndex, documents: Iterable[Document]) -> CorpusDifference:
    """Count how an index differs from a corpus of distinct ids."""
    from retriever.index.indexing.passage_texts import content_hash

    corpus = 0
    missing = 0
    changed = 0
    stream = iter(documents)
    with opened.view() as view:
        passages = opened.settings_of(view).passages
        while batch := list(islice(stream, _BATCH)):
            stored = view.content_hashes([document.id for document in batch])
            corpus += len(batch)
            missing += len(batch) - len(stored)
            changed += sum(
                stored.get(document.id) not in (None, content_hash(document, passages))
                for document in batch
            )
        foreign = view.count_documents() - (corpus - missing)
    return CorpusDifference(corpus, missing, changed, foreign)


def describe_index(opened: OpenedIndex) -> dict[str, Any]:
    """Return what an index is and holds, as JSON values; see `Index.info`."""
    from retriever.encoders.registry import describe

    with opened.view() as view:
        state = opened.settings_of(view)
        encoder = state.encoder
        return {
            "index": str(opened.store),
            "created": view.setting("created"),
            "documents": view.count_documents(),
            "passages": view.passage_count,
            "encoder": {
                **encoder.to_json(),
                "model": encoder.model,
                "max_length": encoder.max_length,
                "fingerprint": encoder.fingerprint,
                "computed": view.setting("computed", []),
                "auto": view.setting(MODEL_REASON, "") or None,
                **describe(encoder),
            },
            "analyzer": asdict(state.analyzer.settings),
            "languages": view.setting(LANGUAGES, {}),
            "fit": view.setting(FIT, {}),
            "calibration": view.setting(CALIBRATION, {}),
            "long_texts": asdict(state.passages),
            "structures": asdict(read_structures(view, opened.store)),
            **view.describe(),
            "uncounted_passages": uncounted_passages(view),
        }


def summarize_index(opened: OpenedIndex) -> str:
    """Return the line that `repr` shows."""
    with opened.view() as view:
        encoder = opened.settings_of(view).encoder
        return (
            f"<Index {str(opened.store)!r}: {view.count_documents():,} documents, "
            f"{view.passage_count:,} passages, encoder {encoder}>"
        )


def export_index(store: Store, output: Path, *, vectors: bool) -> Exported:
    """Write vectors to a ``.npy`` file, or documents as JSON Lines to any other."""
    from retriever.index.transfer.export import export_jsonl, export_npy

    if output.suffix == ".npy":
        return export_npy(store, output)
    return export_jsonl(store, output, vectors=vectors)
