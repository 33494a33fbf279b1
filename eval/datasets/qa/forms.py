"""The forms in which question sets come, and which of them a folder has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eval.datasets.files import matching
from eval.datasets.qa import (
    beir,
    insuranceqa,
    msmarco,
    openqa,
    own,
    trec_topics,
    trecqa,
    wikipassageqa,
    wikiqa,
)
from eval.datasets.qa.question_set import QuestionSet
from retriever.errors import ConfigError, SourceError

Reader = Callable[[Path, str, str | None], QuestionSet]


def _no_variants(folder: Path) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Form:
    """A form of question sets.

    Attributes:
        name: as `--form` names it.
        needs: files that identify a folder of this form: one of each group, where * stands for
            anything; each may be gzipped.
        splits: names of the splits of a folder.
        read: reads a split of a folder in a variant, which is None or one of `variants`.
        variants: names of the variants of a folder, the default first; empty if there is only one.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    splits: Callable[[Path], tuple[str, ...]]
    read: Reader
    variants: Callable[[Path], tuple[str, ...]] = _no_variants

    def missing(self, folder: Path) -> tuple[str, ...]:
        """The files of `needs` that a folder lacks; alternatives in one text."""
        return tuple(
            " or ".join(group)
            for group in self.needs
            if not any(matching(folder, pattern) for pattern in group)
        )


def _clean_or_raw(folder: Path) -> tuple[str, ...]:
    return ("raw", "clean")


_ALL = (
    Form(
        "own",
        (("corpus.jsonl",), ("queries.*.jsonl",), ("qrels.*.tsv",)),
        own.splits,
        own.read,
        own.variants,
    ),
    Form(
        "wikipassageqa",
        ((wikipassageqa.PASSAGES,), ("train.tsv", "dev.tsv", "test.tsv")),
        wikipassageqa.splits,
        wikipassageqa.read,
    ),
    Form(
        "insuranceqa-v1",
        ((insuranceqa.VOCABULARY,), (insuranceqa.ANSWERS_1,), ("question.*.token_idx.*",)),
        insuranceqa.splits_1,
        insuranceqa.read_1,
    ),
    Form(
        "insuranceqa-v2",
        ((insuranceqa.VOCABULARY,), (insuranceqa.ANSWERS_2,), (insuranceqa.QUESTIONS_2,)),
        insuranceqa.splits_2,
        insuranceqa.read_2,
        insuranceqa.variants_2,
    ),
    Form("wikiqa", (("WikiQA-*.tsv",),), wikiqa.splits, wikiqa.read),
    Form(
        "trecqa",
        (tuple(name for names in trecqa.FILES.values() for name in names),),
        trecqa.splits,
        trecqa.read,
        _clean_or_raw,
    ),
    Form(
        "beir",
        (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",)),
        beir.splits,
        beir.read,
    ),
    Form(
        "msmarco",
        ((msmarco.COLLECTION, "top1000.*"), ("queries.*.tsv",), ("qrels.*.tsv",)),
        msmarco.splits,
        msmarco.read,
    ),
    Form(
        "trec",
        (("topics.*",), ("qrels.*",), ("corpus.*", "corpus")),
        trec_topics.splits,
        trec_topics.read,
    ),
    Form(
        "openqa",
        (("train.txt", "dev.txt", "test.txt"), ("train.json", "dev.json", "test.json")),
        openqa.splits,
        openqa.read,
    ),
)
FORMS = {form.name: form for form in _ALL}
"""Name to form, in the order in which they are tried."""


def detect_form(path: Path) -> str:
    """The name of the first form whose files a folder has.

    Raises:
        SourceError: it is not a folder, or has the files of no form; the message names what the
            nearest forms lack.
    """
    _check_folder(path)
    missing = {name: form.missing(path) for name, form in FORMS.items()}
    for name, files in missing.items():
        if not files:
            return name
    share = {name: len(files) / len(FORMS[name].needs) for name, files in missing.items()}
    nearest = [name for name, part in share.items() if part == min(share.values())]
    if min(share.values()) == 1:
        raise SourceError(
            f"{path}: expected the files of a question set, found none of them; the forms are "
            f"{', '.join(FORMS)}"
        )
    lacks = "; ".join(f"for {name} it has no {', no '.join(missing[name])}" for name in nearest)
    raise SourceError(
        f"{path}: expected the files of a question set, found only some: {lacks}; add what is "
        "missing"
    )


def read_question_set(
    path: Path, split: str, *, form: str | None = None, variant: str | None = None
) -> QuestionSet:
    """Read one split of a data set.

    Args:
        path: its folder.
        split: such as "test".
        form: a name in `FORMS`; None detects it.
        variant: of a set that has several; None takes the default.

    Raises:
        SourceError: the folder lacks files of the form or has no such split, a file is malformed,
            or no question of the split has a relevant passage; names file and, if known, line.
        ConfigError: the form or the variant is unknown; names the known ones.
    """
    if form is not None and form not in FORMS:
        raise ConfigError(f"form: expected one of {', '.join(FORMS)}, found {form}")
    _check_folder(path)
    chosen = FORMS[form or detect_form(path)]
    missing = chosen.missing(path)
    if missing:
        raise SourceError(
            f"{path}: expected the files of the form {chosen.name}, found no "
            f"{', no '.join(missing)}; add them, or name another form"
        )
    splits = chosen.splits(path)
    if split not in splits:
        raise SourceError(
            f"{path}: expected one of the splits {', '.join(splits)} (form {chosen.name}), found "
            f"{split!r}; name one of them"
            if splits
            else f"{path}: expected files of a split (form {chosen.name}), found none; name "
            "another folder"
        )
    questions = chosen.read(path, split, _variant(chosen, path, variant))
    if not any(question.answered for question in questions.questions):
        raise SourceError(
            f"{path}: expected a question of {split} with a relevant passage, found none "
            f"among {len(questions)}; check the files"
        )
    return questions


def splits_of(path: Path) -> tuple[str, ...]:
    """The splits of the data set in a folder, in any form.

    Raises:
        SourceError: the folder has the files of no form.
    """
    _check_folder(path)
    return tuple(FORMS[detect_form(path)].splits(path))


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        found = "a file" if path.exists() else "none"
        raise SourceError(f"{path}: expected a folder of questions, found {found}; check the path")


def _variant(form: Form, path: Path, variant: str | None) -> str | None:
    known = form.variants(path)
    if variant is None:
        return known[0] if known else None
    if variant not in known:
        has = f"expected {' or '.join(known)}" if known else "this set has only one"
        raise ConfigError(f"variant: {has}, found {variant}")
    return variant
