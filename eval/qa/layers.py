"""Every hidden state of a model ranks passages: Fig. 1 of Ma et al. (2019) on questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eval.datasets.question_set import QuestionSet
from eval.metrics.measures import PoolMeasures, canonical_measures
from eval.progress import Progress, silent
from eval.qa.resources import Questions, check_index, split_reader
from eval.qa.scores import EmbeddedPairs, pair_rows
from eval.qa.settings import ANSWER_MEASURES, QASettings
from eval.sentences.result import LayerGrid, SentenceResult
from eval.vectors import LayerEncoders
from retriever.encoders.models.finding import DEFAULT_MODEL
from retriever.encoders.settings import Pooling
from retriever.errors import BadInputError, ConfigError

POOLINGS: tuple[Pooling, ...] = ("mean", "max", "cls", "sep")
"""What hidden states are pooled by."""

_MEASURES = ("AP", "RR")


def rank_layers(
    questions: Questions,
    poolings: Sequence[Pooling] = POOLINGS,
    settings: QASettings | None = None,
    *,
    progress: Progress = silent,
    command: str = "",
) -> SentenceResult:
    """Rank the candidates of questions by the cosine of every hidden state with several poolings.

    Nothing is trained or chosen; the best cell of the result is optimistic.

    Args:
        questions: as `eval.rank_systems` takes them; with pools of candidates.
        poolings: over the word pieces of a hidden state.
        settings: `encoder` names the model; split, data, measures (AP and RR by default), loading
            and what becomes of questions without a relevant passage apply too, the rest does not.
        progress: of encoding.
        command: reproduces the result, for its report.

    Returns:
        For each measure its mean over questions, (hidden states, poolings).

    Raises:
        ConfigError: the set has no pools, the model's form has settings that choose layers, or a
            measure or pooling is unknown.
        SourceError: the split cannot be read.
        BadInputError: no question has a relevant passage.
        What `Encoder.load` raises.
    """
    settings = settings or QASettings()
    if not poolings:
        raise ConfigError("poolings: expected at least one, found none")
    read = split_reader(questions, settings.data)
    split = questions.split if isinstance(questions, QuestionSet) else settings.split
    of = read(split)
    if of.corpus:
        raise ConfigError(
            f"{of.name}: the set has no pools of candidates, which layers are compared on; name "
            "one that has, or index its corpus with the layers of your choice"
        )
    check_index(of, settings.data)
    answered = of.answered()
    if not len(answered):
        raise BadInputError(
            f"{of.name} {of.split}: expected a question with a relevant passage, found none; check "
            "the judgments"
        )
    left_out = len(of) - len(answered) if settings.without_positive == "exclude" else 0
    ranked = answered if left_out else of
    usual = ANSWER_MEASURES if of.answers_in_text else _MEASURES
    measures = tuple(canonical_measures(settings.measures or usual))
    model = settings.encoder or DEFAULT_MODEL
    layers = LayerEncoders([model], poolings, settings.loading)
    values, cut, texts = _values(ranked, layers, measures, progress)
    return SentenceResult(
        kind="qa",
        title=f"Layers and poolings: {of.name} {of.split}",
        settings={"split": of.split, "questions": f"{len(ranked):,}", "score": "cosine"},
        remarks=(
            f"means over {len(ranked):,} questions; {left_out:,} questions without a relevant "
            "passage are left out",
        ),
        measures=measures,
        grids=tuple(
            LayerGrid(of.name, model, measure, layers.poolings, grid, None, cut, texts)
            for measure, grid in zip(measures, values, strict=True)
        ),
        device=settings.loading.device,
        command=command,
    )


def _values(
    questions: QuestionSet, layers: LayerEncoders, measures: Sequence[str], progress: Progress
) -> tuple[np.ndarray, int, int]:
    """(measures, hidden states, poolings) means; texts that were cut, and all distinct texts."""
    passages, question_rows, passage_rows = pair_rows(questions)
    asked = [one.text for one in questions.questions]
    distinct = len(set(passages)) + len(set(asked))
    done = progress(f"{questions.name}: vectors", distinct * len(layers.poolings))
    measured = PoolMeasures(questions.questions, measures)
    columns, cut = [], 0
    for (_, found), queries in zip(
        layers.vectors(passages, done), layers.states(asked, query=True, done=done), strict=True
    ):
        states = found.vectors.of(passages)
        scores = [
            EmbeddedPairs(
                queries.vectors[:, layer], states[:, layer], question_rows, passage_rows, 0
            ).cosines()
            for layer in range(states.shape[1])
        ]
        means = measured(np.stack(scores))
        columns.append([means[measure].mean(axis=1) for measure in measures])
        cut = max(cut, found.cut + queries.cut)
    return np.array(columns).transpose(1, 2, 0), cut, distinct
