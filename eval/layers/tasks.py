"""The data of a layer search: scored pairs, or questions with candidates, ready to be encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from eval.datasets.qa.forms import read_question_set
from eval.datasets.qa.question_set import QuestionSet
from eval.datasets.sentences.pairs import ScoredPairs, read_pairs
from eval.layers.pair_encoding import LayerEncoder, encode_pairs
from eval.layers.ranking import PoolRanking
from eval.layers.search import Objective, Task
from eval.metrics.correlation import Correlation, CorrelationName
from retriever.errors import BadInputError, ConfigError, SourceError

CORRELATIONS: tuple[str, ...] = get_args(CorrelationName)


@dataclass(frozen=True, slots=True, eq=False)
class PairData:
    """Scored pairs.

    Attributes:
        label: where they are from.
        pairs: what was read.
        left_out: 0: all of them count.
    """

    label: str
    pairs: ScoredPairs
    left_out: int = 0

    def texts(self) -> tuple[list[str], list[str]]:
        """The first and the second sentence of each pair."""
        return self.pairs.left, self.pairs.right

    def objective(self, name: str | None) -> Correlation:
        """A correlation with the gold scores; the default is Spearman's.

        Raises:
            ConfigError: it is a measure of rankings.
            BadInputError: fewer than two pairs, or gold scores that are all equal.
        """
        if name not in (None, *CORRELATIONS):
            raise ConfigError(
                f"objective: expected {' or '.join(CORRELATIONS)} for scored pairs, found {name}; "
                "measures of rankings need a folder of questions"
            )
        try:
            return Correlation(self.pairs.gold, cast(CorrelationName, name or "spearman"))
        except BadInputError as error:
            raise BadInputError(f"{self.label}: {error}") from error


@dataclass(frozen=True, slots=True, eq=False)
class PoolData:
    """Questions with candidates.

    Attributes:
        label: where they are from.
        pools: the questions that something answers.
        left_out: questions that nothing answers.
    """

    label: str
    pools: QuestionSet
    left_out: int

    def texts(self) -> tuple[list[str], list[str]]:
        """Question and candidate, as in `QuestionSet.pairs`."""
        return self.pools.pairs()

    def objective(self, name: str | None) -> PoolRanking:
        """A measure of rankings; the default is AP.

        Raises:
            ConfigError: it is a correlation, or unknown.
        """
        if name in CORRELATIONS:
            raise ConfigError(
                f"objective: expected a measure of rankings for questions, such as AP, RR or "
                f"nDCG@10, found {name}; it needs a file of scored pairs"
            )
        return PoolRanking(self.pools.questions, name or "AP")


SearchData = PairData | PoolData


def read_pair_data(paths: Sequence[Path]) -> PairData:
    """Scored pairs of one or more files; raises what `read_pairs` raises."""
    return PairData(", ".join(map(str, paths)), read_pairs(paths))


def read_pool_data(folder: Path, split: str) -> PoolData:
    """A split of a folder of questions with candidates, in any form.

    Raises:
        SourceError: what `read_question_set` raises, or the set has no candidates.
    """
    questions = read_question_set(folder, split)
    if questions.corpus:
        raise SourceError(
            f"{folder}: expected questions with candidates, found a whole corpus to rank; add a "
            f"file candidates.{split}.jsonl, or take another set"
        )
    return PoolData(f"{folder} ({split})", questions.answered(), questions.without_answer)


def encode_task(
    encoder: LayerEncoder,
    data: SearchData,
    objective: Objective,
    stage: Callable[[str, int], Callable[[int], None]],
) -> Task:
    """Encode the texts of `data`; `stage` as for `eval.layers.protocol.search_given`."""
    left, right = data.texts()
    queries = isinstance(data, PoolData)
    done = stage(
        "encoding texts", len({*left}) + len({*right}) if queries else len({*left, *right})
    )
    return Task(encode_pairs(encoder, left, right, done, queries=queries), objective)
