"""What the readers of sentence data sets give: scored pairs in parts, and labelled texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval.datasets.sentences.pairs import ScoredPairs


@dataclass(frozen=True, slots=True, eq=False)
class PairSubset:
    """One part of an STS test.

    Attributes:
        name: as its publisher names it, such as "MSRpar"; "test" where a test has no parts.
        pairs: at least one.
    """

    name: str
    pairs: ScoredPairs


@dataclass(frozen=True, slots=True, eq=False)
class STSTask:
    """A test of semantic textual similarity.

    Attributes:
        name: such as "sts12", "stsb" or "sick".
        subsets: the test's parts, at least one, in alphabetical order of their names; no pair is
            in two parts only because a file of all of them lies beside them.
        train: for the supervised protocol; None where the set has none.
        dev: beside `train`; None where the set has none.
    """

    name: str
    subsets: tuple[PairSubset, ...]
    train: ScoredPairs | None = None
    dev: ScoredPairs | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LabelledTexts:
    """Texts, or pairs of texts, and their labels, in the order of their file.

    Attributes:
        labels: one for each text, not blank, as the file has them.
        left: the texts, as many, not blank; of pairs the first one.
        right: the second texts of pairs, as many; None where there is one text for each label.
    """

    labels: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationTask:
    """A task of classification.

    Attributes:
        name: such as "mr" or "sentlen".
        splits: split to its texts, none of them empty. {"all"} where the task is cross-validated;
            {"train", "test"}; or {"train", "dev", "test"}; in this order.
    """

    name: str
    splits: Mapping[str, LabelledTexts]
