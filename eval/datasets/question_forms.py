"""The forms of question sets, and readers of sets whose whole corpus may be ranked.

`answer_sets` has the readers of sets with a pool of answers for each question.
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
    fault,
    has_texts,
    json_lines,
    make_pool,
    matching_files,
    name_parts,
    numbered_lines,
    put_new,
    quoted,
    read_text,
    require_file,
    rows,
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
    """Read the project's own form, without titles: most passages of a pool would share one."""
    splits = name_parts(folder, "queries.", ".jsonl")
    corpus = require_file(folder / "corpus.jsonl", split, splits)
    queries = require_file(folder / f"queries.{split}.jsonl", split, splits)
    qrels = require_file(folder / f"qrels.{split}.tsv", split, splits)
    has_pools = bool(matching_files(folder, "candidates.*.jsonl"))
    questions = _read_judged(queries, _read_texts(queries, "id"), qrels)
    name = folder.resolve().name if variant is None else f"{folder.resolve().name} {variant}"
    passages = {}
    if has_pools:
        passages = _read_texts(corpus, "id")
        path = require_file(folder / f"candidates.{split}.jsonl", split, splits)
        pools = _read_pools(path, {question.id for question in questions}, passages)
        lacking = next(
            (
                question.id
                for question in questions
                if question.answered and question.id not in pools
            ),
            None,
        )
        if lacking is not None:
            expected = "a pool for each question with a relevant passage"
            raise fault(path, expected, f"none for {lacking}", "add a line for it")
        questions = tuple(
            replace(question, candidates=make_pool(pools[question.id]))
            for question in questions
            if question.id in pools
        )
    if variant == "clean":
        clean_ids = set()
        ids = {question.id for question in questions}
        for where, line in numbered_lines(require_file(folder / f"clean.{split}.txt", split)):
            if line.strip() not in ids:
                raise fault(where, "the id of a question", line.strip(), "remove the line")
            clean_ids.add(line.strip())
        questions = tuple(question for question in questions if question.id in clean_ids)
    return QuestionSet(name, split, questions, passages, () if has_pools else (corpus,))


def _read_texts(path: Path, id_field: str) -> dict[str, str]:
    documents = CorpusReader([path], Fields(id=id_field, text="text"), on_empty="fail")
    return {document.id: document.text for document in documents}


def _read_judged(queries: Path, texts: Mapping[str, str], qrels: Path) -> tuple[Question, ...]:
    """Return the questions of a file without pools; refuse a file without a relevant passage."""
    judgments = read_qrels(qrels)
    unknown = next((query for query in judgments if query not in texts), None)
    if unknown is not None:
        remedy = "add it there or remove its lines"
        raise fault(qrels, f"judgments of the questions in {queries.name}", unknown, remedy)
    if not any(grade >= 1 for grades in judgments.values() for grade in grades.values()):
        expected = f"a question of {queries.name} with a grade of at least 1"
        raise fault(qrels, expected, "none", "check the file")
    return tuple(
        Question(query, text, (), judgments.get(query, {})) for query, text in texts.items()
    )


def _read_pools(
    path: Path, questions: Container[str], passages: Container[str]
) -> dict[str, list[str]]:
    """Return question to its candidates, for all questions that have any."""
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
    """Read the judged questions of BEIR (Thakur et al. 2021), in the order of the queries."""
    corpus = require_file(folder / "corpus.jsonl", split)
    queries = require_file(folder / "queries.jsonl", split)
    qrels = require_file(folder / "qrels" / f"{split}.tsv", split)
    questions = _read_judged(queries, _read_texts(queries, "_id"), qrels)
    judged_questions = tuple(question for question in questions if question.grades)
    return QuestionSet(folder.resolve().name, split, judged_questions, {}, (corpus,))


def _msmarco_splits(folder: Path) -> tuple[str, ...]:
    judged = name_parts(folder, "qrels.", ".tsv")
    return tuple(split for split in name_parts(folder, "queries.", ".tsv") if split in judged)


def _read_msmarco(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read the passages of MS MARCO (Nguyen et al. 2016)."""
    collection = require_file(folder / "collection.tsv", split)
    queries = require_file(folder / f"queries.{split}.tsv", split)
    texts: dict[str, str] = {}
    for where, (query, text) in rows(queries, ("query id", "query")):
        put_new(texts, where, query, text, "query")
    questions = _read_judged(queries, texts, require_file(folder / f"qrels.{split}.tsv", split))
    return QuestionSet("MS MARCO", split, questions, {}, (collection,))


def _read_trec(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read TREC's topics (`<top> <num> ...`), judgments and a corpus."""
    topics = _only_file(folder, "topics.*")
    qrels = _only_file(folder, "qrels.*")
    corpus = _only_file(folder, "corpus.*", "corpus")
    questions = _read_judged(topics, _read_topics(topics, read_qrels(qrels)), qrels)
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))


def _only_file(folder: Path, *patterns: str) -> Path:
    files = [path for pattern in patterns for path in matching_files(folder, pattern)]
    if len(files) != 1:
        names = ", ".join(path.name for path in files) or "none"
        raise fault(folder, f"one file {patterns[0]}", names, "leave one in the folder")
    return files[0]


def _read_topics(path: Path, judged: Container[str]) -> dict[str, str]:
    text = read_text(path)
    topics: dict[str, str] = {}
    openings = list(_TOPIC.finditer(text))
    ends = [*(opening.start() for opening in openings), len(text)][1:]
    for opening, end in zip(openings, ends, strict=True):
        where = f"{path}:{text.count(chr(10), 0, opening.start()) + 1}"
        body, *rest = _TOPIC_END.split(text[opening.end() : end], maxsplit=1)
        number = _TOPIC_NUMBER.search(body)
        question = _topic_question(body)
        if not rest or number is None or not question:
            expected = "a topic with a number, a title or description, and </top>"
            raise fault(where, expected, quoted(" ".join(body.split())), "correct the file")
        id_ = number[1]
        # Some judgments have 51 for the topic 051.
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
    """A form of question sets: a folder with all files of `needs`, which are patterns."""

    name: str
    needs: tuple[str, ...]
    splits: Callable[[Path], tuple[str, ...]]
    read: Reader
    # The default comes first.
    variants: Callable[[Path], tuple[str, ...]] = lambda folder: ()

    def missing(self, folder: Path) -> tuple[str, ...]:
        """Return the patterns of `needs` that no file of a folder matches."""
        return tuple(
            alternatives
            for alternatives in self.needs
            if not any(matching_files(folder, name) for name in alternatives.split(" or "))
        )


def _form_by_split(
    name: str, files: Files, read: Reader, *needs: str, variants: tuple[str, ...] = ()
) -> Form:
    """Return a form with a file for each split beside the files of `needs`."""
    any_split = " or ".join(name for names in files.values() for name in names)

    def splits(folder: Path) -> tuple[str, ...]:
        return tuple(files_by_split(folder, files))

    return Form(name, (*needs, any_split), splits, read, lambda folder: variants)


_FORMS = (
    Form(
        "own",
        ("corpus.jsonl", "queries.*.jsonl", "qrels.*.tsv"),
        lambda folder: name_parts(folder, "queries.", ".jsonl"),
        _read_own,
        lambda folder: ("raw", "clean") if matching_files(folder, "clean.*.txt") else (),
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
        lambda folder: name_parts(folder / "qrels", "", ".tsv"),
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
            split
            for split in name_parts(folder, "", ".txt")
            if split in name_parts(folder, "", ".json")
        ),
        sets.read_openqa,
    ),
)
FORMS: Mapping[str, Form] = {form.name: form for form in _FORMS}
"""Name to form, in the order in which they are tried."""


def detect_form(path: Path) -> str:
    """Return the first form whose files a folder has; the error names what the nearest lack."""
    if not path.is_dir():
        path_found = "a file" if path.exists() else "none"
        raise fault(path, "a folder of questions", path_found, "check the path")
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
    """Read one split of the data set in a folder.

    A form of None is detected. A variant of None is the default of a set that has several.

    Raises:
        SourceError: the folder lacks files of the form or has no such split, a file is malformed,
            or no question of the split has a relevant passage; names file and, if known, line.
        ConfigError: the form or the variant is unknown; names the known ones.
    """
    if form is not None and form not in FORMS:
        raise ConfigError(f"form: expected one of {', '.join(FORMS)}, found {form}")
    if form is None or not path.is_dir():
        form = detect_form(path)
    form_reader = FORMS[form]
    missing = form_reader.missing(path)
    if missing:
        files_missing = f"no {', no '.join(missing)}"
        raise fault(
            path, f"the files of the form {form}", files_missing, "add them, or name another form"
        )
    splits = form_reader.splits(path)
    if split not in splits:
        expected = f"one of the splits {', '.join(splits) or 'of a set'} (form {form})"
        raise fault(path, expected, repr(split), "name one of them, or another folder")
    variants = form_reader.variants(path)
    if variant is None:
        variant = variants[0] if variants else None
    elif variant not in variants:
        has = f"expected {' or '.join(variants)}" if variants else "this set has only one"
        raise ConfigError(f"variant: {has}, found {variant}")
    questions = form_reader.read(path, split, variant)
    if not any(question.answered for question in questions.questions):
        expected = f"a question of {split} with a relevant passage"
        raise fault(path, expected, f"none among {len(questions)}", "check the files")
    return questions


def splits_of(path: Path) -> tuple[str, ...]:
    """Return the splits of the data set in a folder, in any form."""
    return FORMS[detect_form(path)].splits(path)
