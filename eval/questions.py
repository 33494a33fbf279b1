"""A test collection made from a corpus alone: no person judges, and no language model writes.

A question is text that the corpus already has, taken out of what is searched afterwards: a title
asks for its document, a heading for its section's, a sentence for the rest of its document (the
inverse cloze task of Lee, Chang and Toutanova 2019) or, where a document is one sentence, for those
of the same title. Questions made of words of a passage are not among them: they rank systems that
match words first, also with most shared words cut out (docs/made-questions.md).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.datasets.question_set import Question, QuestionSet
from eval.progress import Notify, Progress, ignore, silent
from eval.settings import MadeQuestionSettings
from retriever.documents import Analyzer, Document, sentence_spans
from retriever.documents.document import OUTLINE_NAME
from retriever.documents.outline import outline_json
from retriever.documents.passages import taken_out
from retriever.errors import BadInputError
from retriever.files import check_output, whole_files
from retriever.search.collapse import earliest_copies, identifying_text
from retriever.training import Reservoir

FEW = 100
"""Fewer questions than this tell only great differences."""
_FILES = ("corpus.jsonl", "queries.test.jsonl", "qrels.test.tsv")
_FEWEST_DOCUMENTS = 20
# Words, without stop words, of a question, and of what is left to be found.
_WORDS = 2
_LEFT = 3
# Documents of one title, such as sentences of an article, for which it asks together.
_LARGEST_GROUP = 50
# About 128 word pieces; where no spaces are, a word counts for so many characters.
_PASSAGE_WORDS = 90
_WORD_CHARACTERS = 8
# Questions of one document at most; a document with so many passages for each has several.
_PASSES = 10
_PASSAGES_EACH = 4
_QUESTION_MARKS = "?？؟"
# What no line of judgments can hold in an id.
_UNWRITABLE = frozenset("\t\n\r")


class _Draft(NamedTuple):
    """A question, the documents that answer it as they are searched, and the one that goes."""

    text: str
    changed: tuple[Document, ...]
    gone: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MadeQuestions:
    """A test collection that `make_questions` made.

    Attributes:
        documents: the corpus to search, without the text that became questions.
        questions: with the ids and grades (1) of the documents that answer them; no pools.
        kinds: question id to kind.
        remarks: sentences on what was found, and how far it can be trusted.
    """

    settings: MadeQuestionSettings
    documents: tuple[Document, ...]
    questions: QuestionSet
    kinds: Mapping[str, str]
    remarks: tuple[str, ...]

    @property
    def queries(self) -> dict[str, str]:
        """Question id to text."""
        return {one.id: one.text for one in self.questions.questions}

    @property
    def qrels(self) -> dict[str, dict[str, int]]:
        """Question id to document id to grade."""
        return {one.id: dict(one.grades) for one in self.questions.questions}

    def write(self, folder: Path) -> list[Path]:
        """Write corpus, queries and judgments as a question set with the split test."""
        check_question_folder(folder)
        folder.mkdir(exist_ok=True)
        queries = [
            {"id": one.id, "text": one.text, "kind": self.kinds[one.id]}
            for one in self.questions.questions
        ]
        # Columns below this header are between tabs, so that ids may hold spaces.
        qrels = ["query-id\tcorpus-id\tscore"] + [
            f"{query}\t{id_}\t{grade}"
            for query, grades in self.qrels.items()
            for id_, grade in grades.items()
        ]
        files = [folder / name for name in _FILES]
        contents = _json_lines(map(_record, self.documents)), _json_lines(queries), qrels
        with whole_files(*files) as new:
            for path, lines in zip(new, contents, strict=True):
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.writelines(f"{line}\n" for line in lines)
        return files

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "seed": self.settings.seed,
            "documents": len(self.documents),
            "questions": len(self.questions),
            "kinds": dict(Counter(self.kinds.values())),
            "remarks": list(self.remarks),
        }

    def text(self) -> str:
        """A line for the collection, and the remarks."""
        made = f"{len(self.questions):,} questions on {len(self.documents):,} documents"
        return "\n".join([made, *self.remarks])


def check_question_folder(folder: Path) -> None:
    """Refuse a folder that made questions cannot be written to."""
    check_output(folder, "no other", min)


def make_questions(
    documents: Iterable[Document],
    settings: MadeQuestionSettings | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> MadeQuestions:
    """Make questions on a corpus, which is read once; the same for the same seed and documents.

    Of a corpus with more than `settings.documents` so many are drawn, and are the corpus then.
    Near-copies are left out. A document is changed for one question; where the corpus is small, a
    long one for up to ten. `notify` gets the remarks that are warnings.

    Raises:
        BadInputError: there are fewer than 20 documents, or none makes a question.
    """
    settings = settings or MadeQuestionSettings()
    done = progress("reading documents", None)
    drawn = Reservoir[tuple[int, Document]](settings.documents, settings.seed)
    for number, document in enumerate(documents):
        drawn.add((number, document))
        done(1)
    if drawn.seen < _FEWEST_DOCUMENTS:
        raise BadInputError(
            f"questions: expected a corpus of at least {_FEWEST_DOCUMENTS} documents, found "
            f"{drawn.seen}; name a larger one, or one whose records are shorter"
        )
    making = _Making([document for _, document in sorted(drawn.items)], settings)
    making.draw(progress("making questions", settings.questions))
    return making.made(drawn.seen, notify)


class _Making:
    """A corpus without near-copies, what is looked up in it, and the questions on it so far."""

    def __init__(self, documents: Sequence[Document], settings: MadeQuestionSettings) -> None:
        self._settings = settings
        self._chance = np.random.default_rng(settings.seed)
        self._analyzer = Analyzer()
        self._documents: dict[str, Document] = {}
        self._groups: dict[str, list[str]] = defaultdict(list)
        self._headings = Counter[str]()
        texts = [identifying_text(document.title, document.text) for document in documents]
        earliest = earliest_copies(texts)
        for place, one in zip(earliest, documents, strict=True):
            if one is not documents[place]:
                continue
            self._documents[one.id] = one
            if title := _plain(one.title).casefold():
                self._groups[title].append(one.id)
            self._headings.update(_plain(mark.label).casefold() for mark in one.outline)
        self._drafts: list[tuple[str, _Draft]] = []
        self._used = set[str]()
        self._asked = set[str]()

    def draw(self, done: Callable[[int], object]) -> None:
        """Make the questions."""
        counts = dict.fromkeys(self._settings.kinds, 0)
        ids = list(self._documents)
        # Long documents that made a question of their own make more where there are few.
        for turn in range(1, _PASSES + 1):
            self._used = set()
            took = []
            for row in self._chance.permutation(len(ids)):
                # The kind with the fewest questions first, so that rare kinds have what there is.
                for kind in sorted(counts, key=counts.__getitem__):
                    if len(self._drafts) == self._settings.questions:
                        break
                    if self._take(kind, self._documents[ids[row]]):
                        counts[kind] += 1
                        took.append(ids[row])
                        done(1)
                        break
            alone = {one.changed[0].id for _, one in self._drafts if len(one.changed) == 1}
            fewest = turn * _PASSAGES_EACH
            ids = [
                one
                for one in took
                if one in alone and len(list(sentence_runs(self._documents[one].text))) > fewest
            ]
        if not self._drafts:
            raise BadInputError(
                "questions: expected documents with titles, headings or several sentences, found "
                f"none among {len(self._documents):,}; name another corpus, or judge questions"
            )

    def _take(self, kind: str, document: Document) -> bool:
        """Keep the question that a document makes, if there is one and nothing is in its way."""
        draft: _Draft | None = getattr(self, f"by_{kind}")(document)
        if draft is None:
            return False
        ids = {one.id for one in draft.changed} | ({draft.gone} - {""})
        asked = draft.text.casefold()
        if (
            len(self._analyzer.tokens(draft.text)) < (1 if kind == "title" else _WORDS)
            or not self._used.isdisjoint(ids)
            or asked in self._asked
            or not _UNWRITABLE.isdisjoint("".join(ids))
            or all(len(self._analyzer.tokens(one.text)) < _LEFT for one in draft.changed)
        ):
            return False
        self._used |= ids
        self._asked.add(asked)
        self._drafts.append((kind, draft))
        self._documents |= {one.id: one for one in draft.changed}
        return True

    def _one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._chance.integers(len(choices)))]

    def by_title(self, document: Document) -> _Draft | None:
        """A title asks for all documents that have it, if each has a text beside it."""
        title = _plain(document.title)
        group = self._groups[title.casefold()]
        if not 0 < len(group) <= _LARGEST_GROUP:
            return None
        # A document that is its title alone would have nothing left to be found by.
        if not all(any(map(str.isalnum, self._documents[id_].text)) for id_ in group):
            return None
        return _Draft(title, tuple(replace(self._documents[one], title=None) for one in group))

    def by_heading(self, document: Document) -> _Draft | None:
        """A heading that no other section has asks for its document."""
        title = _plain(document.title).casefold()
        marks = [
            mark
            for mark in document.outline
            if mark.level
            and self._headings[label := _plain(mark.label).casefold()] == 1
            and label != title
        ]
        if not marks:
            return None
        mark = self._one(marks)
        stop = document.text.find("\n", mark.offset)
        outline = tuple(one for one in document.outline if one != mark)
        span = mark.offset, len(document.text) if stop < 0 else stop
        return _Draft(_plain(mark.label), (_without(replace(document, outline=outline), span),))

    def by_sentence(self, document: Document) -> _Draft | None:
        """A sentence, best a question, asks for the rest of its document or for its namesakes."""
        if runs := [run for run in sentence_runs(document.text) if len(run) > 1]:
            run = self._one(runs)
            asked = [one for one in run[:-1] if document.text[one[1] - 1] in _QUESTION_MARKS]
            span = self._one(asked or run)
            sentence, _ = taken_out(document.text, span)
            return _Draft(_plain(sentence), (_without(document, span),))
        group = self._groups.get(_plain(document.title).casefold(), [])
        if not _LEFT <= len(group) <= _LARGEST_GROUP:
            return None
        others = tuple(self._documents[one] for one in group if one != document.id)
        return _Draft(_plain(document.text), others, document.id)

    def made(self, seen: int, notify: Notify) -> MadeQuestions:
        """The result; `seen` documents were read."""
        kinds = dict[str, str]()
        questions = list[Question]()
        found = dict(self._documents)
        for number, (kind, draft) in enumerate(self._drafts, 1):
            kinds[f"{kind}-{number}"] = kind
            grades = {one.id: 1 for one in draft.changed}
            questions.append(Question(f"{kind}-{number}", draft.text, (), grades))
            found.pop(draft.gone, None)
        remarks = list(self._remarks(Counter(kinds.values()), seen))
        if len(questions) < FEW:
            remarks.append(
                f"warning: {len(questions)} questions tell only great differences; {FEW} or more "
                "need a larger corpus"
            )
            notify(remarks[-1])
        made = QuestionSet("made questions", "test", tuple(questions), {})
        documents = tuple(found.values())
        return MadeQuestions(self._settings, documents, made, kinds, tuple(remarks))

    def _remarks(self, counts: Counter[str], seen: int) -> Iterator[str]:
        yield (
            f"{', '.join(f'{kind} {count:,}' for kind, count in counts.items())}: such "
            "questions rank systems as people's do with a tau of 0.2 to 0.9 on eight corpora "
            "(docs/made-questions.md); what people ask may differ"
        )
        taken = min(seen, self._settings.documents)
        if taken < seen:
            yield f"the corpus is a sample of {taken:,} of {seen:,} documents"
        if taken > len(self._documents):
            yield f"{taken - len(self._documents):,} near-copies of others are left out"


def _without(document: Document, span: tuple[int, int]) -> Document:
    """A document without the characters in a span; its outline moves along."""
    start, stop = span
    outline = tuple(
        mark._replace(offset=mark.offset - max(0, min(stop, mark.offset) - start))
        for mark in document.outline
    )
    return replace(document, text=taken_out(document.text, span)[1], outline=outline)


def _plain(text: str | None) -> str:
    """A title, heading or sentence as a question: one line, with spaces for underscores."""
    return " ".join((text or "").replace("_", " ").split())


def _record(document: Document) -> dict[str, Any]:
    record: dict[str, Any] = {**document.metadata, "id": document.id, "text": document.text}
    if document.title:
        record["title"] = document.title
    if document.outline:
        record[OUTLINE_NAME] = json.loads(outline_json(document.outline))
    return record


def _json_lines(values: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (json.dumps(one, ensure_ascii=False) for one in values)


def sentence_runs(text: str) -> Iterator[list[tuple[int, int]]]:
    """Spans of sentences by passage of at most `_PASSAGE_WORDS`, unless the first one is longer."""
    passage: list[tuple[int, int]] = []
    words = 0
    for start, stop in sentence_spans(text):
        size = max(len(text[start:stop].split()), (stop - start) // _WORD_CHARACTERS)
        if len(passage) > 1 and words + size > _PASSAGE_WORDS:
            yield passage
            passage = []
            words = 0
        passage.append((start, stop))
        words += size
    if passage:
        yield passage
