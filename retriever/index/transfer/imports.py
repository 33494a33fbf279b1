"""Import documents with their vectors into an index, from files, shards or another store."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes import Stage, Store, StructureSettings, no_progress, open_store
from indexes.vectors import FaissVectors, is_faiss_file
from retriever.documents.analyzer import AnalyzerSettings
from retriever.documents.document import Assembler, Fields, Json
from retriever.documents.reader import CorpusReader
from retriever.documents.sources import Meter, SeenIds, open_source, open_stream
from retriever.documents.text import read_jsonl
from retriever.encoders.encoder import Encoder, ModelChoice
from retriever.encoders.registry import require_trusted
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, SourceError
from retriever.index.index import Index
from retriever.index.indexing.embedded_documents import ReadyDocument, counted, require_sound
from retriever.index.indexing.run import CommitSettings, IndexingReport
from retriever.index.transfer.export import VECTORS_FIELD, encoder_file, ids_file_of
from retriever.index.transfer.other_stores import open_collection
from retriever.index.transfer.shards import PLAN_FILE, Plan, is_shards, read_shards
from retriever.search.opened import IndexSettings, initial_settings

_STORE_LOCATION = re.compile(r"(chroma|lancedb):(.+)")


def import_documents(
    folder: str | Path | Store,
    source: str | Path,
    model: str = "",
    *,
    vectors: str | Path | None = None,
    fields: Fields = Fields(),  # noqa: B008
    vector_field: str = "vector",
    device: str | None = None,
    download: bool = False,
    analyzer: AnalyzerSettings | None = None,
    structures: StructureSettings | None = None,
    commit: CommitSettings | None = None,
    progress: Callable[[int], object] | None = None,
    stage: Stage = no_progress,
    report: IndexingReport | None = None,
    compact: bool = True,
) -> IndexingReport:
    """Add documents with their vectors to an index, which is created if there is none.

    A document whose id is in the index is replaced; if its title and text are the same, it keeps
    its vectors. If the encoder gives vectors of length 1, other vectors are scaled to that length
    and counted; zero vectors stay. A warning says whether vectors of a store were scaled, and how
    many documents without text and title were skipped.

    Args:
        folder: the index.
        source: JSON Lines with vectors, those of passages in ``vectors`` as `export_jsonl` writes
            them or one in `vector_field`; ``chroma:DIR`` or ``lancedb:DIR``, with ``/NAME`` of one
            of several collections or tables; a folder of `encode_shards`; or, with `vectors`, what
            `CorpusReader` reads.
        model: the encoder that the vectors come from, in its text form. The file that an
            export writes beside the vectors fills in what is not named here.
        vectors: a NumPy file, or an index that `faiss.write_index` wrote, with the vectors in the
            order of the documents.
        fields: which field holds what.
        vector_field: the field of one vector for the whole document.
        device: torch device of the model; see `Index.create`.
        download: allow downloads of a hub id that is not in the cache.
        analyzer: analyzer of a new index.
        structures: search structure of a new index.
        commit: how often to commit; see `Index.add`.
        stage: receives the progress of a search structure that a merge builds.
        report: counts are added to it.
        compact: merge at the end.
        progress: called with the number of documents read since the last call.

    Raises:
        ConfigError: no encoder is named; what `Index.create` raises.
        EncoderMismatchError: the vectors, the index and `model` are not of one encoder.
        SourceError: a record, a vector or a file cannot be used; earlier commits stand, and no
            index is created where the first record is bad.
        IndexLockedError: another writer holds the index.
        StorageError: the index cannot be written.
    """
    if vectors is None and fields.types:
        raise ConfigError(
            f"{source}: types are for columns of CSV and TSV, which come with vectors"
        )
    choice = ModelChoice(model, device, download)
    store = open_store(folder)
    if vectors is not None:
        opened_source = _open_corpus(
            store, source, Path(vectors), choice, fields, analyzer, structures
        )
    elif is_shards(Path(source)):
        opened_source = _open_shards(Path(source), choice)
    else:
        opened_source = _open_records(
            store, source, choice, fields, vector_field, analyzer, structures
        )
    index = _open_target(store, opened_source, analyzer, structures)
    with index:
        report = index.add(
            counted(opened_source.documents, progress),
            made_by=opened_source.spec,
            commit=commit,
            stage=stage,
            report=report,
            compact=compact,
        )
    _warn_after_import(source, opened_source, report)
    return report


@dataclass(slots=True)
class _ImportSource:
    """Documents to import, and the encoder that made their vectors."""

    documents: Iterator[ReadyDocument]
    spec: EncoderSpec
    encoder: Encoder | None = None  # only for a new index
    plan: Plan | None = None  # only for shards
    corpus: CorpusReader | None = None  # only if the vectors are in another file
    has_own_metric: bool = False  # a store or FAISS, which may not rank by the cosine


def _open_shards(folder: Path, choice: ModelChoice) -> _ImportSource:
    """Open a folder of `encode_shards`."""
    plan = Plan.read(folder)
    if choice.encoder:
        _complete_choice(choice, plan.encoder, folder / PLAN_FILE)
    return _ImportSource(read_shards(folder), plan.encoder, plan=plan)


def _open_corpus(
    store: Store,
    source: str | Path,
    vectors: Path,
    choice: ModelChoice,
    fields: Fields,
    analyzer: AnalyzerSettings | None,
    structures: StructureSettings | None,
) -> _ImportSource:
    """Open a corpus with its vectors in a file of NumPy or FAISS."""
    if str(source) == "-":
        raise SourceError("stdin: expected a file, since it is read twice; write it into one")
    corpus = CorpusReader([source], fields)
    spec, encoder = _find_encoder(store, source, vectors, choice, analyzer, structures)
    matrix = _open_matrix(vectors, spec)
    is_faiss = isinstance(matrix, FaissVectors)
    if isinstance(matrix, FaissVectors) and not matrix.exact:
        warnings.warn(
            f"{vectors}: holds compressed vectors, so scores are approximate; name a .npy "
            "file of the original vectors for exact ones",
            stacklevel=3,
        )
    documents = _read_matrix(corpus, vectors, matrix, spec)
    return _ImportSource(documents, spec, encoder, corpus=corpus, has_own_metric=is_faiss)


def _open_records(
    store: Store,
    source: str | Path,
    choice: ModelChoice,
    fields: Fields,
    vector_field: str,
    analyzer: AnalyzerSettings | None,
    structures: StructureSettings | None,
) -> _ImportSource:
    """Open another store, or JSON Lines with vectors."""
    spec, encoder = _find_encoder(store, source, None, choice, analyzer, structures)
    location = _STORE_LOCATION.match(str(source))
    if location is None:
        documents = _read_records(source, spec, fields, vector_field)
    else:
        documents = open_collection(location[1], location[2], spec, fields, vector_field)
    return _ImportSource(documents, spec, encoder, has_own_metric=location is not None)


def _open_target(
    store: Store,
    source: _ImportSource,
    analyzer: AnalyzerSettings | None,
    structures: StructureSettings | None,
) -> Index:
    """Open the index, which is created if there is none and the first document can be read."""
    first_document = list(islice(source.documents, 1))
    source.documents = chain(first_document, source.documents)
    plan = source.plan
    if plan is not None and not store.exists():
        settings = IndexSettings(analyzer or plan.analyzer, plan.passages, structures)
        # No model is loaded.
        store.create(initial_settings((source.spec, plan.probes), settings))
    return Index.create(
        store,
        encoder=source.encoder,
        analyzer=analyzer,
        passages=None if plan is None else plan.passages,
        structures=structures,
    )


def _warn_after_import(
    source: str | Path, opened_source: _ImportSource, report: IndexingReport
) -> None:
    """Warn of vectors that were scaled, and of records that were skipped or altered."""
    if opened_source.has_own_metric and report.scaled:
        warnings.warn(
            f"{source}: {report.scaled:,} vectors are not of length 1: this index ranks by "
            "cosine, so the order of hits may differ from the source; to rank by inner product, "
            "add ::normalize=no to --model",
            stacklevel=3,
        )
    corpus = opened_source.corpus
    if corpus is None:
        return
    for line in corpus.metadata_warnings():
        warnings.warn(line, stacklevel=3)
    if corpus.empty:
        report.count_empty(corpus.empty, corpus.empty_at)
        warnings.warn(report.empty_note, stacklevel=3)


def _find_encoder(
    store: Store,
    source: str | Path,
    vectors: Path | None,
    requested: ModelChoice,
    analyzer: AnalyzerSettings | None,
    structures: StructureSettings | None,
) -> tuple[EncoderSpec, Encoder | None]:
    """Return the encoder that made the vectors, and the loaded one if there is no index yet."""
    file = vectors or Path(source)
    is_store = vectors is None and _STORE_LOCATION.match(str(source))
    if not is_store and str(file) != "-" and (file.is_dir() or not file.exists()):
        problem = "expected a file of vectors, found a folder" if file.is_dir() else "no such file"
        raise SourceError(f"{file}: {problem}; check the path")
    spec_file = encoder_file(file)
    choice, spec = _read_encoder_file(requested, spec_file, vectors or source)
    encoder = None
    if store.exists():
        with Index.create(
            store,
            choice.encoder,
            download=requested.download,
            analyzer=analyzer,
            structures=structures,
        ) as index:
            own = index.encoder_spec
    else:
        encoder = choice.load()
        own = encoder.spec
    if spec is not None and spec.fingerprint != own.fingerprint:
        raise EncoderMismatchError(
            f"{spec_file}: the vectors are of {spec} ({spec.fingerprint}), expected vectors of "
            f"the index in {store}, {own} ({own.fingerprint}); import them into another index"
        )
    return own, encoder


def _read_encoder_file(
    choice: ModelChoice, spec_file: Path, source: str | Path
) -> tuple[ModelChoice, EncoderSpec | None]:
    """Return the encoder for the index, and the one that the export's file names, if any."""
    if not spec_file.is_file():
        if choice.settings.model is None:
            raise ConfigError(
                f"{source}: the encoder that the vectors come from is not known, since there is "
                f"no {spec_file.name} beside them; name it with --model"
            )
        return choice, None
    try:
        spec = EncoderSpec.from_json(json.loads(spec_file.read_text("utf-8")))
    except (ConfigError, AttributeError, TypeError, ValueError) as error:
        raise SourceError(
            f"{spec_file}: expected the specification of an encoder, as `retriever export` writes "
            f"it ({' '.join(str(error).split())}); export again, or remove it and use --model"
        ) from error
    return _complete_choice(choice, spec, spec_file), spec


def _complete_choice(choice: ModelChoice, spec: EncoderSpec, spec_file: Path) -> ModelChoice:
    """Return the encoder that made the vectors; raise EncoderMismatchError for another choice."""
    model = choice.settings.model or spec.model
    require_trusted(model, choice.settings.model)
    try:
        replace(choice, encoder=str(replace(choice.settings, model=model))).check(spec, spec_file)
    except EncoderMismatchError as error:
        raise EncoderMismatchError(
            f"{spec_file}: the vectors are of {spec} with weights {spec.weights[:12]}, but "
            f"{choice.encoder or 'the model of that name'} is another encoder; name the encoder "
            "that made them with --model"
        ) from error
    return replace(choice, encoder=str(replace(spec.settings, model=model)))


def _read_records(
    source: str | Path, spec: EncoderSpec, fields: Fields, vector_field: str
) -> Iterator[ReadyDocument]:
    """Yield the documents of JSON Lines, with vectors of passages or one in `vector_field`."""
    if str(source) == "-":
        source_stream = open_stream(sys.stdin.buffer, "stdin", fields, Meter())
    else:
        source_stream = open_source(Path(source), str(source), fields, Meter())
    with source_stream as stream, closing(SeenIds()) as seen_ids:
        if stream.format != "jsonl":
            raise SourceError(
                f"{stream.name}: expected JSON Lines with vectors in each record, found "
                f"{stream.format}; give the vectors as a NumPy file with --vectors"
            )
        assembler = Assembler(fields)
        is_empty = True
        for record in read_jsonl(stream, fields):
            is_empty = False
            where = record.where
            document_vector = record.values.pop(vector_field, None)
            passages = record.values.pop(VECTORS_FIELD, None)
            document = assembler.assemble(record)
            if (document_vector is None) == (passages is None):
                number = "both" if passages is not None else "neither"
                raise SourceError(
                    f"{where}: expected {VECTORS_FIELD!r} as `retriever export --vectors` writes "
                    f"it or one {vector_field!r}, found {number}; name the vector field with "
                    "--set vector-field=NAME, or give a NumPy file with --vectors"
                )
            new_document = seen_ids.identify(document, where)
            if new_document is None:
                continue
            if passages is None:
                vector = _parse_vector(document_vector, spec, f"{where}: {vector_field!r}")
                spans = [(0, len(document.text))]
                vectors = vector[np.newaxis]
            else:
                spans, vectors = _parse_passages(passages, spec, where)
            yield require_sound(ReadyDocument(new_document, spans, vectors), spec, where)
        if is_empty:
            raise SourceError(f"{stream.name}: holds no records; check that it is the right file")


def _read_matrix(
    corpus: CorpusReader, vectors: Path, matrix: NDArray[Any] | FaissVectors, spec: EncoderSpec
) -> Iterator[ReadyDocument]:
    """Yield the documents of a corpus with the rows of a file, both in their order."""
    # The corpus is read twice: all documents are counted and compared before the first is added.
    expected = sum(1 for _ in _group_rows(vectors, len(matrix)))
    groups = _group_rows(vectors, len(matrix))
    documents = 0
    for document in corpus:
        documents += 1
        row = next(groups, [None])[0]
        if row is not None and row.id not in (None, document.id):
            raise SourceError(
                f"{row.where}: expected the document {document.id!r}, found {row.id!r}; give the "
                "corpus of the vectors, in the same order"
            )
    if documents != expected:
        raise SourceError(
            f"{vectors}: expected vectors of {documents:,} documents, found {expected:,} (without "
            f"{corpus.duplicates:,} identical and {corpus.empty:,} empty records); give the "
            "corpus of the vectors, in the same order"
        )
    for document, rows in zip(corpus, _group_rows(vectors, len(matrix)), strict=True):
        spans = [row.span or (0, len(document.text)) for row in rows]
        document_vectors = np.asarray(matrix[rows[0].number : rows[-1].number + 1])
        yield require_sound(ReadyDocument(document, spans, document_vectors), spec, rows[0].where)


class _Row(NamedTuple):
    """A row of a file of vectors."""

    # Counted from 0.
    number: int
    where: str
    # None if there is no file of ids.
    id: str | None
    span: tuple[int, int] | None


def _open_matrix(vectors: Path, spec: EncoderSpec) -> NDArray[Any] | FaissVectors:
    """Open a NumPy file, or an index that FAISS wrote."""
    if is_faiss_file(vectors):
        return FaissVectors(vectors)
    try:
        matrix = np.lib.format.open_memmap(vectors, mode="r")
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


def _group_rows(vectors: Path, rows: int) -> Iterator[list[_Row]]:
    """Yield the rows of each document, in the order of the file."""
    grouped = groupby(
        _read_rows(vectors, rows), lambda row: row.number if row.span is None else row.id
    )
    return (list(group) for _, group in grouped)


def _read_rows(vectors: Path, rows: int) -> Iterator[_Row]:
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
                        f"{where}: expected a document id as a JSON string, or an object with id, "
                        f"start and stop, found {line[:40]!r}; export or encode again, or remove "
                        "the file if rows are documents in corpus order"
                    )
    if number + 1 != rows:
        raise SourceError(
            f"{ids_file}: expected {rows:,} lines, one for each row of {vectors}, found "
            f"{number + 1:,}; export or encode again"
        )


def _parse_passages(
    value: Json, spec: EncoderSpec, where: str
) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
    spans = []
    rows = []
    for number, passage in enumerate(value if isinstance(value, list) else [], start=1):
        match passage:
            case {"start": int() as start, "stop": int() as stop, "vector": row, **rest} if (
                not rest
            ):
                spans.append((start, stop))
                rows.append(_parse_vector(row, spec, f"{where}: passage {number}"))
            case _:
                break
    if not isinstance(value, list) or not rows or len(rows) < len(value):
        raise SourceError(
            f"{where}: {VECTORS_FIELD!r}: expected a list of passages, each an object of start, "
            "stop and vector; write it with `retriever export --vectors`"
        )
    return spans, np.stack(rows)


def _parse_vector(value: Json, spec: EncoderSpec, where: str) -> NDArray[np.float64]:
    """Return the vector (dimensions,) of a JSON value; SourceError if it is another value."""
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
