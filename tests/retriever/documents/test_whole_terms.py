"""Whole terms beside their parts, joined words, capital stop words, signs in one form."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import Analyzer, AnalyzerSettings, division
from retriever.documents.analyzer import PLAIN, reconcile_settings

AUTO = Analyzer()
NONE = Analyzer(AnalyzerSettings("none"))
ENGLISH = Analyzer(AnalyzerSettings("english"))
EARLIER = Analyzer(AnalyzerSettings("english", terms="parts"))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("release 4.10.7.", "4.10.7"),
        ("release v4.10.7!", "4.10.7"),
        ("python3.12", "3.12"),
        ("on 1999-12-31", "1999-12-31"),
        ("on 1999\u201112\u201131", "1999-12-31"),
        ("on 31.12.1999", "31.12.1999"),
        ("on 12/31/1999", "12/31/1999"),
        ("1999-12-31T23:59:58Z", "1999-12-31"),
        ("1999-12-31T23:59:58Z", "23:59:58"),
        ("ping 10.20.30.40:8080", "10.20.30.40"),
        ("at 07:15 or so", "07:15"),
        ("call 040 555-7788", "555-7788"),
        ("fe80::1ff:fe23", "fe80::1ff:fe23"),
        ("0A:1B:2C:3D:4E:5F", "0a:1b:2c:3d:4e:5f"),
        ("J# and (F#)", "f#"),
        ("written in C++.", "c++"),
        ("C++20 modules", "c++20"),
        ("C++20 modules", "c++"),
        ("objective-c++", "c++"),
        ("Notepad++", "notepad++"),
        ("an A+ grade", "a+"),
        ("use .NET or", ".net"),
        ("H&M and B&B", "b&b"),
        ("the E.S.A. said", "esa"),
        ("python -m venv", "-m"),
        ("run `-Wall`", "-wall"),
        ("git log --no-merges", "--no-merges"),
    ],
)
def test_a_whole_term_is_in_texts_and_queries_and_its_parts_stay(text, whole):
    for analyzer in (NONE, ENGLISH, AUTO):
        terms = analyzer.tokens(text)
        assert whole in terms
        assert whole in analyzer.query_tokens(text, {})
        assert set(EARLIER.tokens(text)) <= set(ENGLISH.tokens(text))
        assert whole not in EARLIER.tokens(text)


@pytest.mark.parametrize(
    ("joined", "parted", "common"),
    [
        ("online", "on-line", "onlin"),
        ("Emails", "e-mails", "email"),
        ("COVID19", "COVID-19", "covid-19"),
        ("B12", "B\u201112", "b-12"),
        ("USB3", "USB-3", "usb-3"),
        ("12kg", "12 kg", "kg"),
        ("2.5GHz", "2.5 GHz", "ghz"),
        ("UNO", "U.N.O.", "uno"),
        ("wifi", "wi-fi-router", "wifi"),
        ("Strandhaus", "Strand-Haus", "strandhaus"),
    ],
)
def test_joined_and_parted_spellings_share_a_term_and_each_has_one_more(joined, parted, common):
    first = ENGLISH.tokens(joined)
    second = ENGLISH.tokens(parted)
    assert common in first
    assert common in second
    # Equal terms would not rank the exact spelling first.
    assert first != second
    assert len(set(second) & set(second)) >= len(set(first) & set(second))


def test_digits_on_both_sides_of_a_hyphen_are_not_joined():
    assert ENGLISH.tokens("3-14") == ["3", "14", "3-14"]
    assert "314" not in ENGLISH.tokens("AB-3-14")
    # Nobody writes these as one word.
    assert ENGLISH.tokens("the-as") == []
    assert ENGLISH.tokens("jack-of-all-trades") == ["jack", "all", "trade", "alltrad"]
    assert Analyzer(AnalyzerSettings("french")).query_tokens("est-ce que tu nages", {}) == ["nag"]
    # Ordinal numbers are no measures.
    assert ENGLISH.tokens("19th 5m") == ["19th", "5m", "5", "m"]


@pytest.mark.parametrize(
    ("text", "capitals"),
    [
        ("a lack of vitamin A harms", ["A"]),
        ("we have plan A, and plan B", ["A"]),
        ('grade "A" eggs', ["A"]),
        ("A dog ran. A cat sat.\nA bird", []),
        ("# A day", []),
        ("IT support", ["IT"]),
        ("call IT; they help", ["IT"]),
        ("ask (IT) or the OR team", ["IT", "OR"]),
        ("it is what it is", []),
        ("I am what I am", []),
        ("WHAT IT IS FOR\nand then", []),
        ("BACKGROUND AND AIMS: We studied", []),
        ("PLAN A FOR YOU", []),
        ("the WHO says", ["WHO"]),
        ("IT", ["IT"]),
        ("IT-Support", ["IT"]),
        ("an A-level", ["A"]),
        ("the U.S. said", ["US"]),
        ("AT&T", []),
    ],
)
def test_a_stop_word_in_capitals_is_a_term_of_its_own_where_it_stands_out(text, capitals):
    for analyzer in (ENGLISH, Analyzer()):
        for terms in (analyzer.tokens(text), analyzer.query_tokens(text, {"english": 1})):
            assert [term for term in terms if term.isupper()] == capitals
        places = [text[a:b].replace(".", "") for t, a, b in analyzer.spans(text) if t.isupper()]
        assert places == capitals
        assert [term for term, _, _ in analyzer.spans(text, set(capitals)) if term.isupper()] == (
            capitals
        )
    assert not any(map(str.isupper, EARLIER.tokens(text)))


def test_a_word_in_any_case_has_no_capital_form():
    # A phrase is written in any case, so the capital term cannot narrow it.
    assert ENGLISH.forms("IT", ()) == frozenset()
    assert ENGLISH.forms("WHO", ()) == {"who"}


@pytest.mark.parametrize("sign", "'`\u00b4\u02bb\u02bc\u2018\u2019\u201b\uff07")
def test_apostrophe_variants_give_same_terms(sign):
    assert ENGLISH.tokens(f"D{sign}Arcy{sign}s") == ["d'arci"]
    assert ENGLISH.query_tokens(f"why don{sign}t they swim", {}) == ["swim"]
    assert Analyzer(AnalyzerSettings("french")).tokens(f"l{sign}avion") == ["avion"]


@pytest.mark.parametrize("sign", "-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d")
def test_hyphen_variants_give_same_terms(sign):
    assert ENGLISH.tokens(f"wi{sign}fi") == ENGLISH.tokens("wi-fi")
    assert ENGLISH.tokens(f"1999{sign}12") == ENGLISH.tokens("1999-12")


@pytest.mark.parametrize("sign", "\u00ad\u200b\u200d\u2060\ufeff\u200e")
def test_invisible_characters_do_not_change_terms(sign):
    assert ENGLISH.tokens(f"steam{sign}ship") == ENGLISH.tokens("steamship")


def test_other_scripts_get_no_whole_terms():
    for text in ("防守丢分 3年", "ของยอมแพ้", "अलग-अलग हिन्दी-उर्दू", "كتاب-كبير"):
        assert AUTO.tokens(text) == Analyzer(AnalyzerSettings(terms="parts")).tokens(text)


@given(st.text(st.sampled_from("aA1.-+#&:/'`_ \n\u2011\u02bcéIT"), max_size=14))
def test_terms_that_are_remembered_are_those_with_places(text):
    for analyzer in (ENGLISH, NONE):
        spans = list(analyzer.spans(text))
        assert [term for term, _, _ in spans] == analyzer.tokens(text)
        assert all(0 <= start < stop <= len(text) for _, start, stop in spans)


@given(st.text(st.sampled_from("aA1.-+#&:/'_ é防"), max_size=14))
def test_word_parts_equal_words_of_earlier_releases(text):
    units = division.word_pattern(False, False, False, True).findall(text)
    earlier = division.word_pattern(False, False, False).findall(text)
    assert division.separate_units(units) == earlier
    assert [part for unit in units for part, _ in division.unit_parts(unit)[1]] == earlier


@pytest.mark.parametrize("piece", ["1.", "1-", "ab-", "a&", "1:", "c++1", "A ", " -a", "A.", "a+#"])
def test_long_rows_of_signs_are_analyzed_in_linear_time(piece):
    started = time.monotonic()
    text = piece * 50_000
    ENGLISH.tokens(text)
    ENGLISH.query_tokens(text, {})
    assert time.monotonic() - started < 10


def test_indexes_of_earlier_releases_keep_their_terms_until_they_are_renewed():
    stored = AnalyzerSettings(**PLAIN | {"language": "english", "division": "grams"})
    assert "terms" not in stored.to_json()
    assert Analyzer(stored).tokens("C++ 1.2.3 e-mail IT") == ["c", "1", "2", "3", "e", "mail"]
    assert reconcile_settings(AnalyzerSettings("english"), stored) == stored
    assert stored.renewed() == AnalyzerSettings("english", division="grams")
    assert Analyzer(stored).identity != Analyzer(stored.renewed()).identity
    assert AnalyzerSettings(division="plain").terms == "parts"
    assert AnalyzerSettings("english", division="plain").renewed().terms == "whole"
