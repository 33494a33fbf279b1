"""The forms in which question sets come, which of them a folder has, and how they are read.

Those with a pool of answers for each question are read by `answer_sets`; those whose whole corpus
may be ranked are read here. Each reader takes a folder, a split, and a variant or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import unescape

from eval.datasets import answer_sets
from eval.datasets.answer_sets import splits_with_files
from eval.datasets.files import (
    SHOWN,
    Judgments,
    between,
    check_judgments,
    existing,
    json_lines,
    matching,
    numbered_lines,
    pool_of,
    put_new,
    put_text,
    required,
    rows,
    rows_by_id,
    text_of,
    unexpected,
)
from eval.datasets.question_set import Question, QuestionSet
from eval.metrics.trec import read_qrels
from retriever.documents import Fields
from retriever.documents.reader import CorpusReader
from retriever.errors import ConfigError, SourceError

_COLLECTION = "collection.tsv"
_CANDIDATES = '{"qid": "...", "candidates": ["...", ...]}'
_TOP_1000 = ("query id", "passage id", "query", "passage")

_TOPIC = re.compile(r"<(top|topic)\b([^>]*)>", re.IGNORECASE)
_TOPIC_NUMBER = re.compile(r"<num>\s*(?:Number\s*:)?\s*([^\s<]+)", re.IGNORECASE)
_TOPIC_ATTRIBUTE = re.compile(r"""\b(?:number|id)\s*=\s*["']([^"']*)["']""", re.IGNORECASE)
_TOPIC_FIELD = r"<{0}>\s*(?:(?:Topic|Description)\s*:)?([^<]*)"
_QUOTES = {"&quot;": '"', "&apos;": "'"}


def _read_own(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """`corpus.jsonl`, `queries.SPLIT.jsonl`, `qrels.SPLIT.tsv`, and maybe `candidates.SPLIT.jsonl`.

    Titles are not read: most of a pool would have the same one. Where there are pools, a question
    without pool and relevant passage is left out. `clean.SPLIT.txt` has the questions of clean.
    """
    splits = between(folder, "queries.", ".jsonl")
    corpus = required(folder / "corpus.jsonl", split, splits)
    queries = required(folder / f"queries.{split}.jsonl", split, splits)
    qrels = required(folder / f"qrels.{split}.tsv", split, splits)
    has_pools = bool(matching(folder, "candidates.*.jsonl"))
    candidates = (
        required(folder / f"candidates.{split}.jsonl", split, splits) if has_pools else None
    )
    judged = read_qrels(qrels)
    texts = _texts(queries, "id")
    check_judgments(qrels, judged, texts, queries)
    pools = {} if candidates is None else _own_pools(candidates, texts, judged)
    kept = set(texts)
    if variant == "clean":
        kept = _clean_questions(required(folder / f"clean.{split}.txt", split), texts, queries)
    questions = tuple(
        Question(query, text, pool_of(pools[query][1]) if has_pools else (), judged.get(query, {}))
        for query, text in texts.items()
        if query in kept and (query in pools or not has_pools)
    )
    name = folder.resolve().name
    if variant is not None:
        name = f"{name} {variant}"
    if not has_pools:
        return QuestionSet(name, split, questions, {}, (corpus,))
    passages = _texts(corpus, "id")
    for where, pool in pools.values():
        for passage in pool:
            if passage not in passages:
                raise SourceError(
                    f"{where}: expected candidates that are in {corpus.name}, found {passage}; "
                    "add it there or remove it here"
                )
    return QuestionSet(name, split, questions, passages)


def _texts(path: Path, id_field: str) -> dict[str, str]:
    documents = CorpusReader([path], Fields(id=id_field, text="text"), on_empty="fail")
    return {document.id: document.text for document in documents}


def _own_pools(
    path: Path, questions: Container[str], judged: Judgments
) -> dict[str, tuple[str, list[str]]]:
    """Question to `file:line` and its candidates, of those that have any."""
    pools: dict[str, tuple[str, list[str]]] = {}
    for where, value in json_lines(path, _CANDIDATES):
        query = value.get("qid") if isinstance(value, dict) else None
        pool = value.get("candidates") if isinstance(value, dict) else None
        if (
            not isinstance(query, str)
            or not isinstance(pool, list)
            or not all(isinstance(passage, str) for passage in pool)
        ):
            raise unexpected(where, _CANDIDATES, value)
        if len(set(pool)) != len(pool):
            repeated = next(passage for passage in pool if pool.count(passage) > 1)
            raise SourceError(
                f"{where}: expected each candidate once, found {repeated} twice; remove one of them"
            )
        if query not in questions or query in pools:
            found = f"{query} again" if query in pools else f"unknown question {query}"
            raise SourceError(
                f"{where}: expected one pool for each question of the queries file, "
                f"found {found}; remove the line"
            )
        pools[query] = where, pool
    found_pools = {query: pool for query, pool in pools.items() if pool[1]}
    _check_pools(path, found_pools, judged, "add a line for it")
    return found_pools


def _check_pools(path: Path, pools: Container[str], judged: Judgments, remedy: str) -> None:
    for query, grades in judged.items():
        if query not in pools and max(grades.values()) >= 1:
            raise SourceError(
                f"{path}: expected a pool for each question with a relevant passage, found none "
                f"for {query}; {remedy}"
            )


def _clean_questions(path: Path, questions: Container[str], queries: Path) -> set[str]:
    kept: set[str] = set()
    for where, line in numbered_lines(path):
        query = line.strip()
        if query not in questions:
            raise SourceError(
                f"{where}: expected the id of a question in {queries.name}, found {query}; remove "
                "the line"
            )
        kept.add(query)
    return kept


def _read_beir(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """BEIR (Thakur et al. 2021): the judged questions, in the order of the queries."""
    corpus = required(folder / "corpus.jsonl", split)
    queries = required(folder / "queries.jsonl", split)
    qrels = required(folder / "qrels" / f"{split}.tsv", split)
    judged = read_qrels(qrels)
    texts = _texts(queries, "_id")
    check_judgments(qrels, judged, texts, queries)
    questions = tuple(
        Question(query, text, (), judged[query]) for query, text in texts.items() if query in judged
    )
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))


def _msmarco_splits(folder: Path) -> tuple[str, ...]:
    judged = between(folder, "qrels.", ".tsv")
    return tuple(split for split in between(folder, "queries.", ".tsv") if split in judged)


def _read_msmarco(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """MS MARCO's passages (Nguyen et al. 2016): pools of `top1000.SPLIT`, or the whole collection.

    A judged passage that is not in the pools counts, but has no text. Questions without a relevant
    passage and without a pool are left out.
    """
    queries = required(folder / f"queries.{split}.tsv", split)
    qrels = required(folder / f"qrels.{split}.tsv", split)
    judged = read_qrels(qrels)
    lines = rows_by_id(queries, ("query id", "query"), "query")
    texts = {query: text for _, (query, text) in lines}
    check_judgments(qrels, judged, texts, queries)
    names = [f"top1000.{split}", f"top1000.{split}.tsv"]
    if split == "dev.small":
        names += ["top1000.dev", "top1000.dev.tsv"]
    top = next(filter(None, (existing(folder / name) for name in names)), None)
    if top is None:
        collection = required(folder / _COLLECTION, split)
        asked = tuple(
            Question(query, text, (), judged.get(query, {})) for query, text in texts.items()
        )
        return QuestionSet("MS MARCO", split, asked, {}, (collection,))
    pools, passages = _msmarco_pools(top, texts, queries)
    _check_pools(
        top,
        pools,
        judged,
        "name the split that the pools are of, or remove the file to rank the whole collection",
    )
    asked = tuple(
        Question(query, text, pool_of(pools[query]), judged.get(query, {}))
        for query, text in texts.items()
        if query in pools
    )
    return QuestionSet("MS MARCO", split, asked, passages)


def _msmarco_pools(
    path: Path, questions: Container[str], queries: Path
) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Query to its passages, and passage to text."""
    pools: dict[str, set[str]] = {}
    passages: dict[str, str] = {}
    for where, (query, passage, _, text) in rows(path, _TOP_1000):
        if query not in questions:
            raise SourceError(
                f"{where}: expected a query of {queries.name}, found {query}; take the files of "
                "one split"
            )
        pool = pools.setdefault(query, set())
        if passage in pool:
            raise SourceError(
                f"{where}: expected each passage once for a query, found {passage} again for "
                f"{query}; remove one of the lines"
            )
        pool.add(passage)
        put_text(passages, where, passage, text, "passage")
    return pools, passages


def _read_trec(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """TREC's topics, classic (`<top> <num> ...`) or later ones (`<topic number="1"> ...`).

    A topic written with leading zeros (051) is also found in judgments without them (51).
    """
    topics = _only_file(folder, "topics.*")
    qrels = _only_file(folder, "qrels.*")
    corpus = _only_file(folder, "corpus.*", "corpus")
    judged = read_qrels(qrels)
    texts = _topics(topics, judged)
    check_judgments(qrels, judged, texts, topics)
    questions = tuple(
        Question(query, text, (), judged.get(query, {})) for query, text in texts.items()
    )
    return QuestionSet(folder.resolve().name, split, questions, {}, (corpus,))


def _only_file(folder: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in matching(folder, pattern)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SourceError(
            f"{folder}: expected one file {patterns[0]}, found {names}; leave one in the folder"
        )
    return found[0]


def _topics(path: Path, judged: Container[str]) -> dict[str, str]:
    text = text_of(path)
    topics: dict[str, str] = {}
    places: dict[str, str] = {}
    openings = list(_TOPIC.finditer(text))
    ends = [*(opening.start() for opening in openings), len(text)][1:]
    for opening, end in zip(openings, ends, strict=True):
        where = f"{path}:{text.count(chr(10), 0, opening.start()) + 1}"
        tag = opening[1]
        body, closed, _ = text[opening.end() : end].partition(f"</{tag}>")
        if not closed:
            raise SourceError(
                f"{where}: expected </{tag}> for this topic, found none; correct the file"
            )
        number = _TOPIC_ATTRIBUTE.search(opening[2]) or _TOPIC_NUMBER.search(body)
        question = _topic_question(body, classic=tag.lower() == "top")
        if number is None or not question:
            what = "a number" if number is None else "a title or query"
            raise SourceError(
                f"{where}: expected {what} in this topic, found "
                f"{' '.join(body.split())[:SHOWN]!r}; correct the file"
            )
        id_ = number[1]
        if id_ not in judged and id_.lstrip("0") in judged:
            id_ = id_.lstrip("0")
        put_new(places, where, id_, "topic")
        topics[id_] = question
    if not topics:
        raise SourceError(
            f"{path}: expected topics (<top> or <topic number=...>), found none; check that it is "
            "the right file"
        )
    return topics


def _topic_question(body: str, *, classic: bool) -> str:
    for name in ("title", "desc") if classic else ("query", "title"):
        field = re.search(_TOPIC_FIELD.format(name), body, re.IGNORECASE)
        if field and field[1].strip():
            return _plain(field[1])
    return "" if classic else _plain(body.partition("<")[0])


def _plain(text: str) -> str:
    return " ".join(unescape(text, _QUOTES).split())


@dataclass(frozen=True, slots=True)
class Form:
    """A form of question sets: a folder has one file of each group of `needs`, where * is anything.

    `splits` and `variants` name what a folder has, the default variant first.
    """

    name: str
    needs: tuple[tuple[str, ...], ...]
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path, str, str | None], QuestionSet]
    variants: Callable[[Path], tuple[str, ...]] = lambda folder: ()

    def missing(self, folder: Path) -> tuple[str, ...]:
        """The files of `needs` that a folder lacks; alternatives in one text."""
        return tuple(
            " or ".join(group)
            for group in self.needs
            if not any(matching(folder, pattern) for pattern in group)
        )


_FORMS = (
    Form(
        "own",
        (("corpus.jsonl",), ("queries.*.jsonl",), ("qrels.*.tsv",)),
        lambda folder: between(folder, "queries.", ".jsonl"),
        _read_own,
        lambda folder: ("raw", "clean") if matching(folder, "clean.*.txt") else (),
    ),
    Form(
        "wikipassageqa",
        ((answer_sets.WIKI_PASSAGES,), tuple(answer_sets.WIKI_QUESTIONS.values())),
        partial(splits_with_files, files=answer_sets.WIKI_QUESTIONS),
        answer_sets.read_wikipassageqa,
    ),
    Form(
        "insuranceqa-v1",
        ((answer_sets.VOCABULARY,), (answer_sets.ANSWERS_1,), ("question.*.token_idx.*",)),
        partial(splits_with_files, files=answer_sets.QUESTIONS_1),
        answer_sets.read_insuranceqa_1,
    ),
    Form(
        "insuranceqa-v2",
        ((answer_sets.VOCABULARY,), (answer_sets.ANSWERS_2,), (answer_sets.QUESTIONS_2,)),
        answer_sets.insuranceqa_2_splits,
        answer_sets.read_insuranceqa_2,
        answer_sets.insuranceqa_2_variants,
    ),
    Form(
        "wikiqa",
        (("WikiQA-*.tsv",),),
        partial(splits_with_files, files=answer_sets.WIKIQA),
        answer_sets.read_wikiqa,
    ),
    Form(
        "trecqa",
        (tuple(name for names in answer_sets.TRECQA.values() for name in names),),
        partial(splits_with_files, files=answer_sets.TRECQA),
        answer_sets.read_trecqa,
        lambda folder: ("raw", "clean"),
    ),
    Form(
        "beir",
        (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",)),
        lambda folder: between(folder / "qrels", "", ".tsv"),
        _read_beir,
    ),
    Form(
        "msmarco",
        ((_COLLECTION, "top1000.*"), ("queries.*.tsv",), ("qrels.*.tsv",)),
        _msmarco_splits,
        _read_msmarco,
    ),
    Form(
        "trec",
        (("topics.*",), ("qrels.*",), ("corpus.*", "corpus")),
        lambda folder: ("test",),
        _read_trec,
    ),
    Form(
        "openqa",
        (("train.txt", "dev.txt", "test.txt"), ("train.json", "dev.json", "test.json")),
        lambda folder: tuple(
            split for split in between(folder, "", ".txt") if split in between(folder, "", ".json")
        ),
        answer_sets.read_openqa,
    ),
)
FORMS: Mapping[str, Form] = {form.name: form for form in _FORMS}
"""Name to form, in the order in which they are tried."""


def detect_form(path: Path) -> str:
    """The name of the first form whose files a folder has; an error names what the nearest lack."""
    if not path.is_dir():
        found = "a file" if path.exists() else "none"
        raise SourceError(f"{path}: expected a folder of questions, found {found}; check the path")
    missing = {name: form.missing(path) for name, form in FORMS.items()}
    for name, files in missing.items():
        if not files:
            return name
    shares = {name: len(files) / len(FORMS[name].needs) for name, files in missing.items()}
    least = min(shares.values())
    if least == 1:
        raise SourceError(
            f"{path}: expected the files of a question set, found none of them; the forms are "
            f"{', '.join(FORMS)}"
        )
    lacks = "; ".join(
        f"for {name} it has no {', no '.join(missing[name])}"
        for name, share in shares.items()
        if share == least
    )
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
    if form is None or not path.is_dir():
        form = detect_form(path)
    chosen = FORMS[form]
    missing = chosen.missing(path)
    if missing:
        raise SourceError(
            f"{path}: expected the files of the form {form}, found no "
            f"{', no '.join(missing)}; add them, or name another form"
        )
    splits = chosen.splits(path)
    if split not in splits:
        raise SourceError(
            f"{path}: expected one of the splits {', '.join(splits)} (form {form}), found "
            f"{split!r}; name one of them"
            if splits
            else f"{path}: expected files of a split (form {form}), found none; name another folder"
        )
    variants = chosen.variants(path)
    if variant is None:
        variant = variants[0] if variants else None
    elif variant not in variants:
        has = f"expected {' or '.join(variants)}" if variants else "this set has only one"
        raise ConfigError(f"variant: {has}, found {variant}")
    questions = chosen.read(path, split, variant)
    if not any(question.answered for question in questions.questions):
        raise SourceError(
            f"{path}: expected a question of {split} with a relevant passage, found none "
            f"among {len(questions)}; check the files"
        )
    return questions


def splits_of(path: Path) -> tuple[str, ...]:
    """The splits of the data set in a folder, in any form."""
    return FORMS[detect_form(path)].splits(path)
