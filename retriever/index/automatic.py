"""Choose the encoder of a new index by its first passages: the model ``auto``.

The default model is chosen where nearly all passages are English and it knows their words, else the
multilingual model. A later run adds to the index with the model that was chosen first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from indexes import open_store
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.documents.document import AnyDocument, Document, as_document
from retriever.documents.passages import PassageSettings, cut_document
from retriever.documents.reader import CorpusReader
from retriever.encoders.encoder import Encoder
from retriever.encoders.model_folders import MULTILINGUAL_MODEL
from retriever.encoders.settings import DEFAULT_MODEL, EncoderSettings, parse_encoder
from retriever.errors import IndexLockedError
from retriever.index.indexing.embedded_documents import ReadyDocument
from retriever.index.indexing.passage_texts import passage_texts
from retriever.search.fit import CHARACTERS, DOUBTFUL_SHARE, count_words, is_foreign
from retriever.search.opened import IndexKeywords, IndexSettings, holds_documents
from retriever.search.settings import MODEL_REASON

if TYPE_CHECKING:
    from indexes import Store

AnyDocuments = Iterable[AnyDocument | ReadyDocument]
# Number of passages that decide.
_PASSAGES = 1000


class ModelDecision(NamedTuple):
    """The encoder that ``auto`` stands for, and why."""

    settings: EncoderSettings
    reason: str  # Empty if the index has an encoder already.

    def __str__(self) -> str:
        return f"model auto: {self.settings.model}, since {self.reason}"

    def record(self, store: Store) -> None:
        """Store the reason with an index, for `Index.info`."""
        # Another process may write to the index; the reason matters less than its documents.
        if self.reason:
            with suppress(IndexLockedError), store.writer(0.0) as writer:
                writer.record(MODEL_REASON, self.reason)


def decide_model(
    place: str | Path | Store,
    documents: AnyDocuments,
    keywords: Mapping[str, Any],
    *,
    replaces: bool = False,
) -> tuple[ModelDecision, AnyDocuments]:
    """Decide which model ``auto`` is for an index, by the first of its documents.

    Args:
        place: the index; one that holds documents keeps its encoder.
        documents: what `Index.add` takes, as a stream.
        keywords: settings that `Index.create` takes, with ``auto`` as `model`.
        replaces: whether a new index takes the place of the old one.

    Returns:
        The decision, and the documents from the first one on.

    Raises:
        MissingExtraError: the package of the default model, whose vocabulary decides, is missing.
        RetrieverError: one of the first documents cannot be read.
    """
    requested = parse_encoder(keywords["model"])
    store = open_store(place)
    if not replaces and store.exists() and holds_documents(store):
        return ModelDecision(replace(requested, model=None), ""), documents
    names = IndexKeywords.__annotations__
    settings = IndexSettings.of({key: keywords[key] for key in names if key in keywords})
    passages = _FirstPassages(Encoder.load(), settings.passages or PassageSettings())
    documents = _read_ahead(documents, passages.add)
    model_name, reason = _choose_model(
        passages.texts[:_PASSAGES], passages.encoder, settings.analyzer
    )
    return ModelDecision(replace(requested, model=model_name), reason), documents


class _FirstPassages:
    """The first passages of a stream of documents, as the default encoder divides them."""

    def __init__(self, encoder: Encoder, settings: PassageSettings) -> None:
        self.encoder = encoder
        self.texts: list[str] = []
        self._settings = settings

    def add(self, document: Document) -> bool:
        """Add the passages of a document; return whether there are enough."""
        for spans, _, _ in cut_document(document, self.encoder, self._settings):
            self.texts += passage_texts(document, spans, self._settings)
            if len(self.texts) >= _PASSAGES:
                return True
        return False


def _read_ahead(documents: AnyDocuments, is_enough: Callable[[Document], bool]) -> AnyDocuments:
    """Read documents until there are enough; return all of them, as a stream."""
    if isinstance(documents, CorpusReader):
        documents.read_ahead(is_enough)
        return documents
    stream = iter(documents)
    ahead = []
    for value in stream:
        ahead.append(value)
        document = value.document if isinstance(value, ReadyDocument) else as_document(value)
        if is_enough(document):
            break
    return chain(ahead, stream)


def _choose_model(
    texts: Sequence[str], encoder: Encoder, settings: AnalyzerSettings | None
) -> tuple[str, str]:
    """Choose the model for a corpus with these first passages, and say why."""
    analyzer = Analyzer(settings)
    passages = 0
    foreign = 0
    unknown = 0
    for text in texts:
        beginning = text[:CHARACTERS]
        count = count_words(encoder, analyzer, beginning)
        # Numbers have no language.
        passages += count.words > 0
        if count.words and is_foreign(analyzer, beginning):
            foreign += 1
        elif count.is_unknown():
            unknown += 1
    if not passages:
        return DEFAULT_MODEL, "there are no words to decide by"
    sample = f"of {passages:,} passages"
    if foreign + unknown < DOUBTFUL_SHARE * passages:
        return DEFAULT_MODEL, f"{1 - (foreign + unknown) / passages:.0%} {sample} are English"
    if foreign >= unknown:
        return MULTILINGUAL_MODEL, f"{foreign / passages:.0%} {sample} are not English"
    return MULTILINGUAL_MODEL, f"{unknown / passages:.0%} {sample} have unknown words"
