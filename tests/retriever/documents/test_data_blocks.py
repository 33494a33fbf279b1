"""Base64 and minified code are left out with a mark; all else of a text keeps its place."""

import base64
import random
import time

import pytest

from retriever import CorpusReader
from retriever.documents.data_blocks import without_data_blocks
from retriever.documents.kinds import Parsed
from retriever.documents.kinds.plain import read_plain
from retriever.documents.outline import Mark, place
from tests.retriever.documents.source_samples import write

DATA = base64.b64encode(random.Random(0).randbytes(6000)).decode()
LINES = "\n".join(DATA[at : at + 76] for at in range(0, len(DATA), 76))
MINIFIED = "function(a,b){return(a+b)};" * 200


def cut(text):
    return without_data_blocks(read_plain(text))


@pytest.mark.parametrize("data", [DATA, MINIFIED, LINES])
def test_data_is_replaced_by_its_length(data):
    parsed = cut(f"before\n\n{data}\n\nafter")
    assert parsed.text == f"before\n\n[{len(data):,} characters left out]\n\nafter"
    [loss] = parsed.losses
    assert (loss.kind, f"{len(data):,} characters" in loss.detail) == ("data", True)


@pytest.mark.parametrize("data", [DATA, LINES])
def test_lines_after_data_keep_their_numbers(data):
    text = f"first\n{data}\nneedle\n{data}\nlast word"
    parsed = cut(text)
    for word in ("first", "needle", "last"):
        start = parsed.text.index(word)
        expected = text.count("\n", 0, text.index(word)) + 1
        assert place(parsed.outline, parsed.text, (start, start + 4)).lines == (expected,) * 2


def test_marks_after_data_stay_at_their_words():
    text = f"intro {DATA} middle {MINIFIED} Heading here"
    marks = (Mark(0, "page", "1"), Mark(text.index("Heading"), "heading", "Heading", 1))
    parsed = without_data_blocks(Parsed(text, outline=marks))
    assert parsed.text[parsed.outline[1].offset :] == "Heading here"


@pytest.mark.parametrize(
    "text",
    [
        "A" * 2000,
        "猫は庭で寝ている。" * 1000,
        "\n".join(["ACGTTGCAACGTTGCAACGTTGCAACGTTGCAACGTTGCAACGTTGCA"] * 100),
        "\n".join(["SeveralWordsInOneLineThatAreTogether12345678"] * 19),
        "a word " * 5000,
        "https://example.org/" + "path/" * 300,
    ],
)
def test_words_long_addresses_and_rows_of_letters_stay(text):
    assert cut(text).text == text.strip()
    assert cut(text).losses == ()


def test_data_in_a_folder_is_counted_by_file(tmp_path):
    write(tmp_path / "app.js", f"var a = 1;\n{MINIFIED}\n")
    write(tmp_path / "mail.eml", f"From: a@b.c\nSubject: x\n\nkey:\n{LINES}\n")
    write(tmp_path / "page.html", f"<p>Some words before.</p><p>{DATA}</p><p>Words after.</p>")
    reader = CorpusReader(tmp_path)
    texts = {document.id: document.text for document in reader}
    assert all("characters left out]" in text for text in texts.values())
    assert reader.files.losses["data"] == 3


@pytest.mark.parametrize("text", ["x" * 10**7, "a" * 1999 + " ", f"{'Aa1+' * 19}\n" * 10**5])
def test_much_data_takes_little_time(text):
    text = text * (10**7 // len(text))
    started = time.monotonic()
    without_data_blocks(Parsed(text))
    assert time.monotonic() - started < 5
