"""Documents with ready vectors: from a program, JSON Lines, or a NumPy file beside a corpus."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexes import FaissVectors, is_faiss_file
from retriever.documents import (
    AnyDocument,
    Assembler,
    Document,
    Fields,
    Json,
    as_document,
    content_id,
)
from retriever.documents.reader import CorpusReader
from retriever.documents.sources import Meter, OpenSource, SeenIds, opened, opened_stream
from retriever.documents.text import read_jsonl
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, SourceError
from retriever.indexing.export import VECTORS_FIELD, ids_file_of
from retriever.indexing.ready_documents import ReadyDocument


def read_records(
    source: str | Path, spec: EncoderSpec, fields: Fields, vector_field: str
) -> Iterator[ReadyDocument]:
    """The records of a JSON Lines source, in its order.

    A record has the passages of the document as `retriever.indexing.export.export_jsonl` writes
    them, or one vector of the whole document in the field `vector_field`.

    Args:
        source: a file, gzipped or not, or `-` for standard input.
        spec: of the encoder that the vectors come from.
        fields: which field holds what.
        vector_field: see above.

    Raises:
        SourceError: the source, a record or a vector cannot be used; the message names the line.
    """
    with _opened(source, fields) as stream, closing(SeenIds()) as seen:
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
            id_ = document.id or content_id(document.title, document.text)
            earlier = seen.earlier(id_, str(record.number))
            if earlier is not None and not document.id:
                continue
            if earlier is not None:
                raise SourceError(
                    f"{where}: the id {id_!r} was given before, in line {earlier}; ids must be "
                    "unique within a file"
                )
            text, document = document.text, replace(document, id=id_)
            if passages is None:
                vector = _parsed(whole, spec, f"{where}: {vector_field!r}")
                yield ReadyDocument(document, [(0, len(text))], vector[np.newaxis])
            else:
                yield ReadyDocument(document, *_parsed_passages(passages, text, spec, where))
        if empty:
            raise SourceError(f"{stream.name}: holds no records; check that it is the right file")


def read_matrix(
    corpus: CorpusReader, vectors: Path, matrix: NDArray[Any] | FaissVectors
) -> Iterator[ReadyDocument]:
    """The documents of a corpus with the rows of a file, both in their order.

    Beside the file there can be the ids of its rows (see `ids_file_of`), a
    JSON value per line: an object with the span of a passage, as an export writes it, or the id of
    a whole document, as `retriever encode` does. Without, each row is a whole document. Everything
    is counted and compared before the first document is given, so the corpus is read twice.

    Args:
        corpus: the documents.
        vectors: the file.
        matrix: what `open_matrix` gave of it.

    Raises:
        SourceError: a row holds NaN or infinity; rows and documents differ in number or in
            their ids; what `corpus` raises.
    """
    _require_agreement(corpus, vectors, len(matrix))
    for document, rows in zip(corpus, _groups(vectors, len(matrix)), strict=True):
        spans = [row.span or (0, len(document.text)) for row in rows]
        for row, span in zip(rows, spans, strict=True):
            _require_inside(row.where, span, document.text)
        first, last = rows[0].number, rows[-1].number
        found = np.asarray(matrix[first : last + 1], np.float64)
        names = [f"{vectors}: row {row.number} (counted from 0)" for row in rows]
        yield ReadyDocument(document, spans, finite_rows(found, names))


def with_vectors(
    documents: Iterable[AnyDocument | ReadyDocument],
    vectors: ArrayLike | Iterable[ArrayLike] | None,
    spec: EncoderSpec,
) -> Iterator[Document | ReadyDocument]:
    """The documents, with their vectors if there are any.

    Raises:
        ConfigError: vectors are not as many as the documents, or not of the encoder's dimensions.
        SourceError: a mapping is no document.
    """
    if vectors is None:
        for one in documents:
            yield one if isinstance(one, ReadyDocument) else as_document(one)
        return
    rows = iter(vectors)  # type: ignore[arg-type]
    count = 0
    for one in documents:
        count += 1
        row = next(rows, None)
        if row is None:
            raise ConfigError(f"vectors: expected one for each document, found {count - 1}")
        vector = np.asarray(row, np.float32)
        if vector.shape != (spec.dimensions,) or not np.isfinite(vector).all():
            raise ConfigError(
                f"vectors: expected {spec.dimensions} finite numbers for document {count}, as "
                f"{spec} gives them, found an array of shape {vector.shape}"
            )
        if isinstance(one, ReadyDocument):
            raise TypeError("vectors are given twice: leave one of them out")
        document = as_document(one)
        yield ReadyDocument(document, [(0, len(document.text))], vector[np.newaxis])
    if next(rows, None) is not None:
        raise ConfigError(f"vectors: expected {count}, one for each document, found more")


class _Row(NamedTuple):
    """A row of the matrix, and what the file of ids says of it.

    Attributes:
        number: counted from 0.
        where: the place for error messages.
        id, span: None if the file does not say.
    """

    number: int
    where: str
    id: str | None
    span: tuple[int, int] | None


def open_matrix(vectors: Path, spec: EncoderSpec) -> NDArray[Any] | FaissVectors:
    """Open a NumPy file, or an index that FAISS wrote.

    Raises:
        SourceError: it is neither, or does not have as many columns as the encoder has dimensions.
        MissingExtraError: it is of FAISS, which is not installed.
    """
    if is_faiss_file(vectors):
        kept = FaissVectors(vectors)
        if kept.shape[1] != spec.dimensions:
            raise SourceError(wrong_width(str(vectors), spec, kept.shape[1]))
        return kept
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
    if matrix.shape[1] != spec.dimensions:
        raise SourceError(wrong_width(str(vectors), spec, matrix.shape[1]))
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
            yield _Row(number, str(vectors), None, None)
        return
    number = -1
    with ids_file.open("rb") as file:
        for number, line in enumerate(file):
            where = f"{ids_file}:{number + 1}"
            match _json(line):
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


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _opened(source: str | Path, fields: Fields) -> Iterator[OpenSource]:
    if str(source) == "-":
        with opened_stream(sys.stdin.buffer, "stdin", fields, Meter()) as stream:
            yield stream
    else:
        with opened(Path(source), str(source), fields, Meter()) as stream:
            yield stream


def _parsed_passages(
    value: Json, text: str, spec: EncoderSpec, where: str
) -> tuple[list[tuple[int, int]], NDArray[np.float32]]:
    spans, rows = [], []
    for number, passage in enumerate(value if isinstance(value, list) else []):
        match passage:
            case {"start": int() as start, "stop": int() as stop, "vector": vector, **rest}:
                if not rest:
                    _require_inside(where, (start, stop), text)
                    spans.append((start, stop))
                    rows.append(_parsed(vector, spec, f"{where}: passage {number + 1}"))
                    continue
        break
    if not isinstance(value, list) or not rows or len(rows) < len(value):
        raise SourceError(
            f"{where}: {VECTORS_FIELD!r}: expected a list of passages, each an object of start, "
            "stop and vector; write it with `retriever export --vectors`"
        )
    return spans, np.stack(rows)


def _parsed(value: Json, spec: EncoderSpec, where: str) -> NDArray[np.float32]:
    """(dimensions,) float32, finite."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        raise SourceError(
            f"{where}: expected a list of {spec.dimensions} numbers; correct the record"
        )
    if len(value) != spec.dimensions:
        raise SourceError(wrong_width(where, spec, len(value)))
    try:
        found = np.array(value, np.float64)
    except OverflowError:
        found = np.full(len(value), np.inf)
    return finite_rows(found[np.newaxis], [where]).reshape(-1)


def finite_rows(found: NDArray[np.float64], names: list[str]) -> NDArray[np.float32]:
    """(rows, dimensions) as float32; `names` gives the place of each row."""
    with np.errstate(over="ignore"):
        vectors = found.astype(np.float32)
    for name, row in zip(names, vectors, strict=True):
        if not np.isfinite(row).all():
            raise SourceError(
                f"{name}: expected numbers that float32 holds, found NaN, infinity or one too "
                "large; make the vector again or leave the document out"
            )
    return vectors


def wrong_width(where: str, spec: EncoderSpec, found: int) -> str:
    """The message for vectors of `found` dimensions."""
    return (
        f"{where}: expected vectors of {spec.dimensions} dimensions, as {spec} gives them, found "
        f"{found}; name the encoder that made them with --model"
    )


def _require_inside(where: str, span: tuple[int, int], text: str) -> None:
    if bool in map(type, span) or not 0 <= span[0] <= span[1] <= len(text):
        raise SourceError(
            f"{where}: expected a passage inside the text of {len(text)} characters, found "
            f"{span[0]} to {span[1]}; give the text that the vectors were made from"
        )
