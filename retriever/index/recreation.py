"""An index built again while the old one serves, from sources or from its own documents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Unpack

from indexes import SOURCES_FILE, Store, StructureSettings, open_store
from retriever.documents.analyzer import AnalyzerSettings
from retriever.documents.document import document_of
from retriever.documents.passages import PassageSettings
from retriever.encoders.encoder import Encoder, ModelChoice, adopt
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec, TextEncoder
from retriever.errors import DamagedIndexError
from retriever.index.embedded_documents import counted
from retriever.index.index import Index
from retriever.index.indexing_run import IndexingReport, Progress
from retriever.index.sources import SourceMemory, memory_path
from retriever.search.opened import IndexKeywords, IndexSettings


@contextmanager
def recreated(
    folder: str | Path | Store,
    model: str | Path | EncoderSettings = "",
    *,
    encoder: Encoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    **settings: Unpack[IndexKeywords],
) -> Iterator[Index]:
    """Build an index beside the old one, which it replaces if the block does not raise.

    Until then the old index serves readers and stays as it is, damaged or not; the new one grows
    in a hidden place beside it. If the block raises, or the process dies, that is kept: the next
    `recreated` with the same settings resumes it. Pass ``prune=True`` to `Index.add`, so that
    nothing of an earlier attempt with other sources stays. Where there is no old index, this is
    `Index.create`, whose arguments it takes.

    Raises:
        What `Index.create` raises; IndexLockedError: another writer holds the old index;
        NotAnIndexError: the folder, or one beside it that is needed, holds other files;
        ConfigError: the current folder is, or is inside, the one to be replaced.
    """
    store = open_store(folder)
    asked = IndexSettings.of(settings)
    choice = ModelChoice(model, device, download)
    loaded = adopt(encoder)
    begun_with = json.dumps(
        {
            "encoder": str(choice.settings if loaded is None else loaded.spec),
            "weights": choice.weights() if loaded is None else loaded.spec.weights,
            "analyzer": (asked.analyzer or AnalyzerSettings()).resolved().to_json(),
            "passages": asdict(asked.passages or PassageSettings()),
            "structures": asdict(asked.structures or StructureSettings()),
        }
    )
    with (
        store.replacement(begun_with) as new,
        Index.create(
            new, model, encoder=loaded, device=device, download=download, **settings
        ) as index,
    ):
        yield index


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
    dies, the old index stays as it is, and the same call resumes. What is encoded is the whole
    stored text, of truncated documents too.

    The settings are those of `Index.create`; what is not given is as in the index, but terms are
    made as in this release. `progress` and `report` are those of `Index.add`; `read` is called with
    the number of documents read since the last call.

    Returns:
        What was done, or None if the index has these settings already.

    Raises:
        NotAnIndexError, FormatVersionError: there is no index.
        DamagedIndexError: a stored document was altered.
        What `recreated` and `Index.add` raise.
    """
    store = open_store(folder)
    asked = IndexSettings.of(settings)
    choice = ModelChoice(model, device, download)
    loaded = adopt(encoder)
    with Index.open(store) as old:
        spec = old.encoder_spec
        has_labels = old.passages.labels
        own = IndexSettings(old.analyzer.settings, old.passages, old.structures)
    target = _renewed(asked, own)
    if loaded is None:
        same = _same_encoder(choice, spec)
    else:
        same = loaded.spec.fingerprint == spec.fingerprint
    if same and target == own:
        return None
    # The documents are those under the lock that `recreated` holds, so that no commit is missed.
    with (
        recreated(
            store,
            "" if loaded is not None else choice.completed(spec).encoder,
            encoder=loaded,
            device=device,
            download=download,
            analyzer=target.analyzer,
            passages=target.passages and replace(target.passages, labels=True, tables=True),
            structures=target.structures,
        ) as new,
        closing(store.reader()) as reader,
        reader.view() as view,
    ):
        documents = counted(map(document_of, view.documents()), read)
        report = new.add(documents, progress=progress, report=report, prune=True)
        if (remembered := memory_path(store)).exists():
            if store.folder is not None:
                shutil.copyfile(remembered, new.folder / SOURCES_FILE)
            if not has_labels:
                # No stored document has them.
                place = store if store.folder is None else new.store
                with suppress(DamagedIndexError), SourceMemory(place) as memory:
                    memory.mark_outdated()
        return report


def _renewed(changes: IndexSettings, own: IndexSettings) -> IndexSettings:
    """The settings of an index with those asked for; terms are made as in this release."""
    settings = changes.completed(own)
    if settings.analyzer is None:
        return settings
    if changes.analyzer is None:
        analyzer = settings.analyzer.renewed()
    else:
        newest = changes.analyzer
        analyzer = replace(settings.analyzer, detection=newest.detection, terms=newest.terms)
    return replace(settings, analyzer=analyzer)


def _same_encoder(choice: ModelChoice, spec: EncoderSpec) -> bool:
    if choice.settings == EncoderSettings():
        return True
    whole = choice.completed(spec)
    if whole.weights() != spec.weights:
        return False
    asked = whole.load().spec
    # Vectors in another number format are other vectors of the same encoder.
    return asked.fingerprint == spec.fingerprint and asked.settings.dtype == spec.settings.dtype
