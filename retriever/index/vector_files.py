"""Documents with ready vectors from files: JSON Lines, or a NumPy file beside a corpus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes import FaissVectors, is_faiss_file
from retriever.documents import Assembler, Fields, Json
from retriever.documents.reader import CorpusReader
from retriever.documents.sources import Meter, SeenIds, opened, opened_stream
from retriever.documents.text import read_jsonl
from retriever.encoders.spec import EncoderSpec
from retriever.errors import SourceError
from retriever.index.export import VECTORS_FIELD, ids_file_of
from retriever.index.ready import ReadyDocument, require_sound


def read_records(
    source: str | Path, spec: EncoderSpec, fields: Fields, vector_field: str
) -> Iterator[ReadyDocument]:
    """The records of a JSON Lines source: vectors of passages, or one in `vector_field`."""
    if str(source) == "-":
        opening = opened_stream(sys.stdin.buffer, "stdin", fields, Meter())
    else:
        opening = opened(Path(source), str(source), fields, Meter())
    with opening as stream, closing(SeenIds()) as seen:
        if stream.format != "jsonl":
            raise SourceError(
                f"{stream.name}: expected JSON Lines with vectors in each record, found "
                f"{stream.format}; give the vectors as a NumPy file with --vectors"
            )
        assembler = Assembler(fields)
        empty = True
        for record in read_jsonl(stream, fields):
            empty = False
            where = record.where
            whole = record.values.pop(vector_field, None)
            passages = record.values.pop(VECTORS_FIELD, None)
            document = assembler.split(record)
            if (whole is None) == (passages is None):
                number = "both" if passages is not None else "neither"
                raise SourceError(
                    f"{where}: expected {VECTORS_FIELD!r} as `retriever export --vectors` writes "
                    f"it or one {vector_field!r}, found {number}; name the field that holds the "
                    "vector with --vector-field, or give a NumPy file with --vectors"
                )
            identified = seen.identified(document, where)
            if identified is None:
                continue
            if passages is None:
                vector = _parsed(whole, spec, f"{where}: {vector_field!r}")
                spans, vectors = [(0, len(document.text))], vector[np.newaxis]
            else:
                spans, vectors = _parsed_passages(passages, spec, where)
            yield require_sound(ReadyDocument(identified, spans, vectors), spec, where)
        if empty:
            raise SourceError(f"{stream.name}: holds no records; check that it is the right file")


def read_matrix(
    corpus: CorpusReader, vectors: Path, matrix: NDArray[Any] | FaissVectors, spec: EncoderSpec
) -> Iterator[ReadyDocument]:
    """The documents of a corpus with the rows of a file, both in their order.

    Beside the file there can be the ids of its rows. Everything is counted and compared before the
    first document is given, so the corpus is read twice.
    """
    _require_agreement(corpus, vectors, len(matrix))
    for document, rows in zip(corpus, _groups(vectors, len(matrix)), strict=True):
        spans = [row.span or (0, len(document.text)) for row in rows]
        found = np.asarray(matrix[rows[0].number : rows[-1].number + 1])
        yield require_sound(ReadyDocument(document, spans, found), spec, rows[0].where)


class _Row(NamedTuple):
    # Counted from 0.
    number: int
    where: str
    # None if the file of ids does not say.
    id: str | None
    span: tuple[int, int] | None


def open_matrix(vectors: Path, spec: EncoderSpec) -> NDArray[Any] | FaissVectors:
    """Open a NumPy file, or an index that FAISS wrote."""
    if is_faiss_file(vectors):
        return FaissVectors(vectors)
    try:
        matrix = np.lib.format.open_memmap(vectors, mode="r")
    except FileNotFoundError as error:
        raise SourceError(f"{vectors}: no such file") from error
    # NumPy's header parser raises as many errors as Python's own.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SourceError(
            f"{vectors}: expected an array as numpy.save writes it, or an index as "
            f"faiss.write_index does, found another file ({reason})"
        ) from error
    if matrix.dtype.kind != "f" or matrix.ndim != 2:
        raise SourceError(
            f"{vectors}: expected floats of shape (rows, {spec.dimensions}), found {matrix.dtype} "
            f"of shape {matrix.shape}; write them as float32, one row per document"
        )
    return matrix


def _require_agreement(corpus: CorpusReader, vectors: Path, rows: int) -> None:
    expected = sum(1 for _ in _groups(vectors, rows))
    groups = _groups(vectors, rows)
    documents = 0
    for document in corpus:
        documents += 1
        row = next(groups, [None])[0]
        if row is not None and row.id not in (None, document.id):
            raise SourceError(
                f"{row.where}: expected the document {document.id!r}, found {row.id!r}; give the "
                "corpus that the vectors were made from, in its order"
            )
    if documents != expected:
        left_out = [
            f"{number:,} {what} left out"
            for number, what in (
                (corpus.duplicates, "identical records"),
                (corpus.empty, "without text"),
            )
            if number
        ]
        merged = f" ({', '.join(left_out)})" if left_out else ""
        raise SourceError(
            f"{vectors}: expected vectors of {documents:,} documents{merged}, found those of "
            f"{expected:,}; give the corpus that the vectors were made from, in its order"
        )


def _groups(vectors: Path, rows: int) -> Iterator[list[_Row]]:
    """The rows of each document, in order."""
    grouped = groupby(_rows(vectors, rows), lambda row: row.number if row.span is None else row.id)
    return (list(group) for _, group in grouped)


def _rows(vectors: Path, rows: int) -> Iterator[_Row]:
    ids_file = ids_file_of(vectors)
    if not ids_file.exists():
        for number in range(rows):
            yield _Row(number, f"{vectors}: row {number} (counted from 0)", None, None)
        return
    number = -1
    with ids_file.open("rb") as file:
        for number, line in enumerate(file):
            where = f"{ids_file}:{number + 1}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            match value:
                case str() as id_:
                    yield _Row(number, where, id_, None)
                case {"id": str() as id_, "start": int() as start, "stop": int() as stop}:
                    yield _Row(number, where, id_, (start, stop))
                case _:
                    raise SourceError(
                        f"{where}: expected the id of a document as a JSON string, or an object "
                        f"with id, start and stop, found {line[:40]!r}; export or encode again, or "
                        "remove the file if rows are whole documents in the order of the corpus"
                    )
    if number + 1 != rows:
        raise SourceError(
            f"{ids_file}: expected {rows:,} lines, one for each row of {vectors}, found "
            f"{number + 1:,}; export or encode again"
        )


def _parsed_passages(
    value: Json, spec: EncoderSpec, where: str
) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
    spans, rows = [], []
    for number, passage in enumerate(value if isinstance(value, list) else [], start=1):
        match passage:
            case {"start": int() as low, "stop": int() as high, "vector": row, **rest} if not rest:
                spans.append((low, high))
                rows.append(_parsed(row, spec, f"{where}: passage {number}"))
            case _:
                break
    if not isinstance(value, list) or not rows or len(rows) < len(value):
        raise SourceError(
            f"{where}: {VECTORS_FIELD!r}: expected a list of passages, each an object of start, "
            "stop and vector; write it with `retriever export --vectors`"
        )
    return spans, np.stack(rows)


def _parsed(value: Json, spec: EncoderSpec, where: str) -> NDArray[np.float64]:
    """(dimensions,)"""
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        raise SourceError(
            f"{where}: expected a list of {spec.dimensions} numbers; correct the record"
        )
    if len(value) != spec.dimensions:
        raise SourceError(
            f"{where}: expected vectors of {spec.dimensions} dimensions, as {spec} gives them, "
            f"found {len(value)}; name the encoder that made them with --model"
        )
    try:
        return np.array(value, np.float64)
    except OverflowError:
        return np.full(len(value), np.inf)
