"""Change the stored documents of an index, and delete or compact them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from indexes.filters import compile_where, id_forms
from retriever.documents.document import is_id, metadata_fault, plain_metadata
from retriever.errors import BadInputError, ConfigError, FilterError, require_several
from retriever.index.indexing.passage_texts import stored_texts
from retriever.index.sources.memory import SourceMemory, memory_path
from retriever.search.settings import CALIBRATION

if TYPE_CHECKING:
    from indexes import Stage, Writer
    from indexes.filters import Where
    from retriever.index.writer_access import WriterAccess
    from retriever.search.calibration import Calibration
    from retriever.search.opened import OpenedIndex


def replace_metadata(access: WriterAccess, id_: str, metadata: Mapping[str, Any]) -> None:
    """Replace the metadata of a document as a whole; see `Index.update`."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata: expected a mapping, found {type(metadata).__name__}")
    metadata = plain_metadata(metadata)
    fault = metadata_fault(metadata)
    if fault is not None:
        raise BadInputError(f"document {id_!r}: {fault}")
    with access.writer() as writer:
        if not (is_id(id_) and writer.stored_versions([id_])):
            raise KeyError(id_)
        writer.commit([], np.empty((0, 0), np.float32), [], {id_: metadata})


def store_calibration(access: WriterAccess, calibration: Calibration) -> None:
    """Store the calibration of a mode, in place of an earlier one."""
    with access.writer() as writer:
        stored = writer.setting(CALIBRATION, {})
        writer.record(CALIBRATION, {**stored, calibration.mode: asdict(calibration)})


def delete_documents(
    access: WriterAccess,
    ids: Iterable[str] | None,
    where: str | Mapping[str, Any] | None,
    *,
    erase: bool,
    stage: Stage,
) -> int:
    """Delete documents by id or by filter; see `Index.delete`."""
    if (ids is None) == (where is None):
        raise TypeError("delete: give either ids or where; `clear` deletes every document")
    compiled = None if where is None else compile_where(where)
    listed_ids = _checked_ids(ids) if ids is not None else []
    store = access.opened.store
    if erase and store.folder is None:
        raise ConfigError(
            f"{store}: erasing needs an index folder, found a database, which keeps what "
            "was deleted in logs and files of its own; nothing was deleted"
        )
    with access.writer() as writer:
        if compiled is None:
            deleted = writer.delete(_stored_forms(access.opened, listed_ids))
        else:
            deleted = _delete_matches(access.opened, writer, compiled)
        if not erase:
            writer.merge()
            return deleted
        writer.compact(stage, erase=True)
        if memory_path(store).exists():
            with SourceMemory(store) as memory:
                memory.erase(writer.stored_versions)
        return deleted


def delete_all(access: WriterAccess) -> int:
    """Delete every document; return their number."""
    with access.writer() as writer:
        deleted = writer.delete_unseen()
        writer.merge()
        return deleted


def compact_index(access: WriterAccess, stage: Stage) -> int:
    """Merge all segments into one; return the number of segments merged. See `Index.compact`."""
    with access.writer() as writer:
        if not writer.are_languages_counted():
            _count_languages(access.opened, writer)
        return writer.compact(stage)


def _checked_ids(ids: Iterable[str]) -> list[str]:
    """Return ids as a list; TypeError if they are not several strings."""
    require_several("ids", ids)
    checked = list(ids)
    for id_ in checked:
        if not isinstance(id_, str):
            raise TypeError(f"ids: expected strings, found one {type(id_).__name__}")
    return checked


def _stored_forms(opened: OpenedIndex, ids: list[str]) -> list[str]:
    """Return each id in the form of Unicode in which the index has it."""
    forms = {id_: id_forms(id_) for id_ in ids if is_id(id_)}
    ambiguous = [form for several in forms.values() if len(several) > 1 for form in several]
    if not ambiguous:
        return ids
    with opened.view() as view:
        stored = view.content_hashes(ambiguous)
    return [next((form for form in forms.get(id_, ()) if form in stored), id_) for id_ in ids]


def _delete_matches(opened: OpenedIndex, writer: Writer, where: Where) -> int:
    """Delete the documents that match a filter; FilterError if it is doubtful."""
    with opened.view() as view:
        problem = opened.describe_doubt(view, where)
    if problem:
        raise FilterError(f"filter: {problem}; nothing was deleted")
    return writer.delete_where(where)


def _count_languages(opened: OpenedIndex, writer: Writer) -> None:
    """Count the passages of each language again."""
    with opened.view() as view:
        state = opened.settings_of(view)
        texts = (
            (document, stored_texts(document, state.passages, names=False))
            for document in view.documents()
        )
        detect = state.analyzer.languages
        writer.count_languages(
            (stored, [" ".join(detect(text)) for text in passages]) for stored, passages in texts
        )
