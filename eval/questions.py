"""A test collection made from a corpus, without judges and without a language model.

A question is text of the corpus, which is removed from the documents to search. A title asks for
its document, a heading for the document of its section, and a sentence for the rest of its document
(the inverse cloze task of Lee, Chang and Toutanova 2019). Where a document is one sentence, it asks
for the other documents of its title. There are no questions of words from a passage: they favor
systems that match words, even with most shared words removed (docs/measurements/made-questions.md).
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
from retriever.documents.passages import extract_spans
from retriever.errors import BadInputError
from retriever.files import check_output, whole_files
from retriever.search.collapse import earliest_copies, identifying_text
from retriever.training import Reservoir

FEW = 100
"""Fewer questions than this show only great differences."""
_FILES = ("corpus.jsonl", "queries.test.jsonl", "qrels.test.tsv")
_FEWEST_DOCUMENTS = 20
# Minimum number of words, without stop words, of a question and of a document that answers it.
_WORDS = 2
_LEFT = 3
# Maximum number of documents of one title, such as sentences of an article, for a question.
_LARGEST_GROUP = 50
# About 128 word pieces. In text without spaces, so many characters count as a word.
_PASSAGE_WORDS = 90
_WORD_CHARACTERS = 8
# Maximum number of questions of a document, and passages that it needs for each further one.
_PASSES = 10
_PASSAGES_EACH = 4
_QUESTION_MARKS = "?？؟"
# Characters that an id in a line of judgments cannot have.
_UNWRITABLE = frozenset("\t\n\r")


class _Draft(NamedTuple):
    """A question, its answers as they are searched, and the id of a document to remove."""

    text: str
    changed: tuple[Document, ...]
    removed_id: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MadeQuestions:
    """A test collection that `make_questions` made.

    Attributes:
        settings: the settings of `make_questions`.
        documents: the corpus to search, without the text that became questions.
        questions: questions with the ids of their answers, each of grade 1; no pools.
        kinds: question id to kind.
        remarks: sentences on the questions, and how far they can be trusted.
    """

    settings: MadeQuestionSettings
    documents: tuple[Document, ...]
    questions: QuestionSet
    kinds: Mapping[str, str]
    remarks: tuple[str, ...]

    @property
    def queries(self) -> dict[str, str]:
        """Map question id to text."""
        return {question.id: question.text for question in self.questions.questions}

    @property
    def qrels(self) -> dict[str, dict[str, int]]:
        """Map question id to document id to grade."""
        return {question.id: dict(question.grades) for question in self.questions.questions}

    def write(self, folder: Path) -> list[Path]:
        """Write corpus, queries and judgments as a question set with the split test."""
        check_question_folder(folder)
        folder.mkdir(exist_ok=True)
        queries = [
            {"id": question.id, "text": question.text, "kind": self.kinds[question.id]}
            for question in self.questions.questions
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
        """Return the result as JSON values."""
        return {
            "seed": self.settings.seed,
            "documents": len(self.documents),
            "questions": len(self.questions),
            "kinds": dict(Counter(self.kinds.values())),
            "remarks": list(self.remarks),
        }

    def text(self) -> str:
        """Return a line for the collection, and the remarks."""
        summary = f"{len(self.questions):,} questions on {len(self.documents):,} documents"
        return "\n".join([summary, *self.remarks])


def check_question_folder(folder: Path) -> None:
    """Refuse a folder that made questions cannot be written to."""
    check_output(folder, "no other", min)


def make_questions(
    documents: Iterable[Document],
    settings: MadeQuestionSettings | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> MadeQuestions:
    """Make questions from a corpus, which is read once.

    Equal seeds and documents give equal questions. A corpus with more than `settings.documents` is
    sampled. Near-copies are left out. A document makes one question; in a small corpus a long
    document makes up to ten. `notify` gets the remarks that are warnings.

    Raises:
        BadInputError: there are fewer than 20 documents, or none makes a question.
    """
    settings = settings or MadeQuestionSettings()
    done = progress("reading documents", None)
    sample = Reservoir[tuple[int, Document]](settings.documents, settings.seed)
    for number, document in enumerate(documents):
        sample.add((number, document))
        done(1)
    if sample.seen < _FEWEST_DOCUMENTS:
        raise BadInputError(
            f"questions: expected a corpus of at least {_FEWEST_DOCUMENTS} documents, found "
            f"{sample.seen}; name a larger one, or one whose records are shorter"
        )
    maker = _QuestionMaker([document for _, document in sorted(sample.items)], settings)
    maker.draw(progress("making questions", settings.questions))
    return maker.finish(sample.seen, notify)


class _QuestionMaker:
    """Makes questions from a corpus without near-copies."""

    def __init__(self, documents: Sequence[Document], settings: MadeQuestionSettings) -> None:
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._analyzer = Analyzer()
        self._documents: dict[str, Document] = {}
        self._groups: dict[str, list[str]] = defaultdict(list)
        self._headings = Counter[str]()
        texts = [identifying_text(document.title, document.text) for document in documents]
        earliest = earliest_copies(texts)
        for position, document in zip(earliest, documents, strict=True):
            if document is not documents[position]:
                continue
            self._documents[document.id] = document
            if title := _plain(document.title).casefold():
                self._groups[title].append(document.id)
            self._headings.update(_plain(mark.label).casefold() for mark in document.outline)
        self._drafts: list[tuple[str, _Draft]] = []
        self._used_ids = set[str]()
        self._question_texts = set[str]()

    def draw(self, done: Callable[[int], object]) -> None:
        """Draw documents and make questions from them."""
        counts = dict.fromkeys(self._settings.kinds, 0)
        ids = list(self._documents)
        # In a small corpus, long documents that answer a question alone make further ones.
        for turn in range(1, _PASSES + 1):
            self._used_ids = set()
            ids_used = []
            for row in self._random.permutation(len(ids)):
                # The kind with the fewest questions comes first, so that rare kinds get theirs.
                for kind in sorted(counts, key=counts.__getitem__):
                    if len(self._drafts) == self._settings.questions:
                        break
                    if self._accept_question(kind, self._documents[ids[row]]):
                        counts[kind] += 1
                        ids_used.append(ids[row])
                        done(1)
                        break
            own_ids = {draft.changed[0].id for _, draft in self._drafts if len(draft.changed) == 1}
            fewest = turn * _PASSAGES_EACH
            ids = [
                id_
                for id_ in ids_used
                if id_ in own_ids and len(list(sentence_runs(self._documents[id_].text))) > fewest
            ]
        if not self._drafts:
            raise BadInputError(
                "questions: expected documents with titles, headings or several sentences, found "
                f"none among {len(self._documents):,}; name another corpus, or judge questions"
            )

    def _accept_question(self, kind: str, document: Document) -> bool:
        """Add the question that a document makes; return whether there is an acceptable one."""
        draft: _Draft | None = getattr(self, f"by_{kind}")(document)
        if draft is None:
            return False
        ids = {changed.id for changed in draft.changed} | ({draft.removed_id} - {""})
        folded = draft.text.casefold()
        if (
            len(self._analyzer.tokens(draft.text)) < (1 if kind == "title" else _WORDS)
            or not self._used_ids.isdisjoint(ids)
            or folded in self._question_texts
            or not _UNWRITABLE.isdisjoint("".join(ids))
            or all(len(self._analyzer.tokens(changed.text)) < _LEFT for changed in draft.changed)
        ):
            return False
        self._used_ids |= ids
        self._question_texts.add(folded)
        self._drafts.append((kind, draft))
        self._documents |= {changed.id: changed for changed in draft.changed}
        return True

    def _choose(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def by_title(self, document: Document) -> _Draft | None:
        """Ask by a title for all documents that have it, if each has a text beside it."""
        title = _plain(document.title)
        group = self._groups[title.casefold()]
        if not 0 < len(group) <= _LARGEST_GROUP:
            return None
        # A document without a text would be empty without its title.
        if not all(any(map(str.isalnum, self._documents[id_].text)) for id_ in group):
            return None
        return _Draft(title, tuple(replace(self._documents[id_], title=None) for id_ in group))

    def by_heading(self, document: Document) -> _Draft | None:
        """Ask by a heading that no other section has for its document."""
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
        mark = self._choose(marks)
        stop = document.text.find("\n", mark.offset)
        outline = tuple(other for other in document.outline if other != mark)
        span = mark.offset, len(document.text) if stop < 0 else stop
        return _Draft(_plain(mark.label), (_cut_span(replace(document, outline=outline), span),))

    def by_sentence(self, document: Document) -> _Draft | None:
        """Ask by a sentence for the rest of its document, or for documents of the same title.

        Sentences that are questions are preferred.
        """
        if runs := [run for run in sentence_runs(document.text) if len(run) > 1]:
            run = self._choose(runs)
            questions = [span for span in run[:-1] if document.text[span[1] - 1] in _QUESTION_MARKS]
            span = self._choose(questions or run)
            sentence, _ = extract_spans(document.text, span)
            return _Draft(_plain(sentence), (_cut_span(document, span),))
        group = self._groups.get(_plain(document.title).casefold(), [])
        if not _LEFT <= len(group) <= _LARGEST_GROUP:
            return None
        answers = tuple(self._documents[id_] for id_ in group if id_ != document.id)
        return _Draft(_plain(document.text), answers, document.id)

    def finish(self, seen: int, notify: Notify) -> MadeQuestions:
        """Return the questions; `seen` documents were read."""
        kinds = dict[str, str]()
        questions = list[Question]()
        searched = dict(self._documents)
        for number, (kind, draft) in enumerate(self._drafts, 1):
            kinds[f"{kind}-{number}"] = kind
            grades = {document.id: 1 for document in draft.changed}
            questions.append(Question(f"{kind}-{number}", draft.text, (), grades))
            searched.pop(draft.removed_id, None)
        remarks = list(self._remarks(Counter(kinds.values()), seen))
        if len(questions) < FEW:
            remarks.append(
                f"warning: {len(questions)} questions tell only great differences; {FEW} or more "
                "need a larger corpus"
            )
            notify(remarks[-1])
        question_set = QuestionSet("made questions", "test", tuple(questions), {})
        documents = tuple(searched.values())
        return MadeQuestions(self._settings, documents, question_set, kinds, tuple(remarks))

    def _remarks(self, counts: Counter[str], seen: int) -> Iterator[str]:
        yield (
            f"{', '.join(f'{kind} {count:,}' for kind, count in counts.items())}: such "
            "questions rank systems as people's do with a tau of 0.2 to 0.9 on eight corpora "
            "(docs/how-to/make-questions.md); what people ask may differ"
        )
        sampled = min(seen, self._settings.documents)
        if sampled < seen:
            yield f"the corpus is a sample of {sampled:,} of {seen:,} documents"
        if sampled > len(self._documents):
            yield f"{sampled - len(self._documents):,} near-copies of others are left out"


def _cut_span(document: Document, span: tuple[int, int]) -> Document:
    """Remove the characters in a span from a document, and move its outline."""
    start, stop = span
    outline = tuple(
        mark._replace(offset=mark.offset - max(0, min(stop, mark.offset) - start))
        for mark in document.outline
    )
    return replace(document, text=extract_spans(document.text, span)[1], outline=outline)


def _plain(text: str | None) -> str:
    """Return a title, heading or sentence as one line, with spaces for underscores."""
    return " ".join((text or "").replace("_", " ").split())


def _record(document: Document) -> dict[str, Any]:
    record: dict[str, Any] = {**document.metadata, "id": document.id, "text": document.text}
    if document.title:
        record["title"] = document.title
    if document.outline:
        record[OUTLINE_NAME] = json.loads(outline_json(document.outline))
    return record


def _json_lines(values: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (json.dumps(value, ensure_ascii=False) for value in values)


def sentence_runs(text: str) -> Iterator[list[tuple[int, int]]]:
    """Yield the spans of sentences of each passage.

    A passage has at most `_PASSAGE_WORDS`, or one longer sentence.
    """
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
