"""Sentences end at stops, but not at those of abbreviations, initials and dates."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import sentence_spans
from retriever.documents.sentences import SENTENCE_END, sentence_ends


def sentences_of(text):
    return [" ".join(text[slice(*span)].split()) for span in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It grew by 3.5 percent. Then it fell.", ["It grew by 3.5 percent.", "Then it fell."]),
        ("See J. Smith et al. 2019 for more. Yes.", ["See J. Smith et al. 2019 for more.", "Yes."]),
        ("He left, e.g. Paris. She stayed.", ["He left, e.g. Paris.", "She stayed."]),
        ('He said "go." Then he went.', ['He said "go."', "Then he went."]),
        ("第一句。第二句。", ["第一句。", "第二句。"]),
        ("A heading\n\nA text.", ["A heading", "A text."]),
        ("one\nline", ["one line"]),
        ("  ", []),
        ("", []),
    ],
)
def test_sentences_end_at_punctuation(text, expected):
    assert sentences_of(text) == expected


# A bar ends each sentence but the last.
HARD = """
Cpl. Jones met Dr. Lee and Mrs. Ortiz.| They left.
The U.K. Parliament sat until 5 p.m. Monday.| Then it rose.
He moved to the U.S.| He liked it.
It opens on Feb. 3 and closes on Dec. 12.| Come early.
G. K. Chesterton and C.S. Lewis wrote.| We read.
Gov. Brown and Sen. Ruiz spoke at St. Mary's.| All listened.
See Fig. 4, pp. 3 to 9, and Vol. II of it.| It helps.
Acme Corp. Europe and Bolt Inc. were sold.| The price was low.
We sell pens, ink, etc.| They are cheap.
Use a lamp, e.g. Tiffany, i.e. Old glass.| It shines.
Smith et al. Report a rise.| So do we.
Robert Downey Jr. Smiled at Ford v. Ferrari.| They ran.
He has a Ph.D. Degree and an M.B.A. from Yale.| It cost much.
Is it No. 5?| I said no.| Then I left.
Was it option B.| Then we agreed.
He drove to Mt. Hood, approx. 90 km.| It snowed.
Wir fahren z. B. Montag nach Bonn, d. h. Bald.| Das ist gut.
Nach Abs. 1 Nr. 3 und Art. 5 gilt das.| Es bleibt so.
Am 3. Mai und am 14. Juni ist Markt.| Dann nicht.
Im 18. Jahrhundert lebte hier Hr. Vogt.| Er starb früh.
Der 1. Preis ging an Prof. Dr. med. Anna Roth.| Sie lachte.
Er kam um 5.| Sie kam um 6.
Vgl. Kap. 2 sowie Abb. 7 bzw. Tabelle 1.| Sie zeigt es.
La Sra. Pérez y el Dr. Gil viven en EE. UU.| Ella canta.
Véase la pág. 12, p. ej. Madrid.| Es grande.
M. Dupont et Mme. Blanc arrivent.| Ils dînent.
Il Sig. Rossi e il Dott. Bianchi parlano.| Poi escono.
De heer Jansen en dhr. Visser, bijv. Piet, komen.| Het regent.
На ул. Ленина стоит дом им. Чехова.| Он старый.
1. Wash the pan.| 2. Dry it.
Version 2.0.| Released in May.
She asked "Why?"| He shrugged.| (It was late.)| End.
"""


@pytest.mark.parametrize("case", HARD.strip().split("\n"))
def test_abbreviations_initials_and_dates_end_no_sentence(case):
    parts = case.split("|")
    assert sentences_of("".join(parts)) == [part.strip() for part in parts]


@pytest.mark.parametrize("case", HARD.strip().split("\n")[:30])
def test_passages_end_at_ends_of_sentences(case):
    text = case.replace("|", "")
    ends = {len(text[:end].rstrip()) for end in sentence_ends(text)}
    expected = {stop for _, stop in sentence_spans(text)[:-1]}
    assert ends == expected


@given(st.text("aB. 5\nz!", max_size=30))
def test_ends_are_among_those_of_punctuation_and_spans_cover_all_words(text):
    assert set(sentence_ends(text)) <= {match.end() for match in SENTENCE_END.finditer(text)}
    spans = sentence_spans(text)
    assert "".join("".join(text[slice(*span)].split()) for span in spans) == "".join(text.split())
    assert spans == sorted(spans)


@pytest.mark.parametrize("part", ["a.", "a. ", ". ", "1.\n", "z. B. "])
def test_hostile_texts_take_little_time(part):
    text = part * 200_000
    started = time.process_time()
    list(sentence_ends(text))
    sentence_spans(text)
    assert time.process_time() - started < 10
