"""Facts about a query beside its hits: terms, corrections, reasons and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from indexes.bm25 import LABEL, Expansion, idf
from indexes.filters import compile_where
from retriever.errors import ConfigError
from retriever.index.searching import search_many
from retriever.search.queries import excluded_texts, highlights, query_terms
from retriever.search.settings import CALIBRATION
from retriever.search.syntax import parse_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from indexes import Mode
    from retriever.search.calibration import Answer
    from retriever.search.engine import Hit
    from retriever.search.excerpts import Spans
    from retriever.search.opened import OpenedIndex
    from retriever.search.settings import SearchSettings


def describe_filter(opened: OpenedIndex, where: str) -> str | None:
    """Return what is doubtful about a filter; see `Index.filter_warning`."""
    with opened.view() as view:
        problem = opened.describe_doubt(view, compile_where(where))
    return None if problem is None else f"filter: {problem}"


def weigh_terms(opened: OpenedIndex, text: str, *, raw: bool) -> dict[str, float]:
    """Return the idf of each term of a query; see `Index.term_weights`."""
    with opened.view() as view:
        terms = query_terms(opened, view, text, has_beginnings=not raw)
        passages = view.passage_count
        weights = {
            term: idf("lucene", df, passages)
            for term, df in view.document_frequencies(terms).items()
            if df
        }
    weights_by_name = {term: weight for term, weight in weights.items() if isinstance(term, str)}
    for term, weight in weights.items():
        if isinstance(term, Expansion):
            # As important as the word itself, however frequent they are together.
            words = chain(*term.terms)
            own = [weights_by_name[name] for name in words if name in weights_by_name]
            for name in chain(*term.alternatives):
                weights_by_name.setdefault(name, term.weight * max([weight, *own]))
    return weights_by_name


def find_highlights(
    opened: OpenedIndex, text: str, passages: Sequence[str], *, raw: bool
) -> list[Spans]:
    """Return for each passage the spans of its words that match a query; see `highlights`."""
    query = text if raw else parse_query(text, partial(has_flag, opened)).text
    weights = weigh_terms(opened, query, raw=raw)
    with opened.view() as view:
        analyzer = opened.settings_of(view).analyzer
        languages = view.setting("languages", {})
    return [highlights(passage, analyzer, weights, languages) for passage in passages]


def expand_query(opened: OpenedIndex, text: str, *, raw: bool) -> list[Expansion]:
    """Return the terms that BM25 adds to the words of a query."""
    with opened.view() as view:
        terms = query_terms(opened, view, text, has_beginnings=not raw)
    expansions = [term for term in terms if isinstance(term, Expansion)]
    # Terms of labels repeat the words of texts.
    return [term for term in expansions if not term.alternatives[0][0].startswith(LABEL)]


def suggest_text(opened: OpenedIndex, text: str) -> str | None:
    """Return a corrected query; None if there is nothing to correct. See `Index.suggestion`."""
    from retriever.encoders.vocabulary import read_vocabulary
    from retriever.search.syntax import correct_text

    with opened.view() as view:
        state = opened.settings_of(view)

        # The file alone is read: the encoder may not be loaded, as for a BM25 query.
        @cache
        def vocabulary() -> Callable[[str], bool]:
            if state.encoder.is_given:
                return lambda word: False
            return read_vocabulary(state.encoder.model)

        @cache
        def expanded_words() -> set[str]:
            terms = query_terms(opened, view, text, has_beginnings=True)
            names = [term.word for term in terms if isinstance(term, Expansion)]
            return {word.rstrip("*") for name in names for word in name.lower().split()}

        def is_known(word: str) -> bool:
            return word in expanded_words() or vocabulary()(word)

        return correct_text(text, view, state.analyzer, is_known)


def explain_no_hits(
    opened: OpenedIndex,
    text: str,
    settings: SearchSettings,
    where: str | Mapping[str, Any] | None,
    exclude: Iterable[str],
) -> str:
    """Return why a search has no hits, and what to change."""
    from retriever.search.syntax import ParsedQuery, no_hits_reason, parse_query

    compiled = None if where is None else compile_where(where)
    excluded = excluded_texts(exclude) if exclude else ()
    if settings.raw:
        query = ParsedQuery(text)
    else:
        query = parse_query(text, lambda word: has_flag(opened, word))

    def has_hits(text: str, where: str | None) -> bool:
        single = replace(settings, k=1, collapse=False)
        return bool(next(search_many(opened, [text], single, where)))

    with opened.view() as view:
        terms = query_terms(opened, view, query.text, has_beginnings=not settings.raw)
        return no_hits_reason(query, settings.mode, compiled, view, terms, has_hits, excluded)


def has_flag(opened: OpenedIndex, word: str) -> bool:
    """Whether a document has a word with a hyphen before it."""
    from retriever.search.syntax import has_flag_term

    with opened.view() as view:
        return has_flag_term(view, word)


def describe_hits(
    opened: OpenedIndex,
    hits: Sequence[Hit],
    settings: SearchSettings,
    where: str | Mapping[str, Any] | None,
) -> str | None:
    """Return what to know of hits; None for nothing. See `Index.search_note`."""
    # A hit of BM25 without a rank holds no term of the query.
    if settings.mode != "bm25" or not hits or hits[0].bm25_rank is not None:
        return None
    from retriever.search.stop_words import search_note

    with opened.view() as view:
        return search_note(view, None if where is None else compile_where(where))


def measure_hits(
    opened: OpenedIndex, text: str, hits: Sequence[Hit], mode: Mode
) -> NDArray[np.float64]:
    """Return the features of hits by which a calibration judges them."""
    from retriever.search.calibration import hit_features

    with opened.view() as view:
        analyzer = opened.settings_of(view).analyzer
        terms = query_terms(opened, view, text)
        return hit_features(hits, terms, view, analyzer, mode)


def judge_answer(
    opened: OpenedIndex, hits: Sequence[Hit], settings: SearchSettings, least: float | None
) -> Answer | None:
    """Return whether the hits of a search hold an answer; see `Index.answer`."""
    if least is not None and not 0 <= least <= 1:
        raise ConfigError(f"least: expected a probability from 0 to 1, found {least}")
    if not hits or hits[0].answer_probability is not None:
        with opened.view() as view:
            if view.setting(CALIBRATION, {}):
                from retriever.search.calibration import Calibration

                calibration = Calibration.read(view, settings.mode)
                if calibration is not None:
                    return calibration.answer(hits, view, settings, least)
    if least is not None:
        raise ConfigError(
            f"{opened.store}: no probabilities were learned for the mode {settings.mode}; learn "
            f"them with `retriever calibrate -i {opened.store} --mode {settings.mode}`"
        )
    return None
