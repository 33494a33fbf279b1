"""Sets of questions, each with a pool of answers, in the files in which they are published.

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
    fault,
    find_file,
    has_texts,
    json_lines,
    make_pool,
    matching_files,
    put_new,
    put_text,
    quoted,
    read_text,
    require_file,
    rows,
    table,
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
# The first line that is not blank has the words, the others have annotations.
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
# The stars stand for the size of the pools and the split.
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
    """Return split to its file, for all splits that have one."""
    paths = {split: find_file(*(folder / name for name in names)) for split, names in files.items()}
    return {split: file for split, file in paths.items() if file}


def read_wikiqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read `WikiQA-SPLIT.tsv` of Yang et al. (2015), with the passages of all splits."""
    passages: dict[str, str] = {}
    questions = {
        part: _wikiqa_questions(path, passages)
        for part, path in files_by_split(folder, WIKIQA).items()
    }
    return QuestionSet("WikiQA", split, questions[split], passages)


def _wikiqa_questions(path: Path, passages: dict[str, str]) -> tuple[Question, ...]:
    """Read the questions of a file, and add its sentences to `passages`."""
    texts: dict[str, str] = {}
    labels: dict[str, dict[str, int]] = {}
    for where, (query, question, _, _, sentence, text, label) in table(path, _WIKIQA_HEADER):
        put_text(texts, where, query, question, "question")
        put_text(passages, where, sentence, text, "sentence")
        if label.strip() not in ("0", "1"):
            raise fault(where, "0 or 1 as Label", repr(label))
        put_new(labels.setdefault(query, {}), where, sentence, int(label), f"sentence of {query}")
    return tuple(
        Question(query, texts[query], make_pool(grades), grades) for query, grades in labels.items()
    )


def read_wikipassageqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read WikiPassageQA (Cohen et al. 2018); a pool is an article, an id "document_passage"."""
    file = require_file(folder / WIKI_PASSAGES, split)
    text = read_text(file)
    documents = None
    with suppress(ValueError, RecursionError):
        documents = json.loads(text)
    if not isinstance(documents, dict) or not all(map(_is_article, documents.values())):
        raise fault(file, _WIKI_FORM, quoted(text), AGAIN)
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
        pool = make_pool(f"{document}_{number}" for number in passages)
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
    """Read TrecQA (Wang et al. 2007) in the files of Yao et al. (2013).

    The variant ``clean`` is that of Rao et al. (2016).
    """
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
                questions.append(Question(id_, question, make_pool(grades), grades))
    return QuestionSet(f"TrecQA {variant or 'raw'}", split, tuple(questions), passages)


def _trecqa_questions(path: Path) -> dict[str, tuple[str, list[tuple[str, int]]]]:
    """Return id to a question and its labeled sentences.

    The files are no XML: `<num>` and `&` are words.
    """
    text = read_text(path)
    questions: dict[str, tuple[str, list[tuple[str, int]]]] = {}
    position = 0

    def where() -> str:
        return f"{path}:{text.count(chr(10), 0, position) + 1}"

    while position < len(text) or not questions:
        opening = _TRECQA_OPEN.match(text, position)
        if opening is None:
            raise fault(where(), "<QApairs id='...'>", quoted(text[position:]), AGAIN)
        question = []
        sentences = []
        opened = where()
        position = opening.end()
        while block := _TRECQA_BLOCK.match(text, position):
            words = " ".join(block[2].split())
            if block[1] == "question":
                question.append(words)
            else:
                sentences.append((words, int(block[1] == "positive")))
            position = block.end()
        closing = _TRECQA_CLOSE.match(text, position)
        if closing is None or len(question) != 1:
            expected = "one <question>, blocks of <positive> and <negative>, and </QApairs>"
            raise fault(where(), expected, quoted(text[position:]), AGAIN)
        put_new(questions, opened, opening[1], (question[0], sentences), "question")
        position = closing.end()
    return questions


def read_insuranceqa_1(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read InsuranceQA v1 (Feng et al. 2015); pools of training questions are their answers."""
    path = files_by_split(folder, QUESTIONS_1)[split]
    columns = ("question", "correct") if split == "train" else ("correct", "question", "pool")
    return _insuranceqa("InsuranceQA v1", split, folder / ANSWERS_1, path, columns)


def insuranceqa_2_splits(folder: Path) -> tuple[str, ...]:
    """Return the splits of version 2 that have a file; dev is called valid."""
    splits = {match[2] for match in _names_2(folder)}
    return tuple(split for split, official in _OFFICIAL_2.items() if official in splits)


def insuranceqa_2_variants(folder: Path) -> tuple[str, ...]:
    """Return the sizes of pools that have a file: 500 first, then ascending."""
    sizes = {match[1] for match in _names_2(folder)}
    return tuple(sorted(sizes, key=lambda size: (size != _USUAL_POOL, int(size))))


def read_insuranceqa_2(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read version 2; pools are hits of a search engine, and answers outside of them count."""
    size = variant or insuranceqa_2_variants(folder)[0]
    name = QUESTIONS_2.replace("*", size, 1).replace("*", _OFFICIAL_2[split])
    path = require_file(folder / name, split, insuranceqa_2_splits(folder))
    title = f"InsuranceQA v2, pools of {size}"
    columns = ("domain", "question", "correct", "pool")
    return _insuranceqa(title, split, folder / ANSWERS_2, path, columns)


def _names_2(folder: Path) -> list[re.Match[str]]:
    names = (path.name for path in matching_files(folder, QUESTIONS_2))
    return [match for match in map(_NAME_2.fullmatch, names) if match]


def _insuranceqa(
    name: str, split: str, answers_file: Path, path: Path, columns: tuple[str, ...]
) -> QuestionSet:
    """Read a file of questions with these columns; without a pool, the answers are the pool."""
    words: dict[str, str] = {}
    vocabulary = require_file(answers_file.with_name(VOCABULARY), split)
    for where, (index, word) in rows(vocabulary, ("index", "word")):
        put_new(words, where, index, word, "word")

    def text(where: str, indices: str) -> str:
        unknown = [index for index in indices.split() if index not in words]
        if unknown:
            raise fault(where, f"indices of words in the file {VOCABULARY}", repr(unknown[0]))
        return " ".join(words[index] for index in indices.split())

    answers: dict[str, str] = {}
    for where, (label, indices) in rows(require_file(answers_file, split), ("label", "answer")):
        put_new(answers, where, label, text(where, indices), "answer")
    questions = []
    for number, (where, cells) in enumerate(rows(path, columns), 1):
        values = dict(zip(columns, cells, strict=True))
        correct = values["correct"].split()
        pool = values.get("pool", values["correct"]).split()
        unknown = [label for label in (*correct, *pool) if label not in answers]
        if unknown or not correct or not pool:
            label_found = repr(unknown[0]) if unknown else "none"
            raise fault(where, "labels of answers separated by spaces", label_found)
        grades = dict.fromkeys(correct, 1)
        questions.append(
            Question(str(number), text(where, values["question"]), make_pool(pool), grades)
        )
    return QuestionSet(name, split, tuple(questions), answers)


def read_openqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Read Quasar-T or SearchQA of github.com/thunlp/OpenQA, with the passages of one split."""
    texts = require_file(folder / f"{split}.txt", split)
    lists = require_file(folder / f"{split}.json", split)
    questions = []
    passages: dict[str, str] = {}
    question_lines = json_lines(
        texts, _OPENQA_QUESTION, partial(has_texts, name="question", list_name="answers")
    )
    paragraph_lists = json_lines(lists, _OPENQA_PARAGRAPHS, _are_paragraphs)
    for number, lines in enumerate(zip_longest(question_lines, paragraph_lists), 1):
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
            pool = make_pool(grades)
            questions.append(Question(str(number), question["question"], pool, grades))
    name = folder.resolve().name
    return QuestionSet(name, split, tuple(questions), passages, answers_in_text=True)


def contains_answer(passage: str, answers: list[str]) -> bool:
    """Return whether a passage contains the words of an answer, as in SQuAD's evaluation."""
    words = f" {_normalize(passage)} "
    phrases = (_normalize(answer) for answer in answers)
    return any(phrase and f" {phrase} " in words for phrase in phrases)


def _normalize(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _are_paragraphs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(paragraph, dict) and are_texts(paragraph.get("document")) for paragraph in value
    )
