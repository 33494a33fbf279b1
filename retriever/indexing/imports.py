"""Documents with ready vectors into an index: nothing is encoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.segments.maintenance import merge
from indexes.store.documents import NewDocument, metadata_json
from indexes.vectors.segment_structure import StructureSettings
from indexes.writer import Writer
from retriever.analyzer import Analyzer, AnalyzerSettings
from retriever.corpus import CorpusReader, Fields
from retriever.encoders.choice import ModelChoice
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, SourceError
from retriever.index import Index
from retriever.indexing.add import content_hash, passage_text
from retriever.indexing.export import encoder_file
from retriever.indexing.ready_vectors import ReadyDocument, read_matrix, read_records

# Documents whose stored state is looked up together.
_CHUNK = 512
# A vector whose length is nearer to 1 than this is taken as it is.
_UNIT = 1e-4


@dataclass(slots=True)
class ImportReport:
    """What an import did, counted as it is committed.

    Attributes:
        added, updated, unchanged: documents; an update may be of metadata alone.
        passages: passages stored, each with its vector.
        scaled: vectors that were brought to length 1, as the encoder's own are.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    passages: int = 0
    scaled: int = 0

    def add(self, other: ImportReport) -> None:
        """Count in what another report counts."""
        self.added += other.added
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.passages += other.passages
        self.scaled += other.scaled


@dataclass(slots=True)
class _Batch:
    """Documents on their way to one commit."""

    documents: list[NewDocument] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    tokens: list[list[str]] = field(default_factory=list)
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: ImportReport = field(default_factory=ImportReport)


def import_documents(
    folder: str | Path,
    source: str | Path,
    choice: ModelChoice | None = None,
    *,
    vectors: Path | None = None,
    fields: Fields = Fields(),  # noqa: B008
    vector_field: str = "vector",
    analyzer: AnalyzerSettings | None = None,
    structures: StructureSettings | None = None,
    commit_passages: int = 65536,
    progress: Callable[[int], object] = lambda documents: None,
    report: ImportReport | None = None,
) -> ImportReport:
    """Put documents and their ready vectors into an index, which is made if there is none.

    A document whose id the index holds is replaced; one whose title and text are the same is
    left with the vectors that it has. Where the encoder gives vectors of length 1, others are
    brought to that length and counted; a vector of zeros stays.

    Args:
        folder: the index.
        source: JSON Lines with vectors (see `read_records`), or, with
            `vectors`, what `CorpusReader` reads.
        choice: the encoder that the vectors come from. Where the file that an export puts
            beside the vectors is there, what is not asked for is as it says.
        vectors: a NumPy file, see `retriever.indexing.ready_vectors.read_matrix`.
        fields: which field holds what.
        vector_field: the field of one vector for the whole document.
        analyzer: language of the BM25 side; None takes English, or the index's own.
        structures: how large segments are searched; None chooses, or takes the index's own way.
        commit_passages: commit when so many are read; a bad record loses at most these.
        progress: told how many more documents are read.
        report: counted into, for a caller that wants to see it after a failure.

    Raises:
        ConfigError: no encoder is named; what `Index.create` raises.
        EncoderMismatchError: the vectors, the index and `choice` are not of one encoder.
        SourceError: a record, a vector or a file cannot be used; earlier commits stand.
        IndexLockedError, StorageError
    """
    if vectors is not None and str(source) == "-":
        raise SourceError("stdin: expected a file, since it is read twice; write it into one")
    # Before an index is made: a source may not exist.
    corpus = None if vectors is None else CorpusReader([source], fields)
    if vectors is not None or str(source) != "-":
        _require_file(vectors or Path(source))
    made_by = encoder_file(vectors or Path(source))
    choice, spec = _named_encoder(choice or ModelChoice(), made_by, vectors or source)
    with Index.create(folder, choice, analyzer=analyzer, structures=structures):
        pass
    report = report or ImportReport()
    # Opened again under the lock: the index may have been made anew meanwhile.
    with Index.open(folder, choice) as index, Writer(index.folder) as writer:
        if spec is not None and spec.fingerprint != index.encoder_spec.fingerprint:
            raise EncoderMismatchError(
                f"{made_by}: the vectors are of {spec} ({spec.fingerprint}), expected those of the "
                f"index in {folder}, {index.encoder_spec} ({index.encoder_spec.fingerprint}); "
                "import them into another index"
            )
        if vectors is None or corpus is None:
            ready = read_records(source, index.encoder_spec, fields, vector_field)
        else:
            ready = read_matrix(corpus, vectors, index.encoder_spec)
        _feed(writer, index, ready, commit_passages, progress, report)
    return report


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise SourceError(f"{path}: expected a file of vectors, found a folder; name the file")
    if not path.exists():
        raise SourceError(f"{path}: no such file; check the path")


def _named_encoder(
    choice: ModelChoice, made_by: Path, source: str | Path
) -> tuple[ModelChoice, EncoderSpec | None]:
    """The encoder to make or open the index with, and the one that the export names."""
    if not made_by.is_file():
        if choice.settings.model is None:
            raise ConfigError(
                f"{source}: the encoder that the vectors come from is not known, since there is "
                f"no {made_by.name} beside them; name it with --model"
            )
        return choice, None
    try:
        spec = EncoderSpec.from_json(json.loads(made_by.read_text("utf-8")))
    except (ConfigError, AttributeError, TypeError, ValueError) as error:
        raise SourceError(
            f"{made_by}: expected the specification of an encoder, as `retriever export` writes "
            f"it ({' '.join(str(error).split())}); export again, or remove it and use --model"
        ) from error
    model = choice.settings.model or spec.model
    try:
        replace(choice, encoder=str(replace(choice.settings, model=model))).check(spec, made_by)
    except EncoderMismatchError as error:
        raise EncoderMismatchError(
            f"{made_by}: the vectors are of {spec} with weights {spec.weights[:12]}, but "
            f"{choice.encoder or 'the model of that name'} is another encoder; name the one that "
            "made them with --model"
        ) from error
    return replace(choice, encoder=str(replace(spec.settings, model=model))), spec


def _feed(
    writer: Writer,
    index: Index,
    ready: Iterator[ReadyDocument],
    commit_passages: int,
    progress: Callable[[int], object],
    report: ImportReport,
) -> None:
    normalized = index.encoder_spec.meaning("normalize")
    batch = _Batch()
    while chunk := list(islice(ready, _CHUNK)):
        _consider(writer, index.analyzer, chunk, normalized, batch)
        if batch.counts.passages >= commit_passages:
            batch = _commit(writer, batch, report)
        progress(len(chunk))
    _commit(writer, batch, report)


def _consider(
    writer: Writer,
    analyzer: Analyzer,
    chunk: Sequence[ReadyDocument],
    normalized: bool,
    batch: _Batch,
) -> None:
    """Put what is new or changed into the batch."""
    heads = writer.heads([one.document.id for one in chunk])
    counts = batch.counts
    for one in chunk:
        document, digest = one.document, content_hash(one.document)
        head = heads.get(document.id)
        if head is not None and head.hash == digest:
            if head.metadata == metadata_json(document.metadata):
                counts.unchanged += 1
            else:
                counts.updated += 1
                batch.metadata[document.id] = document.metadata
            continue
        counts.added += head is None
        counts.updated += head is not None
        counts.passages += len(one.spans)
        vectors = one.vectors
        if normalized:
            vectors, scaled = unit_vectors(vectors)
            counts.scaled += scaled
        batch.documents.append(
            NewDocument(
                document.id, document.title, document.text, document.metadata, digest, one.spans
            )
        )
        batch.vectors.append(vectors)
        batch.tokens += [analyzer.tokens(passage_text(document, span)) for span in one.spans]


def unit_vectors(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Bring vectors to length 1.

    Args:
        vectors: (n, d) float32, finite.

    Returns:
        (n, d) float32, and how many were changed: neither those within 1e-4 of length 1, which
        only rounding keeps from it, nor zero.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    far = (np.abs(lengths - 1) > _UNIT) & (lengths > 0)
    if not far.any():
        return vectors, 0
    scaled = vectors.astype(np.float64)
    scaled[far] /= lengths[far, np.newaxis]
    return scaled.astype(np.float32), int(np.count_nonzero(far))


def _commit(writer: Writer, batch: _Batch, report: ImportReport) -> _Batch:
    """Commit a batch and count it; returns a new one."""
    if batch.documents or batch.metadata:
        vectors = batch.vectors or [np.empty((0, 0), np.float32)]
        writer.commit(batch.documents, np.concatenate(vectors), batch.tokens, batch.metadata)
        merge(writer)
    report.add(batch.counts)
    return _Batch()
