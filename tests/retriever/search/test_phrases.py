"""Phrases in texts: typography, markup, and documents that are looked up by a phrase's words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import Index
from retriever.search.phrases import (
    contains_phrase,
    find_phrases,
    fold,
    replace_typography,
    strip_markup,
)

MODES = ["dense", "bm25", "hybrid"]


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("Ab, ab.", "AB", True),
        ("cab abc ab_c a\u0301b", "ab", False),
        ("ab's 'ab'", "ab", True),
        ("ab's", "ab", False),
        ("don't", "don", False),
        ("ab\u0301", "ab", False),
        ("a\n\t b", "a b", True),
        ("a-b", "a b", False),
        ("我住在北京大学里", "北京", True),
        ("北京ab.", "ab", True),
        ("ＡＢ c", "ab C", True),
    ],
)
def test_phrase_matches_whole_words_in_any_case_width_and_space(text, phrase, expected):
    assert contains_phrase(fold(text), fold(phrase)) == expected


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("It isn’t over.", "it isn't over"),
        ("It isn't over.", "it isnʼt over"),
        ("the Oʻahu ferry", "the O'ahu ferry"),
        ("das geht´s an", "geht's"),
        ("a state‑of‑the‑art lens", "state-of-the-art lens"),
        ("pages 12–19", "pages 12-19"),
        ("pages 12-19", "pages 12—19"),
        ("at −40 degrees", "at -40 degrees"),
        ("Über\u00adset\u00adzung", "übersetzung"),
        ("zero\u200bwidth and\ufeff a mark", "zerowidth and a mark"),
        ("he said “stop” twice", 'he said "stop" twice'),
        ("il dit «stop» deux fois", 'dit "stop" deux'),
        ("\u202bright to left\u202c", "right to left"),
        ("wait … now", "wait ... now"),
        ("the cat's whiskers", "cat`s whiskers"),
        ("l`équipe de nuit", "l'équipe de"),
    ],
)
def test_phrase_matches_typographic_and_keyboard_punctuation(text, phrase):
    assert contains_phrase(fold(text), fold(phrase))
    assert contains_phrase(fold(phrase), fold(text).strip(".")) or len(text) > len(phrase)


def test_phrase_with_different_punctuation_does_not_match():
    assert replace_typography("a_b * c / d") == "a_b * c / d"
    for text, phrase in (("don't", "do n't"), ("well known", "well-known"), ("re-sign", "resign")):
        assert not contains_phrase(fold(text), fold(phrase))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a *red* and **blue** and _green_ and __grey__ ball", "a red and blue and green and grey"),
        ("a ***very*** ~~old~~ ==new== thing", "a very old new thing"),
        ("**un**known, re**do**ne", "unknown, redone"),
        ('the [north gate](https://x.org/a_(b)?c=1 "the title") is shut', "north gate is shut"),
        ("the [north gate][ng] is shut", "the north gate is shut"),
        ("the [**north** gate](<a b.md>), then", "the north gate, then"),
        ("see ![a plan](plan.png) here", "see a plan here"),
        ("see [[Gates|the gate]] and [[Walls]]", "see the gate and walls"),
        ("call `open(*args)` first, **then** go", "call open(*args) first, then go"),
        ("call ``a`b`` first", "call a`b first"),
        ("the walls are\n> thick and\n>  > high", "walls are thick and high"),
        ("- the walls\n  are thick", "the walls are thick"),
        ("press <kbd>Ctrl</kbd> now<br>or <a href='x'>later</a>", "press ctrl now or later"),
        ("salt &amp; vinegar&nbsp;crisps", "salt & vinegar crisps"),
        ("no \\*stars\\* here, 1\\. first", "no *stars* here, 1. first"),
        ("a claim[^1] without proof", "a claim without proof"),
        ("by the [south gate], too\n\n[south gate]: x.md", "by the south gate, too"),
        ("open <!-- for now --> to all", "open to all"),
        ("これは**とても**重要です", "これはとても重要です"),
        ("<https://example.org/a> is **up**", "https://example.org/a is up"),
    ],
)
def test_phrase_of_rendered_text_matches_markup_source(text, seen):
    assert find_phrases(text, [fold(seen)], is_markup=True)
    assert not find_phrases(text, [fold(seen)], is_markup=False) or "\n  are" in text


@pytest.mark.parametrize(
    "text",
    [
        "2**8 is 256",
        "a * b * c",
        "snake_case_name and x__y",
        "if (a<b && c>d) x",
        "i == j, i==j",
        "rows[0] and f(x)[1]",
        "a [note] to self\n[other]: x",
        "* one\n* two",
        "---\n***\n===",
        "5 > 3",
        "C:\\dir",
    ],
)
def test_rendering_keeps_punctuation_that_is_no_markup(text):
    assert fold(strip_markup(text)) == fold(text)


@given(st.text('a1 *_`~=[]()<>!\\|^\n&"', max_size=60))
def test_rendering_removes_markup_and_keeps_words(text):
    shorter = iter(text.replace("<br>", " "))
    reading = strip_markup(text)
    assert len(reading) <= len(text)
    assert all(sign in shorter for sign in reading if sign.isalnum())


@pytest.mark.parametrize(
    "part",
    ["*", "*a", "_", "[", "[a", "](", "![", "<a", "`", "` `` ", "> ", "[[a|", "](a \"", "](a(b)",
     "x==", "~~", "\\", "<a b=\"", "[a](", "\n>", "&", "**a** ", "[^", "a*", "<!--", "[a]: "],
)  # fmt: skip
def test_rendering_takes_linear_time(part):
    text = part * (400_000 // len(part))
    start = time.monotonic()
    strip_markup(text)
    # Quadratic time would be minutes.
    assert time.monotonic() - start < 10


@pytest.fixture
def notes(tmp_path, fake_encoder):
    texts = {
        "split.md": "Bring the **pass**port and the visa to the desk.",
        "middle.md": "Bring the pa**ssp**ort and the visa to the desk.",
        "link.md": "The [passport and](https://x.org/p) the visa are here.",
        "hidden": "The pass\u200bport and the visa are late.",
        "plain.md": "The passport and the visa are late.",
        "other.md": "A port and a pass, and the visa.",
        "code.py": "pass *port* and *the* visa",
        "unlike.md": "Nothing of it.",
    }
    with Index.create(tmp_path / "index") as index:
        index.add({"id": id_, "text": text} for id_, text in texts.items())
        yield index


@pytest.mark.parametrize("mode", MODES)
def test_a_word_that_markup_divides_is_found(notes, mode):
    hits = notes.search('"passport and the visa"', mode=mode, raw=False)
    ids = ["hidden", "link.md", "middle.md", "plain.md", "split.md"]
    assert sorted(hit.id for hit in hits) == ids
    assert not notes.search('"visa and passport the"', mode=mode, raw=False)
    hits = notes.search('visa -"passport and the visa"', mode=mode, raw=False)
    assert not {hit.id for hit in hits} & set(ids)
    assert {"other.md", "code.py"} <= {hit.id for hit in hits}


def test_source_code_has_no_markup(notes):
    assert [hit.id for hit in notes.search('"pass *port* and"', raw=False)] == ["code.py"]
    assert not notes.search('"pass port and"', raw=False)


def test_the_passage_with_the_phrase_is_shown_across_markup(tmp_path, fake_encoder):
    filler = "The yard is wide and the day is long. " * 30
    with Index.create(tmp_path / "index") as index:
        index.add([{"id": "a.md", "text": f"{filler}A _slow_ **boil** is best. {filler}"}])
        assert len(index.spans("a.md")) > 2
        (hit,) = index.search('"slow boil is best" yard', raw=False)
    assert re.search(r"_slow_ \*\*boil", hit.passage)
