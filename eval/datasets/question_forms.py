"""The forms in which question sets come, which of them a folder has, and how they are read.

Those with a pool of answers for each question are read by `answer_sets`; those whose whole corpus
may be ranked are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from html import unescape
from pathlib import Path

from eval.datasets import answer_sets as sets
from eval.datasets.answer_sets import Files, files_by_split
from eval.datasets.files import (
    between,
    fault,
    has_texts,
    json_lines,
    matching,
    numbered_lines,
    pool_of,
    put_new,
    required,
    rows,
    shown,
    text_of,
)
from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.trec import read_qrels
from retriever.documents import CorpusReader, Fields
from retriever.errors import ConfigError

Reader = Callable[[Path, str, str | None], QuestionSet]
"""Reads one split of a folder, in a variant of the set or None."""

_CANDIDATES = '{"qid": "...", "candidates": ["...", ...]}'

_TOPIC = re.compile(r"<top\b[^>]*>", re.IGNORECASE)
_TOPIC_END = re.compile("</top>", re.IGNORECASE)
_TOPIC_NUMBER = re.compile(r"<num>\s*(?:Number\s*:)?\s*([^\s<]+)", re.IGNORECASE)
_TOPIC_FIELD = r"<{0}>\s*(?:(?:Topic|Description)\s*:)?([^<]*)"


def _read_own(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """The project's own form, without titles: most of a pool would have the same one."""
    splits = between(folder, "queries.", ".jsonl")
    corpus = required(folder / "corpus.jsonl", split, splits)
    queries = required(folder / f"queries.{split}.jsonl", split, splits)
    qrels = required(folder / f"qrels.{split}.tsv", split, splits)
    has_pools = bool(matching(folder, "candidates.*.jsonl"))
    questions = _judged(queries, _texts(queries, "id"), qrels)
    name = folder.resolve().name if variant is None else f"{folder.resolve().name} {variant}"
    passages = {}
    if has_pools:
        passages = _texts(corpus, "id")
        path = required(folder / f"candidates.{split}.jsonl", split, splits)
        pools = _own_pools(path, {one.id for one in questions}, passages)
        lacking = next((one.id for one in questions if one.answered and one.id not in pools), None)
        if lacking is not None:
            expected = "a pool for each question with a relevant passage"
            raise fault(path, expected, f"none for {lacking}", "add a line for it")
        questions = tuple(
            replace(one, candidates=pool_of(pools[one.id])) for one in questions if one.id in pools
        )
    if variant == "clean":
        kept = set()
        known = {one.id for one in questions}
        for where, line in numbered_lines(required(folder / f"clean.{split}.txt", split)):
            if line.strip() not in known:
                raise fault(where, "the id of a question", line.strip(), "remove the line")
            kept.add(line.strip())
        questions = tuple(one for one in questions if one.id in kept)
    return QuestionSet(name, split, questions, passages, () if has_pools else (corpus,))


def _texts(path: Path, id_field: str) -> dict[str, str]:
    documents = CorpusReader([path], Fields(id=id_field, text="text"), on_empty="fail")
    return {document.id: document.text for document in documents}


def _judged(queries: Path, texts: Mapping[str, str], qrels: Path) -> tuple[Question, ...]:
    """The questions of a file without pools, of which one or more have a relevant passage."""
    judged = read_qrels(qrels)
    unknown = next((query for query in judged if query not in texts), None)
    if unknown is not None:
        remedy = "add it there or remove its lines"
        raise fault(qrels, f"judgments of the questions in {queries.name}", unknown, remedy)
    if not any(grade >= 1 for grades in judged.values() for grade in grades.values()):
        expected = f"a question of {queries.name} with a grade of at least 1"
        raise fault(qrels, expected, "none", "check the file")
    return tuple(Question(query, text, (), judged.get(query, {})) for query, text in texts.items())


def _own_pools(
    path: Path, questions: Container[str], passages: Container[str]
) -> dict[str, list[str]]:
    """Question to its candidates, of those that have any."""
    pools: dict[str, list[str]] = {}
    fits = partial(has_texts, name="qid", list_name="candidates")
    for where, value in json_lines(path, _CANDIDATES, fits):
        query = value["qid"]
        pool = value["candidates"]
        put_new(pools, where, query, pool, "pool")
        if query not in questions:
            raise fault(where, "a question of the queries file", query, "remove the line")
        unknown = [passage for passage in pool if passage not in passages]
        if unknown:
            remedy = "add it there or remove it here"
            raise fault(where, "candidates that are in the corpus", unknown[0], remedy)
    return {query: pool for query, pool in pools.items() if pool}


def _read_beir(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """BEIR (Thakur et al. 2021): the judged questions, in the order of the queries."""
    corpus = required(folder / "corpus.jsonl", split)
    queries = required(folder / "queries.jsonl", split)
    qrels = required(folder / "qrels" / f"{split}.tsv", split)
    questions = _judged(queries, _texts(queries, "_id"), qrels)
    judged = tuple(one for one in questions if one.grades)
    return QuestionSet(folder.resolve().name, split, judged, {}, (corpus,))


def _msmarco_splits(folder: Path) -> tuple[str, ...]:
    judged = between(folder, "qrels.", ".tsv")
    return tuple(split for split in between(folder, "queries.", ".tsv") if split in judged)


def _read_msmarco(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """MS MARCO's passages (Nguyen et al. 2016)."""
    collection = required(folder / "collection.tsv", split)
    queries = required(folder / f"queries.{split}.tsv", split)
    texts: dict[str, str] = {}
    for where, (query, text) in rows(queries, ("query id", "query")):
        put_new(texts, where, query, text, "query")
    asked = _judged(queries, texts, required(folder / f"qrels.{split}.tsv", split))
    return QuestionSet("MS MARCO", split, asked, {}, (collection,))


def _read_trec(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """TREC's topics (`<top> <num> ...`), judgments and a corpus."""
    topics = _only_file(folder, "topics.*")
    qrels = _only_file(folder, "qrels.*")
    corpus = _only_file(folder, "corpus.*", "corpus")
    questions = _judged(topics, _topics(topics, read_qrels(qrels)), qrels)
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))


def _only_file(folder: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in matching(folder, pattern)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise fault(folder, f"one file {patterns[0]}", names, "leave one in the folder")
    return found[0]


def _topics(path: Path, judged: Container[str]) -> dict[str, str]:
    text = text_of(path)
    topics: dict[str, str] = {}
    openings = list(_TOPIC.finditer(text))
    ends = [*(opening.start() for opening in openings), len(text)][1:]
    for opening, end in zip(openings, ends, strict=True):
        where = f"{path}:{text.count(chr(10), 0, opening.start()) + 1}"
        body, *closed = _TOPIC_END.split(text[opening.end() : end], maxsplit=1)
        number = _TOPIC_NUMBER.search(body)
        question = _topic_question(body)
        if not closed or number is None or not question:
            expected = "a topic with a number, a title or description, and </top>"
            raise fault(where, expected, shown(" ".join(body.split())), "correct the file")
        id_ = number[1]
        # 051 is 51 in some judgments.
        if id_ not in judged and id_.lstrip("0") in judged:
            id_ = id_.lstrip("0")
        put_new(topics, where, id_, question, "topic")
    if not topics:
        raise fault(path, "topics (<top>)", "none", "check that it is the right file")
    return topics


def _topic_question(body: str) -> str:
    for name in ("title", "desc"):
        field = re.search(_TOPIC_FIELD.format(name), body, re.IGNORECASE)
        if field and field[1].strip():
            return " ".join(unescape(field[1]).split())
    return ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of question sets; a folder has all files of `needs`, where * is anything."""

    name: str
    needs: tuple[str, ...]
    splits: Callable[[Path], tuple[str, ...]]
    read: Reader
    # The default comes first.
    variants: Callable[[Path], tuple[str, ...]] = lambda folder: ()

    def missing(self, folder: Path) -> tuple[str, ...]:
        """What of `needs` a folder lacks."""
        return tuple(
            names
            for names in self.needs
            if not any(matching(folder, one) for one in names.split(" or "))
        )


def _form_by_split(
    name: str, files: Files, read: Reader, *needs: str, variants: tuple[str, ...] = ()
) -> Form:
    """A form with a file for each split beside those of `needs`."""
    any_split = " or ".join(name for names in files.values() for name in names)

    def splits(folder: Path) -> tuple[str, ...]:
        return tuple(files_by_split(folder, files))

    return Form(name, (*needs, any_split), splits, read, lambda folder: variants)


_FORMS = (
    Form(
        "own",
        ("corpus.jsonl", "queries.*.jsonl", "qrels.*.tsv"),
        lambda folder: between(folder, "queries.", ".jsonl"),
        _read_own,
        lambda folder: ("raw", "clean") if matching(folder, "clean.*.txt") else (),
    ),
    _form_by_split(
        "wikipassageqa", sets.WIKI_QUESTIONS, sets.read_wikipassageqa, sets.WIKI_PASSAGES
    ),
    _form_by_split(
        "insuranceqa-v1",
        sets.QUESTIONS_1,
        sets.read_insuranceqa_1,
        sets.VOCABULARY,
        sets.ANSWERS_1,
    ),
    Form(
        "insuranceqa-v2",
        (sets.VOCABULARY, sets.ANSWERS_2, sets.QUESTIONS_2),
        sets.insuranceqa_2_splits,
        sets.read_insuranceqa_2,
        sets.insuranceqa_2_variants,
    ),
    _form_by_split("wikiqa", sets.WIKIQA, sets.read_wikiqa),
    _form_by_split("trecqa", sets.TRECQA, sets.read_trecqa, variants=("raw", "clean")),
    Form(
        "beir",
        ("corpus.jsonl", "queries.jsonl", "qrels/*.tsv"),
        lambda folder: between(folder / "qrels", "", ".tsv"),
        _read_beir,
    ),
    Form(
        "msmarco",
        ("collection.tsv", "queries.*.tsv", "qrels.*.tsv"),
        _msmarco_splits,
        _read_msmarco,
    ),
    Form(
        "trec",
        ("topics.*", "qrels.*", "corpus.* or corpus"),
        lambda folder: ("test",),
        _read_trec,
    ),
    Form(
        "openqa",
        ("train.txt or dev.txt or test.txt", "train.json or dev.json or test.json"),
        lambda folder: tuple(
            split for split in between(folder, "", ".txt") if split in between(folder, "", ".json")
        ),
        sets.read_openqa,
    ),
)
FORMS: Mapping[str, Form] = {form.name: form for form in _FORMS}
"""Name to form, in the order in which they are tried."""


def detect_form(path: Path) -> str:
    """The name of the first form whose files a folder has; an error names what the nearest lack."""
    if not path.is_dir():
        found = "a file" if path.exists() else "none"
        raise fault(path, "a folder of questions", found, "check the path")
    missing = {name: form.missing(path) for name, form in FORMS.items()}
    shares = {name: len(files) / len(FORMS[name].needs) for name, files in missing.items()}
    least = min(shares.values())
    nearest = [name for name, share in shares.items() if share == least]
    if least == 0:
        return nearest[0]
    expected = "the files of a question set"
    if least == 1:
        raise fault(path, expected, "none of them", f"the forms are {', '.join(FORMS)}")
    lacks = "; ".join(f"for {name} it has no {', no '.join(missing[name])}" for name in nearest)
    raise fault(path, expected, f"only some: {lacks}", "add what is missing")


def read_question_set(
    path: Path, split: str, *, form: str | None = None, variant: str | None = None
) -> QuestionSet:
    """Read one split of the data set in a folder, in a form of `FORMS`, which is detected if None.

    A variant of None is the default of a set that has several.

    Raises:
        SourceError: the folder lacks files of the form or has no such split, a file is malformed,
            or no question of the split has a relevant passage; names file and, if known, line.
        ConfigError: the form or the variant is unknown; names the known ones.
    """
    if form is not None and form not in FORMS:
        raise ConfigError(f"form: expected one of {', '.join(FORMS)}, found {form}")
    if form is None or not path.is_dir():
        form = detect_form(path)
    chosen = FORMS[form]
    missing = chosen.missing(path)
    if missing:
        found = f"no {', no '.join(missing)}"
        raise fault(path, f"the files of the form {form}", found, "add them, or name another form")
    splits = chosen.splits(path)
    if split not in splits:
        expected = f"one of the splits {', '.join(splits) or 'of a set'} (form {form})"
        raise fault(path, expected, repr(split), "name one of them, or another folder")
    variants = chosen.variants(path)
    if variant is None:
        variant = variants[0] if variants else None
    elif variant not in variants:
        has = f"expected {' or '.join(variants)}" if variants else "this set has only one"
        raise ConfigError(f"variant: {has}, found {variant}")
    questions = chosen.read(path, split, variant)
    if not any(question.answered for question in questions.questions):
        expected = f"a question of {split} with a relevant passage"
        raise fault(path, expected, f"none among {len(questions)}", "check the files")
    return questions


def splits_of(path: Path) -> tuple[str, ...]:
    """The splits of the data set in a folder, in any form."""
    return FORMS[detect_form(path)].splits(path)
