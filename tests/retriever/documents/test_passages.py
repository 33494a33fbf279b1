"""Splitting long texts: nothing lost, nothing too long, cut where sentences end."""

from __future__ import annotations

import itertools
import re
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import (
    CorpusReader,
    Document,
    PassageSettings,
    cut_document,
    passage_text,
)
from retriever.documents.outline import Mark
from retriever.documents.passages import EARLIER, _after_blank_lines, split_passages

QUOTED = "“Is it running?” asked one. (Nobody knew, Mrs. Holt!) She went on… ‘Yes.’ " * 8

WORDS = st.text(st.sampled_from("abé狐3"), min_size=1, max_size=9)
SEPARATORS = st.sampled_from([" ", " ", " ", ". ", "! ", "?” ", "\n", "\n\n", "\n- ", "。", ", "])


@st.composite
def cut_texts(draw):
    """A text and offsets of pieces as a tokenizer gives them: runs of letters, and other signs."""
    text = draw(st.sampled_from(["", " ", "\n"]))
    offsets = []
    for word in draw(st.lists(WORDS, max_size=60)):
        start = len(text)
        text += word
        while start < len(text):
            stop = min(len(text), start + draw(st.integers(1, 4)))
            offsets.append((start, stop))
            start = stop
        for character in draw(SEPARATORS):
            if not character.isspace():
                offsets.append((len(text), len(text) + 1))
            text += character
    budget = draw(st.integers(1, 30))
    return text, offsets, budget, draw(st.integers(0, budget - 1))


def inside(offsets, span):
    """Return which tokens lie in a span."""
    return {i for i, (start, stop) in enumerate(offsets) if span[0] <= start and stop <= span[1]}


@given(cut_texts())
def test_passages_cover_all_pieces_in_order_within_budget_and_overlap(case):
    text, offsets, budget, overlap = case
    spans = split_passages(text, offsets, budget, overlap)
    held = [inside(offsets, span) for span in spans]
    assert set().union(*held) == set(range(len(offsets)))
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    for start, stop in spans:
        touched = [piece for piece in offsets if piece[0] < stop and piece[1] > start]
        assert len(touched) <= budget
    for before, after in itertools.pairwise(spans):
        assert before[0] < after[0]
        assert before[1] < after[1]
    for before, after in itertools.pairwise(held):
        assert len(before & after) <= overlap
        # Each adds a piece that the one before lacks.
        assert after - before


@given(cut_texts())
def test_a_text_within_the_budget_is_one_passage(case):
    text, offsets, _, _ = case
    assert split_passages(text, offsets, max(1, len(offsets)), 0) == [(0, len(text))]


def words_of(text):
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


@pytest.mark.parametrize("budget", [30, 50, 70])
def test_sentences_end_at_stops_and_what_closes_them(budget):
    spans = split_passages(QUOTED, words_of(QUOTED), budget, overlap=12)
    assert len(spans) > 2
    for (start, _), (_, stop) in zip(spans[1:], spans[:-1], strict=True):
        assert re.search(r"([?]”|[.…]|!\)|[.]’) $", QUOTED[:start])
        assert re.search(r"([?]”|[.…]|!\)|[.]’)$", QUOTED[:stop])


def test_neighbors_share_whole_sentences_where_these_fit_the_overlap():
    text = " ".join(f"Sentence number {number} ends here." for number in range(30))
    spans = split_passages(text, words_of(text), budget=30, overlap=12)
    shared = [text[b[0] : a[1]] for a, b in itertools.pairwise(spans)]
    assert all(re.fullmatch(r"(Sentence number \d+ ends here\. ?){2}", part) for part in shared)


def test_a_sentence_longer_than_the_budget_is_cut_between_words():
    text = "word " * 100
    spans = split_passages(text, words_of(text), budget=30, overlap=10)
    assert all(re.fullmatch(r"(word ?)+", text[start:stop]) for start, stop in spans)
    shared = [text[b[0] : a[1]] for a, b in itertools.pairwise(spans)]
    assert all(part.count("word") == 10 for part in shared)


def test_a_word_longer_than_the_budget_is_cut_between_pieces():
    text = "x" * 100
    pieces = [(i, i + 4) for i in range(0, 100, 4)]
    spans = split_passages(text, pieces, budget=10, overlap=3)
    assert [stop - start for start, stop in spans[:-1]] == [40] * (len(spans) - 1)


STOPPED = (
    "敏捷的棕色狐狸跳过了懒狗。|円周率は３．１４です．|मैं घर जाता हूँ। |मैं घर जाता हूँ।|ဒါက အိမ်ပါ။|"
    "کیا یہ گھر ہے؟ |یہ ایک گھر ہے۔ |Սա մեր տունն է։ |ይህ ቤት ነው። |នេះជាផ្ទះ។|འདི་ཁང་པ་ཡིན།"
)


@pytest.mark.parametrize("sentence", STOPPED.split("|"))
def test_stops_of_other_scripts_end_sentences(sentence):
    text = sentence * 10
    pieces = [(i, i + 1) for i in range(len(text)) if not text[i].isspace()]
    budget = 2 * len(sentence.replace(" ", "")) + 4
    spans = split_passages(text, pieces, budget, overlap=0)
    assert {text[start:stop].strip() for start, stop in spans} == {(sentence * 2).strip()}


class WordEncoder:
    """An encoder whose pieces are words and punctuation, as `cut_document` uses one."""

    def __init__(self, window):
        self.spec = SimpleNamespace(max_length=window)

    def tokenize(self, texts):
        return [words_of(text) for text in texts]

    def piece_offsets(self, text):
        return words_of(text)

    def truncate(self, texts):
        return [row[: self.spec.max_length] for row in self.tokenize(texts)]


def cut(document, window, **settings):
    """The texts of a document's passages."""
    parts = cut_document(document, WordEncoder(window), PassageSettings(**settings))
    return [span for spans, _, _ in parts for span in spans]


SENTENCES = st.integers(1, 9).map(lambda n: "word " * (n - 1) + "end.")
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=5).map(" ".join)
FENCES = st.lists(st.just("x = 1"), max_size=6).map(
    lambda lines: "\n\n".join(["```", *lines, "```"])
)


@st.composite
def outlined_texts(draw):
    """Blocks of text with headings and pages among them, and a window."""
    text, marks = "", [Mark(0, "line", "1")]
    for block in draw(st.lists(PARAGRAPHS | FENCES | st.integers(1, 3), max_size=30)):
        if draw(st.integers(0, 9)) == 0:
            marks.append(Mark(len(text), "page", str(len(marks))))
        if isinstance(block, int):
            marks.append(Mark(len(text), "heading", "Some heading", block))
            text += draw(
                st.sampled_from(["#" * block + " Some heading\n", "Some heading\n====\n\n"])
            )
        else:
            text += f"{block}\n\n"
    return Document("1", text, "Title", outline=tuple(marks)), draw(st.integers(24, 60))


@given(outlined_texts(), st.sampled_from(["title", "headings", "none"]))
def test_passages_follow_structure_cover_the_text_and_end_with_no_heading(case, context):
    document, window = case
    spans = cut(document, window, overlap=8, context=context)
    words = words_of(document.text)
    assert set().union(*(inside(words, span) for span in spans), set()) == set(range(len(words)))
    for before, after in itertools.pairwise(spans):
        assert before[0] < after[0]
        assert before[1] < after[1]
        held = document.text[slice(*before)].rstrip()
        # Headings that fill a window by themselves can only end with one.
        if re.sub(r"#* ?Some heading\n?=*|\s", "", held):
            assert not re.search(r"Some heading(\n=*)?$", held)
        # No passage begins with the end of an earlier section.
        starts = [mark.offset for mark in document.outline if mark.kind == "heading"]
        assert not any(after[0] < start < before[1] for start in starts)
    for span in spans:
        assert len(words_of(passage_text(document, span, context))) <= window


@given(outlined_texts())
def test_passages_of_an_outlined_text_do_not_depend_on_its_blocks(case):
    document, window = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retriever.documents.passages.BLOCK", 200)
        in_blocks = cut(document, window, context="title")
    assert in_blocks == cut(document, window, context="title")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A heading in the last three quarters, though more sentences fit.
        ("One two three. " * 6 + "\n\n## B\n\n" + "Four five six. " * 8, "## B"),
        # A blank line in the last half; one inside a fence only where there is no other.
        ("One two three. " * 5 + "\n\nThen four five. " + "Six seven. " * 20, "Then four"),
        ("One two. " * 7 + "\n\nThen:\n\n```\na = 1\n\nb = 2\n\n" + "c = 3\n" * 20, "```"),
        # In code a definition before a blank line of its body, and a line before a word.
        ("x = 1\n" * 8 + "\n\ndef f():\n    y = 2\n\n    z = 3\n" + "    z += 1\n" * 20, "def f"),
        ("    call one two three four five\n" * 30, "call"),
    ],
)
def test_a_passage_ends_where_the_structure_does(text, expected):
    at = text.find("##")
    marks = [Mark(at, "heading", "B", 2)] if at >= 0 else []
    document = Document("1", text, outline=(Mark(0, "line", "1"), *marks))
    spans = cut(document, 40, overlap=0)
    assert text[spans[1][0] :].startswith(expected)
    assert spans != cut(document, 40, overlap=0, structure=False)


def test_the_context_of_a_passage_is_the_title_and_the_headings_above_it():
    text = "# Guide\nIntro.\n## Methods\nFirst.\n### Sampling\nLast."
    marks = [Mark(text.index(f"{'#' * n} "), "heading", name, n) for n, name in HEADINGS]
    document = Document("1", text, "Guide", outline=tuple(marks))
    last, sampling = (text.index("Last"), len(text)), (text.index("\n### ") + 1, len(text))
    assert passage_text(document, last, "headings") == "Guide Methods Sampling Last."
    assert passage_text(document, sampling, "headings") == "Guide Methods ### Sampling\nLast."
    assert passage_text(document, last, "title") == "Guide Last."
    assert passage_text(document, last, "none") == "Last."
    assert passage_text(Document("1", "", "Guide"), None, "none") == "Guide "


HEADINGS = [(1, "Guide"), (2, "Methods"), (3, "Sampling")]


def test_passage_settings_of_earlier_release_round_trip_unchanged():
    earlier = {"on_long": "split", "overlap": 48}
    found = PassageSettings(**EARLIER | earlier)
    assert (found.context, found.structure, found.tables) == ("title", False, False)
    assert not found.lists
    assert found.to_json() == earlier
    newest = PassageSettings(**EARLIER | PassageSettings().to_json())
    assert newest.structure
    assert newest.tables
    assert newest.lists


@given(st.text(" \t\r\n\x0cab", max_size=14))
def test_lines_after_blank_lines_equal_those_of_plain_regex(text):
    slow = re.finditer(r"\n(?:[ \t\r]*\n)+([ \t]*)(?=\S)", text)
    assert list(_after_blank_lines(text)) == [(match.start(1), match[1]) for match in slow]
    # As many as these would take hours by trying everything.
    many = text.rstrip() + 100_000 * "\n"
    assert list(_after_blank_lines(many)) == list(_after_blank_lines(text.rstrip()))


ROWS = "".join(f"| bolt {n} | It holds {n} kg. Steel? | {n * 3} |\n" for n in range(30))
TABLE = f"| Part | Use  and care | Price |\n|:--|---|--:|\n{ROWS}"


def with_lines(text, *marks):
    return Document("1", text, "Shop", outline=(Mark(0, "line", "1"), *marks))


def test_the_context_of_a_passage_of_rows_is_their_header():
    text = f"# Bolts\nBuy a | b here.\n\n{TABLE}\nThe end of it."
    document = with_lines(text, Mark(0, "heading", "Bolts", 1))

    def context_of(word, tables=True):
        start = text.index(word)
        passage = passage_text(document, (start, len(text)), "headings", tables=tables)
        return passage.removesuffix(text[start:])

    header = "Part | Use and care | Price"
    assert context_of("| bolt 0 ") == context_of("| bolt 29") == f"Shop Bolts {header} "
    assert context_of("| bolt 7", tables=False) == "Shop Bolts "
    for word in ("| Part", "The end", "Buy"):
        assert context_of(word) == "Shop Bolts "
    start = text.index("| bolt 9")
    assert passage_text(document, (start, start + 9), "title", tables=True) == "Shop | bolt 9 "
    bare = Document("1", text)
    assert passage_text(bare, (start, start + 9), "headings", tables=True).startswith(header)


def test_the_header_of_a_table_is_bounded_and_may_be_quoted():
    wide = (
        "> " + "| column " * 90 + "|\n> " + "|---" * 90 + "|\n" + ("> " + "| x " * 90 + "|\n") * 3
    )
    start = wide.index("> | x")
    header = passage_text(with_lines(wide), (start, start + 5), "headings", tables=True)
    assert header.startswith("Shop column | column |")
    assert len(header) < 220


def test_rows_without_a_line_of_hyphens_are_a_table_where_lines_are_not_known():
    text = "Stock\n\nItem | Shelf\nnut | A | 1\nnut | B\n\n" + "cup | red\nlid | 2\ntop | 3\n"
    pages = Document("1", text, outline=(Mark(0, "page", "1"),))
    for document, expected in ((pages, "cup | red lid | 2"), (with_lines(text), "Shop lid | 2")):
        start = text.index("lid")
        passage = passage_text(document, (start, start + 7), "headings", tables=True)
        assert passage == expected


@pytest.mark.parametrize("outline", [(Mark(0, "line", "1"),), (Mark(0, "page", "1"),)])
def test_passages_of_a_table_begin_and_end_between_rows(outline):
    text = f"Some words before it. And more of them.\n\n{TABLE}\nWords after it."
    spans = cut(Document("1", text, "Shop", outline=outline), 90, overlap=20)
    assert len(spans) > 4
    for start, stop in spans:
        assert text[start - 1 : start] in ("", "\n")
        assert text[start:stop].rstrip().endswith(("|", "it."))
        # No header without its first row.
        assert not text[start:stop].rstrip().endswith("--:|")
    for start, stop in spans:
        document = Document("1", text, "Shop", outline=outline)
        assert len(words_of(passage_text(document, (start, stop), "headings", tables=True))) <= 90


def test_a_text_of_many_tables_is_cut_in_little_time():
    text = ("a | b\n" * 3 + "\n") * 20_000 + "|" * 100_000 + "|-\n" * 50_000
    started = time.process_time()
    cut(Document("1", text, outline=(Mark(0, "page", "1"),)), 250)
    assert time.process_time() - started < 20


SENTENCE = "Some words come first. "
ITEMS = ("red paint is dry", "blue paint is wet", "green paint is new")


def file_document(tmp_path, name, text):
    """Return the document of a file, as an index reads it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    [document] = CorpusReader(tmp_path)
    return document


def parted_lists(document, window, **settings):
    """Return the passages that begin with the first item below a colon."""
    spans = cut(document, window, overlap=2, context="none", **settings)
    return [start for start, _ in spans if re.search(r":\W*(1[.]\s*)?$", document.text[:start])]


LIST_FILES = {
    "dashes.md": "{}The paints are:\n\n- {}\n- {}\n- {}\n",
    "numbers.md": "{}**The paints are:**\n\n1. {}\n2. {}\n3. {}\n",
    "page.html": "<p>{}The paints are:</p><ul>" + "<li><p>{}</p></li>" * 3 + "</ul>",
    "notes.txt": "{}The paints\nare:\n\n  * {}\n  * {}\n  * {}\n",
    "notes.rst": "{}The paints are:\n\n#. {}\n#. {}\n#. {}\n",
}


@pytest.mark.parametrize("name", LIST_FILES)
def test_no_passage_begins_between_a_colon_and_its_list(tmp_path, name):
    parted = 0
    for before in range(2, 12):
        text = "".join(
            LIST_FILES[name].format(SENTENCE * (before + n), *ITEMS) + "\n\n" for n in range(4)
        )
        document = file_document(tmp_path, name, text)
        assert not parted_lists(document, 32)
        parted += len(parted_lists(document, 32, lists=False))
    # An index of an earlier release divides them as it did.
    assert parted


def test_a_list_that_does_not_fit_with_its_introduction_is_parted():
    text = "word " * 60 + ":\n\n- " + "item " * 60
    spans = cut(Document("1", text, outline=(Mark(0, "line", "1"),)), 24, overlap=0)
    words = words_of(text)
    assert set().union(*(inside(words, span) for span in spans)) == set(range(len(words)))


def test_a_colon_above_code_or_a_paragraph_joins_nothing():
    text = "One two three four. " * 4 + "\n\nfor x in y:\n    print(x)\n" + "Five six. " * 20
    document = Document("1", text, outline=(Mark(0, "line", "1"),))
    assert cut(document, 30, overlap=0) == cut(document, 30, overlap=0, lists=False)


def test_a_text_of_many_colons_is_cut_in_little_time():
    text = ":\n" * 100_000 + ":" * 100_000 + "\n" * 100_000 + (":\n" + " " * 50) * 20_000
    started = time.process_time()
    cut(Document("1", text, outline=(Mark(0, "page", "1"),)), 250)
    assert time.process_time() - started < 20
