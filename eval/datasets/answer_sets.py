"""Sets of questions with a pool of answers for each, in the files in which they are published.

Each reader takes a folder, one of its splits, and one of its variants or None.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeGuard

from eval.datasets.files import (
    existing,
    json_lines,
    json_of,
    matching,
    numbered_lines,
    pool_of,
    put_new,
    put_text,
    required,
    rows,
    rows_by_id,
    table,
    unexpected,
)
from eval.datasets.question_set import Question, QuestionSet
from retriever.errors import SourceError

WIKIQA = {split: f"WikiQA-{split}.tsv" for split in ("train", "dev", "test")}
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
WIKI_QUESTIONS = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
_WIKI_HEADER = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")
_WIKI_FORM = 'one JSON object {"document": {"passage": "text"}}'

TRECQA = {
    "train": ("train-less-than-40.manual-edit.xml", "TRAIN.xml"),
    "train-all": ("train2393.cleanup.xml", "TRAIN-ALL.xml"),
    "dev": ("dev-less-than-40.manual-edit.xml", "DEV.xml"),
    "test": ("test-less-than-40.manual-edit.xml", "TEST.xml"),
}
_TRECQA_OPEN = re.compile(r"<QApairs id='([^']*)'>")
_TRECQA_LABELS = {"<positive>": 1, "<negative>": 0}

VOCABULARY = "vocabulary"
ANSWERS_1 = "answers.label.token_idx"
QUESTIONS_1 = {
    "train": "question.train.token_idx.label",
    **{split: f"question.{split}.label.token_idx.pool" for split in ("dev", "test1", "test2")},
}
ANSWERS_2 = "InsuranceQA.label2answer.token.encoded"
QUESTIONS_2 = "InsuranceQA.question.anslabel.token.*.pool.solr.*.encoded"
_NAME_2 = re.compile(
    r"InsuranceQA\.question\.anslabel\.token\.([0-9]+)\.pool\.solr\.([a-z]+)\.encoded(?:\.gz)?"
)
_OFFICIAL_2 = {"train": "train", "dev": "valid", "test": "test"}
_USUAL_POOL = "500"

_OPENQA_QUESTION = '{"question": "...", "answers": ["...", ...]}'
_OPENQA_PARAGRAPHS = '[{"question": [...], "document": ["...", ...]}, ...]'
_OPENQA_TITLES = {"quasart": "Quasar-T", "searchqa": "SearchQA"}
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def splits_with_files(folder: Path, files: Mapping[str, str | Sequence[str]]) -> tuple[str, ...]:
    """The splits that have a file; `files` names it, or several that it may be called."""
    return tuple(split for split, names in files.items() if _file_of(folder, names))


def _file_of(folder: Path, names: str | Sequence[str]) -> Path | None:
    alternatives = [names] if isinstance(names, str) else names
    return next(filter(None, (existing(folder / name) for name in alternatives)), None)


def read_wikiqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """`WikiQA-SPLIT.tsv` of Yang et al. (2015); `passages` are of all splits that are there."""
    passages: dict[str, str] = {}
    questions = {
        part: _wikiqa_questions(required(folder / WIKIQA[part], part), passages)
        for part in splits_with_files(folder, WIKIQA)
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
            raise SourceError(
                f"{where}: expected 0 or 1 as Label, found {label!r}; correct the line"
            )
        grades = labels.setdefault(query, {})
        if sentence in grades:
            raise SourceError(
                f"{where}: expected each sentence once for a question, found {sentence} again for "
                f"{query}; remove one of the lines"
            )
        grades[sentence] = int(label)
    return tuple(
        Question(query, texts[query], pool_of(grades), grades) for query, grades in labels.items()
    )


def read_wikipassageqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """WikiPassageQA (Cohen et al. 2018); a pool is an article, an id "document_passage"."""
    documents = _wiki_documents(required(folder / WIKI_PASSAGES, split))
    path = required(folder / WIKI_QUESTIONS[split], split)
    questions = []
    places: dict[str, str] = {}
    for where, (id_, text, document, _, relevant) in table(path, _WIKI_HEADER):
        put_new(places, where, id_, "question")
        if document not in documents:
            raise SourceError(
                f"{where}: expected a document of {WIKI_PASSAGES}, found {document!r}; correct the "
                "line"
            )
        passages = documents[document]
        grades = {}
        for number in filter(None, (part.strip() for part in relevant.split(","))):
            if number not in passages:
                raise SourceError(
                    f"{where}: expected passages of document {document} separated by commas, found "
                    f"{number!r}; correct the line"
                )
            grades[f"{document}_{number}"] = 1
        pool = pool_of(f"{document}_{number}" for number in passages)
        questions.append(Question(id_, text, pool, grades))
    texts = {
        f"{document}_{number}": text
        for document, passages in documents.items()
        for number, text in passages.items()
    }
    return QuestionSet("WikiPassageQA", split, tuple(questions), texts)


def _wiki_documents(path: Path) -> dict[str, dict[str, str]]:
    value: Any = json_of(path, _WIKI_FORM)
    if not isinstance(value, dict):
        found = type(value).__name__
        raise SourceError(f"{path}: expected {_WIKI_FORM}, found a {found}; download it again")
    for document, passages in value.items():
        if (
            not isinstance(passages, dict)
            or not passages
            or not all(isinstance(text, str) for text in passages.values())
        ):
            raise SourceError(
                f"{path}: expected {_WIKI_FORM}, found another value for document {document!r}; "
                "correct it"
            )
    return value


def read_trecqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """TrecQA (Wang et al. 2007), in the files of Yao et al. (2013).

    The variant clean has only questions with both relevant and other sentences (Rao et al. 2016).
    The id of a sentence is "split-question-n"; `passages` are the sentences of all splits.
    """
    questions = []
    passages: dict[str, str] = {}
    for part in splits_with_files(folder, TRECQA):
        path = _file_of(folder, TRECQA[part])
        assert path is not None
        for id_, question, sentences in _trecqa_questions(path):
            grades = {}
            for number, (text, label) in enumerate(sentences):
                passages[f"{part}-{id_}-{number}"] = text
                grades[f"{part}-{id_}-{number}"] = label
            has_both = len(set(grades.values())) == 2
            if part == split and grades and (has_both or variant != "clean"):
                questions.append(Question(id_, question, pool_of(grades), grades))
    return QuestionSet(f"TrecQA {variant or 'raw'}", split, tuple(questions), passages)


def _trecqa_questions(path: Path) -> Iterator[tuple[str, str, list[tuple[str, int]]]]:
    """Id and text of each question, and its sentences with their labels.

    The files look like XML but are none: each tag has its own line, and `<num>` and `&` are words.
    """
    places: dict[str, str] = {}
    lines = numbered_lines(path)
    for opened, opening in lines:
        match = _TRECQA_OPEN.fullmatch(opening.strip())
        if match is None:
            raise unexpected(opened, "<QApairs id='...'>", opening)
        put_new(places, opened, match[1], "question")
        question = None
        sentences: list[tuple[str, int]] = []
        for where, line in lines:
            tag = line.strip()
            if tag in _TRECQA_LABELS:
                sentences.append((_trecqa_words(where, tag, lines), _TRECQA_LABELS[tag]))
            elif tag == "<question>" and question is None:
                question = _trecqa_words(where, tag, lines)
            elif tag != "</QApairs>":
                raise unexpected(where, "</QApairs>, <question>, <positive> or <negative>", line)
            elif question is None:
                raise unexpected(where, f"a <question> for {match[1]}", line)
            else:
                yield match[1], question, sentences
                break
        else:
            raise _unclosed(opened, "</QApairs>", "question")
    if not places:
        raise SourceError(
            f"{path}: expected <QApairs id='...'>, found an empty file; download it again"
        )


def _trecqa_words(opened: str, tag: str, lines: Iterator[tuple[str, str]]) -> str:
    """The first line of a block, whose other lines are annotation."""
    closing = f"</{tag[1:]}"
    block: list[str] = []
    for where, line in lines:
        if line.strip() == closing:
            if not block:
                raise unexpected(where, f"words after {tag}", line)
            return " ".join(block[0].split())
        if line.startswith("</QApairs"):
            raise unexpected(where, closing, line)
        block.append(line)
    raise _unclosed(opened, closing, "block")


def _unclosed(opened: str, closing: str, kind: str) -> SourceError:
    return SourceError(
        f"{opened}: expected {closing} for this {kind}, found the end of the file; download it "
        "again"
    )


def read_insuranceqa_1(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Version 1 of InsuranceQA (Feng et al. 2015, github.com/shuzi/insuranceQA).

    A question's id is the number of its line, from 1; an answer's is its label. Training questions
    come without pools: their candidates are their answers, and training has to draw others.
    """
    columns: tuple[str, ...] = ("question", "ground truth")
    if split != "train":
        columns = ("ground truth", "question", "pool")
    path = required(folder / QUESTIONS_1[split], split)
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
    columns = ("domain", "question", "ground truth", "pool")
    title = f"InsuranceQA v2, pools of {size}"
    return _insuranceqa(title, split, folder / ANSWERS_2, path, columns)


def _names_2(folder: Path) -> list[re.Match[str]]:
    names = (path.name for path in matching(folder, QUESTIONS_2))
    return [match for match in map(_NAME_2.fullmatch, names) if match]


def _insuranceqa(
    name: str, split: str, answers_file: Path, path: Path, columns: tuple[str, ...]
) -> QuestionSet:
    """The set of a file of questions with these columns; without a pool, their answers are it."""
    vocabulary = required(answers_file.with_name(VOCABULARY), split)
    words = {index: word for _, (index, word) in rows_by_id(vocabulary, ("index", "word"), "word")}

    def text(where: str, indices: str) -> str:
        try:
            return " ".join(words[index] for index in indices.split())
        except KeyError as error:
            raise SourceError(
                f"{where}: expected indices of words in the file {VOCABULARY}, found "
                f"{error.args[0]!r}; correct the line, or take both files from one version"
            ) from error

    labeled = rows_by_id(required(answers_file, split), ("label", "answer"), "answer")
    answers = {label: text(where, indices) for where, (label, indices) in labeled}
    questions = []
    for number, (where, cells) in enumerate(rows(path, columns), 1):
        values = dict(zip(columns, cells, strict=True))
        correct = values["ground truth"].split()
        pool = values.get("pool", values["ground truth"]).split()
        unknown = [label for label in (*correct, *pool) if label not in answers]
        if unknown or not correct or not pool:
            raise SourceError(
                f"{where}: expected labels of answers separated by spaces, found "
                f"{repr(unknown[0]) if unknown else 'none'}; correct the line"
            )
        question = text(where, values["question"])
        grades = dict.fromkeys(correct, 1)
        questions.append(Question(str(number), question, pool_of(pool), grades))
    return QuestionSet(name, split, tuple(questions), answers)


def read_openqa(folder: Path, split: str, variant: str | None) -> QuestionSet:
    """Quasar-T and SearchQA, as github.com/thunlp/OpenQA prepares them.

    A paragraph is relevant if it contains the words of an answer in a row (Ma et al. 2019, Sec. 3).
    Ids are numbers of lines, and "question-paragraph"; questions without paragraphs are left out.
    `passages` are those of the split alone: the training file of Quasar-T has millions.
    """
    texts = required(folder / f"{split}.txt", split)
    lists = required(folder / f"{split}.json", split)
    questions = []
    passages: dict[str, str] = {}
    pairs = zip_longest(json_lines(texts, _OPENQA_QUESTION), json_lines(lists, _OPENQA_PARAGRAPHS))
    for number, (asked, found) in enumerate(pairs, 1):
        if asked is None or found is None:
            short, longer = (texts, lists) if asked is None else (lists, texts)
            raise SourceError(
                f"{short}: expected a line for each of {longer.name}, found {number - 1}; download "
                "both again"
            )
        text, answers = _openqa_question(*asked)
        grades = {}
        for rank, paragraph in enumerate(_openqa_paragraphs(*found), 1):
            id_ = f"{number}-{rank}"
            passages[id_] = paragraph
            grades[id_] = int(contains_answer(paragraph, answers))
        if grades:
            questions.append(Question(str(number), text, pool_of(grades), grades))
    plain = re.sub("[^a-z]", "", folder.resolve().name.lower())
    name = _OPENQA_TITLES.get(plain, folder.resolve().name)
    return QuestionSet(name, split, tuple(questions), passages, answers_in_text=True)


def contains_answer(passage: str, answers: list[str]) -> bool:
    """Whether the words of an answer are in a passage, in a row, as in SQuAD's evaluation."""
    words = f" {_normalized(passage)} "
    phrases = (_normalized(answer) for answer in answers)
    return any(phrase and f" {phrase} " in words for phrase in phrases)


def _normalized(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _openqa_question(where: str, value: Any) -> tuple[str, list[str]]:
    text = value.get("question") if isinstance(value, dict) else None
    answers = value.get("answers") if isinstance(value, dict) else None
    if not isinstance(text, str) or not _are_texts(answers):
        raise unexpected(where, _OPENQA_QUESTION, value)
    return text, answers


def _openqa_paragraphs(where: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise unexpected(where, _OPENQA_PARAGRAPHS, value)
    texts = []
    for paragraph in value:
        tokens = paragraph.get("document") if isinstance(paragraph, dict) else None
        if not _are_texts(tokens):
            raise unexpected(where, _OPENQA_PARAGRAPHS, paragraph)
        texts.append(" ".join(tokens))
    return texts


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
