"""Other vector stores, read for `import`: documents and vectors, nothing encoded or unpickled.

Each is read through its own package. Chroma keeps the ids of its vectors in a pickle; since version
1 its core, which is written in Rust, reads that as data, and Python's pickle, which can run code,
is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from retriever.documents.document import Assembler, Document, Fields, find_columns
from retriever.documents.sources import SeenIds
from retriever.documents.tables import batch_records
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, SourceError, require_extra
from retriever.index.indexing.embedded_documents import ReadyDocument, require_sound

_CHROMA = "chroma.sqlite3"
_LANCE = ".lance"
_PAGE = 1000
_ROWS = 1024


def open_collection(
    kind: str, path: str, spec: EncoderSpec, fields: Fields, vector_field: str
) -> Iterator[ReadyDocument]:
    """The documents of a collection of Chroma or a table of LanceDB."""
    if kind == "chroma":
        return _open_chroma(path, spec, fields)
    return _open_lance(path, spec, fields, vector_field)


def _open_chroma(path: str, spec: EncoderSpec, fields: Fields) -> Iterator[ReadyDocument]:
    if fields.id is not None:
        raise ConfigError(f"chroma:{path}: has ids of its own; leave --id-field out")
    require_extra("chroma", "importing from Chroma", "chromadb")
    from chromadb import PersistentClient
    from chromadb.config import Settings

    folder, name = _chroma_folder(path)
    stack = ExitStack()
    try:
        # Validates the format of the folder, and never changes it.
        settings = Settings(anonymized_telemetry=False, migrations="validate")
        client = stack.enter_context(closing(PersistentClient(str(folder), settings)))
        names = sorted(collection.name for collection in client.list_collections())
    # Chroma has errors of many kinds.
    except Exception as error:
        stack.close()
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SourceError(
            f"{folder}: cannot be read by the installed chromadb ({reason}); close programs "
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
    return _chroma_documents(stack, collection, f"chroma:{folder}/{name}", spec, fields)


def _chroma_folder(path: str) -> tuple[Path, str | None]:
    """The folder and the name of the collection, if it is given."""
    folder = Path(path)
    if (folder / _CHROMA).is_file():
        return folder, None
    if (folder.parent / _CHROMA).is_file():
        return folder.parent, folder.name
    raise SourceError(
        f"chroma:{path}: expected a folder that holds {_CHROMA}, or such a folder and /NAME of a "
        "collection; check the path"
    )


def _chroma_documents(
    stack: ExitStack, collection: Any, where: str, spec: EncoderSpec, fields: Fields
) -> Iterator[ReadyDocument]:
    offset = 0
    with stack:
        while True:
            page = collection.get(
                limit=_PAGE, offset=offset, include=["embeddings", "documents", "metadatas"]
            )
            if not page["ids"]:
                break
            offset += len(page["ids"])
            for id_, text, metadata, vector in zip(
                page["ids"], page["documents"], page["metadatas"], page["embeddings"], strict=True
            ):
                place = f"{where}: {id_!r}"
                # Chroma gives its own kind of mapping.
                values = dict(metadata or {})
                if fields.text is not None:
                    text = _string(values, fields.text, place)  # noqa: PLW2901
                title = None
                if fields.title is not None:
                    title = _string(values, fields.title, place) or None
                yield _ready(Document(id_, text or "", title, values), vector, spec, place)
    if offset == 0:
        raise SourceError(f"{where}: holds no documents; check that it is the right one")


def _string(values: dict[str, Any], name: str, where: str) -> str:
    value = values.pop(name, "")
    if not isinstance(value, str):
        raise SourceError(f"{where}: the field {name!r} is {value!r:.60}, expected a string")
    return value


def _open_lance(
    path: str, spec: EncoderSpec, fields: Fields, vector_field: str
) -> Iterator[ReadyDocument]:
    require_extra("lancedb", "importing from LanceDB", "lancedb")
    import lancedb

    folder, name = _lance_table(path)
    where = f"lancedb:{folder}/{name}"
    try:
        table = lancedb.connect(str(folder)).open_table(name)
        column = _vector_column(table.schema, vector_field, where)
    except (OSError, RuntimeError, ValueError) as error:
        raise SourceError(f"{where}: cannot be read ({' '.join(str(error).split())})") from error
    return _lance_documents(table, where, column, spec, fields)


def _lance_table(path: str) -> tuple[Path, str]:
    """The folder and the name of the table."""
    folder = Path(path)
    if folder.with_name(folder.name + _LANCE).is_dir():
        return folder.parent, folder.name
    tables = folder.glob(f"*{_LANCE}")
    names = sorted(table.stem for table in tables if table.is_dir())
    if len(names) == 1:
        return folder, names[0]
    raise SourceError(
        f"lancedb:{path}: expected the folder of a LanceDB database with one table, or such a "
        f"folder and /NAME of a table, found the tables {', '.join(names) or '(none)'}"
    )


def _vector_column(schema: Any, name: str, where: str) -> str:
    """Return the column of vectors of this name, or the only one that there is."""
    from pyarrow import types

    columns = [
        field.name
        for field in schema
        if types.is_fixed_size_list(field.type) and types.is_floating(field.type.value_type)
    ]
    if name in columns:
        return name
    if len(columns) == 1:
        return str(columns[0])
    has = f"the vector columns {', '.join(columns)}; name one with --set vector-field=NAME"
    raise SourceError(
        f"{where}: expected a column {name!r} of vectors, found "
        + (has if columns else "no vector column; name another table")
    )


def _lance_documents(
    table: Any, where: str, column: str, spec: EncoderSpec, fields: Fields
) -> Iterator[ReadyDocument]:
    names = [name for name in table.schema.names if name != column]
    columns = find_columns(names, fields, where)
    assembler = Assembler(fields)
    number = 0
    with closing(SeenIds()) as seen:
        for batch in table.search().select([*names, column]).to_batches(_ROWS):
            vectors = batch.column(column)
            if vectors.null_count:
                raise SourceError(f"{where}: a row has no vector; leave such rows out")
            rows = np.asarray(vectors.flatten(), np.float64).reshape(-1, vectors.type.list_size)
            records = batch_records(where, number, batch.select(names), columns)
            number += len(rows)
            for record, row in zip(records, rows, strict=True):
                document = seen.identify(assembler.assemble(record), record.where)
                if document is not None:
                    yield _ready(document, row, spec, record.where)
    if number == 0:
        raise SourceError(f"{where}: holds no rows; check that it is the right one")


def _ready(document: Document, vector: Any, spec: EncoderSpec, where: str) -> ReadyDocument:
    return require_sound(ReadyDocument.whole(document, vector), spec, where)
