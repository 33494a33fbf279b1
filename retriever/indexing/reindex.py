"""An index made anew from its own documents, with another encoder, while it goes on serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

from indexes.reader import Reader, Snapshot
from indexes.vectors.segment_structure import StructureSettings
from retriever.analyzer import AnalyzerSettings
from retriever.corpus import Document
from retriever.encoders.choice import ModelChoice
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.index import Index
from retriever.indexing.add import CommitSettings
from retriever.indexing.creation import own_name
from retriever.indexing.passages import PassageSettings
from retriever.indexing.recreation import recreated
from retriever.indexing.report import IndexingReport, Progress


def reindexed(
    folder: str | Path,
    choice: ModelChoice | None = None,
    *,
    analyzer: AnalyzerSettings | None = None,
    passages: PassageSettings | None = None,
    structures: StructureSettings | None = None,
    commit: CommitSettings | None = None,
    progress: Progress | None = None,
    report: IndexingReport | None = None,
    read: Callable[[int], object] = lambda documents: None,
) -> IndexingReport | None:
    """Make an index anew from its stored documents, with other settings.

    The old index serves readers until the new one, which grows in a hidden folder beside it,
    takes its place in one step. Writers are refused meanwhile. If this fails, or the process
    dies, the old index stays as it is, and the same call goes on where it was. What is encoded is
    the whole stored text, of truncated documents too.

    Args:
        folder: the index.
        choice: the encoder. Where it names no model, what it does not ask for is as in the index.
        analyzer: language of the BM25 side; None takes the index's own.
        passages: how long texts are treated; None takes the index's own way.
        structures: how large segments are searched; None takes the index's own way.
        commit: how often to commit.
        progress: told how far encoding is.
        report: counted into, for a caller that wants to see it after an interruption.
        read: told how many more documents are read.

    Returns:
        What was done, or None where the index has these settings already.

    Raises:
        NotAnIndexError, FormatVersionError: there is no index.
        DamagedIndexError: a stored document is not as it was written.
        What `retriever.indexing.recreation.recreated` and `Index.add` raise.
    """
    folder, choice = own_name(folder), choice or ModelChoice()
    with Index.open(folder) as old:
        spec, own = old.encoder_spec, (old.analyzer.settings, old.passages, old.structures)
    analyzer, passages = analyzer or own[0], passages or own[1]
    structures = structures or own[2]
    if (analyzer, passages, structures) == own and _same_encoder(choice, spec):
        return None
    # The documents are those under the lock that `recreated` holds, so that no commit is missed.
    with (
        recreated(
            folder,
            _whole(choice, spec),
            analyzer=analyzer,
            passages=passages,
            structures=structures,
        ) as new,
        closing(Reader(folder)) as reader,
        reader.snapshot() as snapshot,
    ):
        return new.add(
            _documents(snapshot, read), commit=commit, progress=progress, report=report, prune=True
        )


def _whole(choice: ModelChoice, spec: EncoderSpec) -> ModelChoice:
    """What is asked for, with the index's own settings where no other model is named."""
    asked = choice.settings
    if asked.model is not None:
        return choice
    given = {one.name: getattr(asked, one.name) for one in fields(EncoderSettings)}
    given = {name: value for name, value in given.items() if value is not None}
    return replace(choice, encoder=str(replace(spec.settings, **given)))


def _same_encoder(choice: ModelChoice, spec: EncoderSpec) -> bool:
    if choice.settings == EncoderSettings():
        return True
    whole = _whole(choice, spec)
    return whole.weights() == spec.weights and whole.load().spec.fingerprint == spec.fingerprint


def _documents(snapshot: Snapshot, read: Callable[[int], object]) -> Iterator[Document]:
    for stored in snapshot.documents():
        yield Document(stored.id, stored.text, stored.title, stored.metadata)
        read(1)
