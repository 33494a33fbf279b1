"""Add documents to an index, from everything that `Index.add` takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.documents.document import AnyDocument, Document, content_id
from retriever.documents.passages import OnLong, check_on_long
from retriever.documents.reader import CorpusReader
from retriever.documents.tables import is_table, table_documents
from retriever.errors import ConfigError, EncoderMismatchError, require_several
from retriever.index.indexing.embedded_documents import ReadyDocument, with_vectors
from retriever.index.indexing.fit_measurement import measure_fit
from retriever.index.indexing.indexer import Indexer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from indexes import Stage, Writer
    from retriever.encoders.spec import EncoderSpec
    from retriever.index.indexing.run import IndexingReport
    from retriever.index.writer_access import WriterAccess
    from retriever.search.opened import OpenedIndex


def stream_documents(
    documents: Iterable[AnyDocument | ReadyDocument] | Path,
    ids: Iterable[str] | None = None,
    metadatas: Iterable[Mapping[str, Any] | None] | None = None,
) -> Iterable[AnyDocument | ReadyDocument]:
    """Return the documents of a program, a table or a path as a stream; see `Index.add`."""
    if isinstance(documents, str | bytes | Mapping | Document | ReadyDocument):
        raise TypeError(
            f"documents: expected several documents, found one {type(documents).__name__}; "
            "put it into a list"
        )
    if isinstance(documents, Path):
        documents = CorpusReader([documents])
    if is_table(documents):
        documents = table_documents(documents)
    columns = {"ids": ids, "metadatas": metadatas}
    text_columns = {name: values for name, values in columns.items() if values is not None}
    if not text_columns:
        return documents
    for name, values in text_columns.items():
        require_several(name, values)
    return _documents_of_texts(documents, text_columns)


def add_documents(
    access: WriterAccess,
    documents: Iterable[AnyDocument | ReadyDocument],
    vectors: ArrayLike | Iterable[ArrayLike] | None = None,
    *,
    made_by: EncoderSpec | None = None,
    on_long: OnLong | None = None,
    stage: Stage,
    prune: bool = False,
    compact: bool = True,
    remember: bool = False,
    **run: Any,
) -> IndexingReport:
    """Add documents as `Index.add` does; `run` has its `commit`, `progress` and `report`."""
    with access.writer() as writer:
        opened = access.opened
        _require_encoder(opened, made_by)
        indexer = make_indexer(opened, writer, on_long, stage=stage, **run)
        is_reader = isinstance(documents, CorpusReader)
        document_context: AbstractContextManager[Iterable[AnyDocument | ReadyDocument]]
        document_context = nullcontext(documents)
        if remember and isinstance(documents, CorpusReader):
            from retriever.index.sources.remembered import remember_sources

            document_context = remember_sources(
                opened.store, documents, indexer, on_long=on_long, prune=prune
            )
        with document_context as stream:
            indexer.add(with_vectors(stream, vectors))
            if prune:
                indexer.report.deleted += _delete_unseen(opened, writer)
                writer.merge(stage)
            measure_fit(opened, writer, indexer.sample, indexer.added)
            if compact:
                indexer.merge()
            # A reader warns of empty documents itself, and says where they are.
            if indexer.report.empty and not is_reader:
                warnings.warn(indexer.report.empty_note, stacklevel=3)
        return indexer.report


def make_indexer(
    opened: OpenedIndex, writer: Writer, on_long: OnLong | None, **run: Any
) -> Indexer:
    """Make the indexer of an index; `run` has the keywords of `Indexer`."""
    settings = opened.settings()
    return Indexer(
        writer,
        lambda: opened.encoder(settings),
        settings.analyzer,
        settings.passages,
        spec=settings.encoder,
        on_long=check_on_long(on_long, settings.passages),
        view=opened.view,
        **run,
    )


def _require_encoder(opened: OpenedIndex, made_by: EncoderSpec | None) -> None:
    """Raise EncoderMismatchError if the vectors are not those of the index's encoder."""
    own = opened.settings().encoder
    if made_by is not None and made_by.fingerprint != own.fingerprint:
        raise EncoderMismatchError(
            f"{opened.store}: the index has the encoder {own}, but the vectors are of {made_by}; "
            "add them to another index"
        )


def _delete_unseen(opened: OpenedIndex, writer: Writer) -> int:
    """Delete the documents that this run did not read; return their number.

    Raise ConfigError if the run read no document and the index holds some.
    """
    if not writer.count_seen():
        with opened.view() as view:
            count = view.count_documents()
        if count:
            raise ConfigError(
                f"{opened.store}: no document was read, and pruning would delete all "
                f"{count:,}; check the source, or delete them with `clear`"
            )
    return writer.delete_unseen()


def _documents_of_texts(
    texts: Iterable[Any], columns: Mapping[str, Iterable[Any]]
) -> Iterator[Document]:
    """Yield a document for each text, with its id and metadata from `columns`.

    Without a column of ids, an id is computed from each text. Raise ValueError if a column is
    longer or shorter than `texts`, and TypeError if one of the texts is no string.
    """
    names = tuple(columns)
    rows = zip_longest(texts, *columns.values(), fillvalue=...)
    for number, (text, *values) in enumerate(rows, start=1):
        if text is ...:
            raise ValueError(f"{names[0]}: expected one for each document, found more")
        for name, value in zip(names, values, strict=True):
            if value is ...:
                raise ValueError(
                    f"{name}: expected one for each document, found only {number - 1:,}"
                )
        if not isinstance(text, str):
            raise TypeError(
                f"document {number}: expected a text, since {names[0]} are given, found "
                f"{type(text).__name__}"
            )
        fields = dict(zip(names, values, strict=True))
        id_ = fields["ids"] if "ids" in fields else content_id(None, text)
        yield Document(id_, text, metadata=dict(fields.get("metadatas") or {}))
