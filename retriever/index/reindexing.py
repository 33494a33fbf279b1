"""An index built again from its own documents, with other settings, while the old one serves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

from indexes import SOURCES_FILE, Store, StructureSettings, no_progress, open_store
from retriever.documents.analyzer import AnalyzerSettings
from retriever.documents.document import document_of
from retriever.documents.passages import PassageSettings
from retriever.encoders.encoder import Encoder, ModelChoice, wrap_encoder
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec, TextEncoder
from retriever.errors import DamagedIndexError
from retriever.index.adding import add_documents
from retriever.index.indexing.embedded_documents import counted
from retriever.index.indexing.run import IndexingReport, Progress
from retriever.index.opening import create_index
from retriever.index.sources.memory import SourceMemory, memory_path
from retriever.index.writer_access import WriterAccess
from retriever.search.opened import IndexKeywords, IndexSettings, OpenedIndex, read_structures


def reindexed(
    folder: str | Path | Store,
    model: str | Path | EncoderSettings = "",
    *,
    encoder: Encoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    progress: Progress | None = None,
    report: IndexingReport | None = None,
    read: Callable[[int], object] | None = None,
    **settings: Unpack[IndexKeywords],
) -> IndexingReport | None:
    """Build an index again from its stored documents, with other settings.

    The old index serves readers until the new one, which grows in a hidden folder beside it,
    takes its place in one step. Writers are refused meanwhile. If this fails, or the process
    dies, the old index stays as it is, and the same call resumes. The whole stored text is
    encoded, of truncated documents too.

    The settings are those of `Index.create`. A setting that is not given stays as in the index,
    but terms are made as in this release. `progress` and `report` are those of `Index.add`; `read`
    is called with the number of documents read since the last call.

    Returns:
        Counts of what was done; None if the index has these settings already.

    Raises:
        NotAnIndexError, FormatVersionError: there is no index.
        DamagedIndexError: a stored document was altered.
        What `recreated` and `Index.add` raise.
    """
    store = open_store(folder)
    requested = IndexSettings.of(settings)
    choice = ModelChoice(model, device, download)
    loaded = wrap_encoder(encoder)
    spec, own = _read_settings(store)
    target = _renewed(requested, own)
    if loaded is None:
        is_same = _is_same_encoder(choice, spec)
    else:
        is_same = loaded.spec.fingerprint == spec.fingerprint
    if is_same and target == own:
        return None
    choice = choice.completed(spec) if loaded is None else replace(choice, encoder="")
    passages = target.passages and replace(target.passages, labels=True, tables=True)
    new_settings = IndexSettings(target.analyzer, passages, target.structures)
    # The documents are read under the lock of the replacement, so that no commit is missed.
    with (
        replacement(store, choice, loaded, new_settings) as new,
        closing(store.reader()) as reader,
        reader.view() as view,
    ):
        documents = counted(map(document_of, view.documents()), read)
        access = WriterAccess(new)
        report = add_documents(
            access, documents, stage=no_progress, progress=progress, report=report, prune=True
        )
        has_labels = own.passages is not None and own.passages.labels
        _copy_sources(store, new.store, are_outdated=not has_labels)
        return report


def reindex_opened(
    access: WriterAccess,
    model: str | Path | EncoderSettings,
    encoder: Encoder | TextEncoder | None,
    progress: Progress | None,
    settings: IndexKeywords,
) -> IndexingReport | None:
    """Build an open index again, which from then on has the new encoder."""
    opened = access.opened
    with access.exclusive():
        report = reindexed(
            opened.store,
            model,
            encoder=encoder,
            device=opened.requested.device,
            download=opened.requested.download,
            progress=progress,
            **settings,
        )
        if report is not None:
            opened.replace_encoder(wrap_encoder(encoder))
        return report


@contextmanager
def replacement(
    store: Store, choice: ModelChoice, encoder: Encoder | None, settings: IndexSettings
) -> Iterator[OpenedIndex]:
    """Create an index beside the old one, which it replaces if the block does not raise."""
    started_with = json.dumps(_describe_settings(choice, encoder, settings))
    with store.replacement(started_with) as new:
        opened = create_index(new, choice, encoder, settings)
        with closing(opened):
            yield opened


def _describe_settings(
    choice: ModelChoice, encoder: Encoder | None, settings: IndexSettings
) -> Mapping[str, Any]:
    """Return what identifies a replacement, so that the same call resumes it."""
    return {
        "encoder": str(choice.settings if encoder is None else encoder.spec),
        "weights": choice.weights() if encoder is None else encoder.spec.weights,
        "analyzer": (settings.analyzer or AnalyzerSettings()).resolved().to_json(),
        "passages": asdict(settings.passages or PassageSettings()),
        "structures": asdict(settings.structures or StructureSettings()),
    }


def _read_settings(store: Store) -> tuple[EncoderSpec, IndexSettings]:
    """Return the encoder and the settings of a stored index."""
    with closing(OpenedIndex(store, ModelChoice(), None)) as opened, opened.view() as view:
        state = opened.settings_of(view)
        structures = read_structures(view, store)
        return state.encoder, IndexSettings(state.analyzer.settings, state.passages, structures)


def _copy_sources(old: Store, new: Store, *, are_outdated: bool) -> None:
    """Let the new index remember the sources of the old one; they may be read again in full."""
    memory_file = memory_path(old)
    if not memory_file.exists():
        return
    if new.folder is not None:
        shutil.copyfile(memory_file, new.folder / SOURCES_FILE)
    if are_outdated:
        # No stored document has the labels that this release reads.
        store = old if old.folder is None else new
        with suppress(DamagedIndexError), SourceMemory(store) as memory:
            memory.mark_outdated()


def _renewed(changes: IndexSettings, own: IndexSettings) -> IndexSettings:
    """Return the settings of an index with changes; terms are made as in this release."""
    settings = changes.completed(own)
    if settings.analyzer is None:
        return settings
    if changes.analyzer is None:
        analyzer = settings.analyzer.renewed()
    else:
        newest = changes.analyzer
        analyzer = replace(settings.analyzer, detection=newest.detection, terms=newest.terms)
    return replace(settings, analyzer=analyzer)


def _is_same_encoder(choice: ModelChoice, spec: EncoderSpec) -> bool:
    """Whether an encoder, completed by an index's own, gives the vectors of the index."""
    if choice.settings == EncoderSettings():
        return True
    completed = choice.completed(spec)
    if completed.weights() != spec.weights:
        return False
    loaded_spec = completed.load().spec
    # Vectors in another number format are other vectors of the same encoder.
    has_same_format = loaded_spec.settings.dtype == spec.settings.dtype
    return loaded_spec.fingerprint == spec.fingerprint and has_same_format
