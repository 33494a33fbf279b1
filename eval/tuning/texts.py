"""The passages of a collection and their terms, as an index with the same settings has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from eval.tuning.budget import Budget
from eval.tuning.caches import RecentValues
from eval.tuning.collection import JudgedCollection, Rows
from eval.tuning.encoders import PipelineEncoders
from eval.tuning.pipeline import Pipeline
from retriever.documents import Analyzer, cut_document, passage_text
from retriever.search import BM25, Postings, SearchableSegment

# Divisions into passages, and postings, that stay in memory.
_REMEMBERED = 12
_DOCUMENTS_PER_CHECK = 64


class PassageTexts(NamedTuple):
    """The passages of all documents, in their order."""

    # (n,) as they are encoded.
    texts: list[str]
    # (n,) ascending positions of their documents.
    documents: Rows
    # (n,) start and end in the text of the document.
    spans: list[tuple[int, int]]


class PassageLexicon(NamedTuple):
    """The postings of all passages, and the terms of each question."""

    segment: SearchableSegment
    question_terms: list[list[str]]


class CollectionTexts:
    """The passages and terms of a collection, by the settings of a pipeline."""

    def __init__(
        self, collection: JudgedCollection, encoders: PipelineEncoders, budget: Budget
    ) -> None:
        self.collection = collection
        self.questions = [question.text for question in collection.questions]
        self.positions = {
            document.id: position for position, document in enumerate(collection.documents)
        }
        self._encoders = encoders
        self._budget = budget
        self._recent = RecentValues(_REMEMBERED)

    def passages(self, pipeline: Pipeline) -> PassageTexts:
        """Divide all documents into passages, unless they are pooled."""
        documents = self.collection.documents
        if self.collection.pooled:
            texts = [document.text for document in documents]
            return PassageTexts(texts, np.arange(len(texts)), [(0, len(text)) for text in texts])
        return self._recent.get_or_make(
            self.passage_key(pipeline), lambda: self._cut_documents(pipeline)
        )

    def passage_key(self, pipeline: Pipeline) -> Hashable:
        """Return the settings that passages depend on."""
        if self.collection.pooled:
            return "pools"
        encoder = pipeline.encoder
        return (
            encoder.model,
            encoder.static,
            encoder.max_length,
            encoder.passage_prompt,
            pipeline.passages,
        )

    def _cut_documents(self, pipeline: Pipeline) -> PassageTexts:
        encoder = self._encoders.passage_encoder(pipeline.encoder)
        context = pipeline.passages.context
        tables = pipeline.passages.tables
        texts: list[str] = []
        positions: list[int] = []
        all_spans: list[tuple[int, int]] = []
        for position, document in enumerate(self.collection.documents):
            if position % _DOCUMENTS_PER_CHECK == 0:
                self._budget.check()
            for spans, _, _ in cut_document(document, encoder, pipeline.passages):
                texts += [passage_text(document, span, context, tables=tables) for span in spans]
                positions += [position] * len(spans)
                all_spans += spans
        return PassageTexts(texts, np.array(positions, np.int64), all_spans)

    def lexicon(self, pipeline: Pipeline) -> PassageLexicon:
        """Analyze all passages and questions."""
        key = ("terms", pipeline.analyzer, self.passage_key(pipeline))
        return self._recent.get_or_make(key, lambda: self._analyze(pipeline))

    def _analyze(self, pipeline: Pipeline) -> PassageLexicon:
        analyzer = Analyzer(pipeline.analyzer)
        languages = Counter[str]()
        terms = []
        for text in self.passages(pipeline).texts:
            passage_terms, passage_languages = analyzer.analyzed(text)
            terms.append(passage_terms)
            languages.update(passage_languages)
        segment = SearchableSegment(Postings.build(terms))
        if self.collection.pooled:
            # Every word of a question ranks a pool, as in `eval qa`.
            return PassageLexicon(
                segment, [analyzer.tokens(question) for question in self.questions]
            )
        frequencies = BM25([segment]).document_frequencies
        return PassageLexicon(
            segment,
            [analyzer.query_tokens(text, languages, frequencies) for text in self.questions],
        )
