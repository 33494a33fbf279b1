"""A collection of Chroma, read through its own package.

Chroma keeps the ids of its vectors in a pickle. Since version 1 its core, which is written in Rust,
reads that as data; Python's pickle, which can run code, is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from retriever.documents import Document, Fields
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, SourceError, require_extra
from retriever.indexing.ready_documents import ReadyDocument
from retriever.indexing.ready_vectors import finite_rows, wrong_width
from retriever.indexing.stores.store import Metric, Store

_DATABASE = "chroma.sqlite3"
_PAGE = 1000
_METRICS: dict[str, Metric] = {"cosine": "cosine", "ip": "ip", "l2": "l2"}


def open_chroma(path: str, spec: EncoderSpec, fields: Fields) -> Store:
    """Open a collection for reading.

    The text is Chroma's document, and all metadata becomes metadata, except the fields that
    `fields` names for title and text.

    Args:
        path: of the folder that a `PersistentClient` keeps, and ``/NAME`` of the collection if it
            has several.
        spec: of the encoder that made the vectors.
        fields: names of metadata fields.

    Raises:
        ConfigError: `fields` names a field for the id.
        MissingExtraError: chromadb is not installed.
        SourceError: there is no such collection, or it cannot be read.
    """
    if fields.id is not None:
        raise ConfigError(f"chroma:{path}: has ids of its own; leave --id-field out")
    require_extra("chroma", "importing from Chroma", "chromadb")
    from chromadb import PersistentClient
    from chromadb.config import Settings

    folder, name = _split(path)
    stack = ExitStack()
    try:
        # Validates the format of the folder, and never changes it.
        settings = Settings(anonymized_telemetry=False, migrations="validate")
        client = stack.enter_context(closing(PersistentClient(str(folder), settings)))
        names = sorted(one.name for one in client.list_collections())
    # Chroma has errors of many kinds.
    except Exception as error:
        stack.close()
        raise SourceError(
            f"{folder}: cannot be read by the installed chromadb ({_line(error)}); close programs "
            "that use the folder, or copy it and open the copy with that version first"
        ) from error
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        stack.close()
        raise SourceError(
            f"{folder}: expected one of the collections {', '.join(names) or '(it has none)'}, "
            f"found {name or 'no name'}; give chroma:{folder}/NAME"
        )
    collection = client.get_collection(name, embedding_function=None)
    where = f"chroma:{folder}/{name}"
    found = collection.configuration_json
    space = (found.get("hnsw") or found.get("spann") or {}).get("space", "l2")
    return Store(_documents(stack, collection, where, spec, fields), _METRICS[space])


def _split(path: str) -> tuple[Path, str | None]:
    """The folder and the name of the collection, if it is given."""
    folder = Path(path)
    if (folder / _DATABASE).is_file():
        return folder, None
    if (folder.parent / _DATABASE).is_file():
        return folder.parent, folder.name
    raise SourceError(
        f"chroma:{path}: expected a folder that holds {_DATABASE}, or such a folder and /NAME of a "
        "collection; check the path"
    )


def _documents(
    stack: ExitStack, collection: Any, where: str, spec: EncoderSpec, fields: Fields
) -> Iterator[ReadyDocument]:
    with stack:
        yield from _pages(collection, where, spec, fields)


def _pages(
    collection: Any, where: str, spec: EncoderSpec, fields: Fields
) -> Iterator[ReadyDocument]:
    offset = 0
    while True:
        page = collection.get(
            limit=_PAGE, offset=offset, include=["embeddings", "documents", "metadatas"]
        )
        if not page["ids"]:
            if offset == 0:
                raise SourceError(f"{where}: holds no documents; check that it is the right one")
            return
        offset += len(page["ids"])
        vectors = np.asarray(page["embeddings"], np.float64)
        if vectors.ndim != 2 or vectors.shape[1] != spec.dimensions:
            raise SourceError(wrong_width(where, spec, vectors.shape[-1]))
        rows = finite_rows(vectors, [f"{where}: {id_!r}" for id_ in page["ids"]])
        for id_, text, metadata, row in zip(
            page["ids"], page["documents"], page["metadatas"], rows, strict=True
        ):
            # Chroma gives its own kind of mapping.
            values = dict(metadata or {})
            if fields.text is not None:
                text = _string(values, fields.text, f"{where}: {id_!r}")  # noqa: PLW2901
            title = None
            if fields.title is not None:
                title = _string(values, fields.title, f"{where}: {id_!r}") or None
            document = Document(id_, text or "", title, values)
            yield ReadyDocument(document, [(0, len(document.text))], row[np.newaxis])


def _string(values: dict[str, Any], name: str, where: str) -> str:
    value = values.pop(name, "")
    if not isinstance(value, str):
        raise SourceError(f"{where}: the field {name!r} is {value!r:.60}, expected a string")
    return value


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
