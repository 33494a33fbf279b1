"""An index encoded again from its own documents, with other settings, while it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Unpack

from indexes import Store, View, open_store
from retriever.documents import Document
from retriever.encoders.encoder import ModelChoice
from retriever.encoders.registry import adopt
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec, LoadedEncoder, TextEncoder
from retriever.index import Index
from retriever.indexing.add import CommitSettings
from retriever.indexing.creation import IndexKeywords, IndexSettings
from retriever.indexing.recreation import recreated
from retriever.indexing.report import IndexingReport, Progress


def reindexed(
    folder: str | Path | Store,
    model: str | EncoderSettings = "",
    *,
    encoder: LoadedEncoder | TextEncoder | None = None,
    device: str | None = None,
    download: bool = False,
    commit: CommitSettings | None = None,
    progress: Progress | None = None,
    report: IndexingReport | None = None,
    read: Callable[[int], object] = lambda documents: None,
    **settings: Unpack[IndexKeywords],
) -> IndexingReport | None:
    """Build an index again from its stored documents, with other settings.

    The old index serves readers until the new one, which grows in a hidden folder beside it,
    takes its place in one step. Writers are refused meanwhile. If this fails, or the process
    dies, the old index stays as it is, and the same call resumes. What is encoded is the whole
    stored text, of truncated documents too.

    Args:
        folder: the index.
        model: the encoder in its text form. Where it names no model, what it does not ask for is
            as in the index.
        encoder: an encoder in place of `model`, see `Index.create`.
        device: a torch device for the model; None uses a GPU if there is one.
        download: allow downloads of a hub id that is not in the cache.
        commit: how often to commit.
        progress: receives the progress of encoding.
        report: counts are added to it, so that a caller has them after an interruption.
        read: called with the number of documents read since the last call.
        settings: `analyzer`, `passages` and `structures`, see `Index.create`; those of the index
            where they are not given.

    Returns:
        What was done, or None if the index has these settings already.

    Raises:
        NotAnIndexError, FormatVersionError: there is no index.
        DamagedIndexError: a stored document was altered.
        What `recreated` and `Index.add` raise.
    """
    store, asked = open_store(folder), IndexSettings.of(settings)
    choice = ModelChoice(str(model), device, download)
    loaded = None if encoder is None else adopt(encoder)
    with Index.open(store) as old:
        spec, own = old.encoder_spec, (old.analyzer.settings, old.passages, old.structures)
    wanted = (asked.analyzer or own[0], asked.passages or own[1], asked.structures or own[2])
    if loaded is None:
        same = _same_encoder(choice, spec)
    else:
        same = loaded.spec.fingerprint == spec.fingerprint
    if same and wanted == own:
        return None
    whole = "" if loaded is not None else choice.completed(spec).encoder
    # The documents are those under the lock that `recreated` holds, so that no commit is missed.
    with (
        recreated(
            store,
            whole,
            encoder=loaded,
            device=device,
            download=download,
            analyzer=wanted[0],
            passages=wanted[1],
            structures=wanted[2],
        ) as new,
        closing(store.reader()) as reader,
        reader.view() as view,
    ):
        return new.add(
            _documents(view, read), commit=commit, progress=progress, report=report, prune=True
        )


def _same_encoder(choice: ModelChoice, spec: EncoderSpec) -> bool:
    if choice.settings == EncoderSettings():
        return True
    whole = choice.completed(spec)
    if whole.weights() != spec.weights:
        return False
    asked = whole.load().spec
    # Vectors in another number format are other vectors of the same encoder.
    return asked.fingerprint == spec.fingerprint and asked.settings.dtype == spec.settings.dtype


def _documents(view: View, read: Callable[[int], object]) -> Iterator[Document]:
    for stored in view.documents():
        yield Document(stored.id, stored.text, stored.title, stored.metadata)
        read(1)
