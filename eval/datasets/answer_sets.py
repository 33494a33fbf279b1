"""Sets of questions with a pool of answers for each, in the files in which they are published.

Each reader takes a folder, one of its splits, and one of its variants or None.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from eval.datasets.files import (
    AGAIN,
    are_texts,
    existing,
    fault,
    has_texts,
    json_lines,
    matching,
    pool_of,
    put_new,
    put_text,
    required,
    rows,
    shown,
    table,
    text_of,
)
from eval.datasets.question_set import Question, QuestionSet

Files = Mapping[str, tuple[str, ...]]
"""Split to the names that its file may have."""

_SPLITS = ("train", "dev", "test")
WIKIQA: Files = {split: (f"WikiQA-{split}.tsv",) for split in _SPLITS}
_WIKIQA_HEADER = (
    "QuestionID",
    "Question",
    "DocumentID",
    "DocumentTitle",
    "SentenceID",
    "Sentence",
    "Label",
)

WIKI_PASSAGES = "document_passages.json"
WIKI_QUESTIONS: Files = {split: (f"{split}.tsv",) for split in _SPLITS}
_WIKI_HEADER = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")
_WIKI_FORM = 'one JSON object {"document": {"passage": "text"}}'

TRECQA: Files = {
    "train": ("train-less-than-40.manual-edit.xml", "TRAIN.xml"),
    "train-all": ("train2393.cleanup.xml", "TRAIN-ALL.xml"),
    "dev": ("dev-less-than-40.manual-edit.xml", "DEV.xml"),
    "test": ("test-less-than-40.manual-edit.xml", "TEST.xml"),
}
_TRECQA_OPEN = re.compile(r"\s*<QApairs id='([^']*)'>\s*")
# Its first line that is not blank has the words, the others annotation.
_TRECQA_BLOCK = re.compile(
    r"<(question|positive|negative)>[ \t]*\n\s*+(\S.*)\n(?:(?![ \t]*</).*\n)*+[ \t]*</\1>\s*"
)
_TRECQA_CLOSE = re.compile(r"</QApairs>\s*")

VOCABULARY = "vocabulary"
ANSWERS_1 = "answers.label.token_idx"
QUESTIONS_1: Files = {
    "train": ("question.train.token_idx.label",),
    "dev": ("question.dev.label.token_idx.pool",),
    "test1": ("question.test1.label.token_idx.pool",),
    "test2": ("question.test2.label.token_idx.pool",),
}
ANSWERS_2 = "InsuranceQA.label2answer.token.encoded"
# The size of the pools and the split in place of the stars.
QUESTIONS_2 = "InsuranceQA.question.anslabel.token.*.pool.solr.*.encoded"
_NAME_2 = re.compile(
    r"InsuranceQA\.question\.anslabel\.token\.([0-9]+)\.pool\.solr\.([a-z]+)\.encoded(?:\.gz)?"
)
_OFFICIAL_2 = {"train": "train", "dev": "valid", "test": "test"}
_USUAL_POOL = "500"

_OPENQA_QUESTION = '{"question": "...", "answers": ["...", ...]}'
_OPENQA_PARAGRAPHS = '[{"question": [...], "document": ["...", ...]}, ...]'
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def files_by_split(folder: Path, files: Files) -> dict[str, Path]:
    """Split to its file, of the splits that have one."""
    found = {split: existing(*(folder / name for name in names)) for split, names in files.items()}
    return {split: file for split, file in found.items() if file}


def read_wikiqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """`WikiQA-SPLIT.tsv` of Yang et al. (2015); `passages` are of all splits that are there."""
    passages: dict[str, str] = {}
    questions = {
        part: _wikiqa_questions(path, passages)
        for part, path in files_by_split(folder, WIKIQA).items()
    }
    return QuestionSet("WikiQA", split, questions[split], passages)


def _wikiqa_questions(path: Path, passages: dict[str, str]) -> tuple[Question, ...]:
    """The questions of a file; its sentences are added to `passages`."""
    texts: dict[str, str] = {}
    labels: dict[str, dict[str, int]] = {}
    for where, (query, question, _, _, sentence, text, label) in table(path, _WIKIQA_HEADER):
        put_text(texts, where, query, question, "question")
        put_text(passages, where, sentence, text, "sentence")
        if label.strip() not in ("0", "1"):
            raise fault(where, "0 or 1 as Label", repr(label))
        put_new(labels.setdefault(query, {}), where, sentence, int(label), f"sentence of {query}")
    return tuple(
        Question(query, texts[query], pool_of(grades), grades) for query, grades in labels.items()
    )


def read_wikipassageqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """WikiPassageQA (Cohen et al. 2018); a pool is an article, an id "document_passage"."""
    file = required(folder / WIKI_PASSAGES, split)
    text = text_of(file)
    documents = None
    with suppress(ValueError, RecursionError):
        documents = json.loads(text)
    if not isinstance(documents, dict) or not all(map(_is_article, documents.values())):
        raise fault(file, _WIKI_FORM, shown(text), AGAIN)
    questions: dict[str, Question] = {}
    path = files_by_split(folder, WIKI_QUESTIONS)[split]
    for where, (id_, text, document, _, relevant) in table(path, _WIKI_HEADER):
        if document not in documents:
            raise fault(where, f"a document of {WIKI_PASSAGES}", repr(document))
        passages = documents[document]
        numbers = [number.strip() for number in relevant.split(",") if number.strip()]
        unknown = [number for number in numbers if number not in passages]
        if unknown:
            expected = f"passages of document {document} separated by commas"
            raise fault(where, expected, repr(unknown[0]))
        pool = pool_of(f"{document}_{number}" for number in passages)
        grades = {f"{document}_{number}": 1 for number in numbers}
        put_new(questions, where, id_, Question(id_, text, pool, grades), "question")
    texts = {
        f"{document}_{number}": text
        for document, passages in documents.items()
        for number, text in passages.items()
    }
    return QuestionSet("WikiPassageQA", split, tuple(questions.values()), texts)


def _is_article(passages: Any) -> bool:
    return isinstance(passages, dict) and bool(passages) and are_texts([*passages.values()])


def read_trecqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """TrecQA (Wang et al. 2007), in the files of Yao et al. (2013); clean as Rao et al. (2016)."""
    questions = []
    passages: dict[str, str] = {}
    for part, path in files_by_split(folder, TRECQA).items():
        for id_, (question, sentences) in _trecqa_questions(path).items():
            grades = {}
            for number, (text, label) in enumerate(sentences):
                passages[f"{part}-{id_}-{number}"] = text
                grades[f"{part}-{id_}-{number}"] = label
            has_both = len(set(grades.values())) == 2
            if part == split and grades and (has_both or variant != "clean"):
                questions.append(Question(id_, question, pool_of(grades), grades))
    return QuestionSet(f"TrecQA {variant or 'raw'}", split, tuple(questions), passages)


def _trecqa_questions(path: Path) -> dict[str, tuple[str, list[tuple[str, int]]]]:
    """Id to a question and its labeled sentences; not XML, since `<num>` and `&` are words."""
    text = text_of(path)
    found: dict[str, tuple[str, list[tuple[str, int]]]] = {}
    place = 0

    def where() -> str:
        return f"{path}:{text.count(chr(10), 0, place) + 1}"

    while place < len(text) or not found:
        opening = _TRECQA_OPEN.match(text, place)
        if opening is None:
            raise fault(where(), "<QApairs id='...'>", shown(text[place:]), AGAIN)
        question = []
        sentences = []
        opened = where()
        place = opening.end()
        while block := _TRECQA_BLOCK.match(text, place):
            words = " ".join(block[2].split())
            if block[1] == "question":
                question.append(words)
            else:
                sentences.append((words, int(block[1] == "positive")))
            place = block.end()
        closing = _TRECQA_CLOSE.match(text, place)
        if closing is None or len(question) != 1:
            expected = "one <question>, blocks of <positive> and <negative>, and </QApairs>"
            raise fault(where(), expected, shown(text[place:]), AGAIN)
        put_new(found, opened, opening[1], (question[0], sentences), "question")
        place = closing.end()
    return found


def read_insuranceqa_1(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """InsuranceQA v1 (Feng et al. 2015); training questions have their answers alone as a pool."""
    path = files_by_split(folder, QUESTIONS_1)[split]
    columns = ("question", "correct") if split == "train" else ("correct", "question", "pool")
    return _insuranceqa("InsuranceQA v1", split, folder / ANSWERS_1, path, columns)


def insuranceqa_2_splits(folder: Path) -> tuple[str, ...]:
    """The splits of version 2 that have a file for some size of pools; dev is called valid."""
    there = {match[2] for match in _names_2(folder)}
    return tuple(split for split, official in _OFFICIAL_2.items() if official in there)


def insuranceqa_2_variants(folder: Path) -> tuple[str, ...]:
    """The sizes of pools that are there: 500 first, then ascending."""
    sizes = {match[1] for match in _names_2(folder)}
    return tuple(sorted(sizes, key=lambda size: (size != _USUAL_POOL, int(size))))


def read_insuranceqa_2(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Version 2: pools are what a search engine found; answers not in them count all the same."""
    size = variant or insuranceqa_2_variants(folder)[0]
    name = QUESTIONS_2.replace("*", size, 1).replace("*", _OFFICIAL_2[split])
    path = required(folder / name, split, insuranceqa_2_splits(folder))
    title = f"InsuranceQA v2, pools of {size}"
    columns = ("domain", "question", "correct", "pool")
    return _insuranceqa(title, split, folder / ANSWERS_2, path, columns)


def _names_2(folder: Path) -> list[re.Match[str]]:
    names = (path.name for path in matching(folder, QUESTIONS_2))
    return [match for match in map(_NAME_2.fullmatch, names) if match]


def _insuranceqa(
    name: str, split: str, answers_file: Path, path: Path, columns: tuple[str, ...]
) -> QuestionSet:
    """The set of a file of questions with these columns; without a pool, their answers are it."""
    words: dict[str, str] = {}
    vocabulary = required(answers_file.with_name(VOCABULARY), split)
    for where, (index, word) in rows(vocabulary, ("index", "word")):
        put_new(words, where, index, word, "word")

    def text(where: str, indices: str) -> str:
        unknown = [index for index in indices.split() if index not in words]
        if unknown:
            raise fault(where, f"indices of words in the file {VOCABULARY}", repr(unknown[0]))
        return " ".join(words[index] for index in indices.split())

    answers: dict[str, str] = {}
    for where, (label, indices) in rows(required(answers_file, split), ("label", "answer")):
        put_new(answers, where, label, text(where, indices), "answer")
    questions = []
    for number, (where, cells) in enumerate(rows(path, columns), 1):
        values = dict(zip(columns, cells, strict=True))
        correct = values["correct"].split()
        pool = values.get("pool", values["correct"]).split()
        unknown = [label for label in (*correct, *pool) if label not in answers]
        if unknown or not correct or not pool:
            found = repr(unknown[0]) if unknown else "none"
            raise fault(where, "labels of answers separated by spaces", found)
        grades = dict.fromkeys(correct, 1)
        questions.append(
            Question(str(number), text(where, values["question"]), pool_of(pool), grades)
        )
    return QuestionSet(name, split, tuple(questions), answers)


def read_openqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Quasar-T and SearchQA of github.com/thunlp/OpenQA; with the passages of the split alone."""
    texts = required(folder / f"{split}.txt", split)
    lists = required(folder / f"{split}.json", split)
    questions = []
    passages: dict[str, str] = {}
    asked = json_lines(
        texts, _OPENQA_QUESTION, partial(has_texts, name="question", list_name="answers")
    )
    found = json_lines(lists, _OPENQA_PARAGRAPHS, _are_paragraphs)
    for number, lines in enumerate(zip_longest(asked, found), 1):
        if None in lines:
            short, longer = (texts, lists) if lines[0] is None else (lists, texts)
            expected = f"a line for each of {longer.name}"
            raise fault(short, expected, str(number - 1), "download both again")
        (_, question), (_, paragraphs) = lines
        grades = {}
        for rank, paragraph in enumerate(paragraphs, 1):
            id_ = f"{number}-{rank}"
            passage = " ".join(paragraph["document"])
            passages[id_] = passage
            grades[id_] = int(contains_answer(passage, question["answers"]))
        if grades:
            pool = pool_of(grades)
            questions.append(Question(str(number), question["question"], pool, grades))
    name = folder.resolve().name
    return QuestionSet(name, split, tuple(questions), passages, answers_in_text=True)


def contains_answer(passage: str, answers: list[str]) -> bool:
    """Whether the words of an answer are in a passage, in a row, as in SQuAD's evaluation."""
    words = f" {_normalized(passage)} "
    phrases = (_normalized(answer) for answer in answers)
    return any(phrase and f" {phrase} " in words for phrase in phrases)


def _normalized(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _are_paragraphs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and are_texts(one.get("document")) for one in value
    )
