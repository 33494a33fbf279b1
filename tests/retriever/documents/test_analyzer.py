"""The analyzer: words of many scripts, their forms, stop words, stems and offsets.

`test_scripts` has scripts without spaces, identifiers, accents and languages that are told.
"""

from __future__ import annotations

import gc
import unicodedata
import weakref
from itertools import pairwise

import pytest
import Stemmer
from hypothesis import example, given
from hypothesis import strategies as st
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

from indexes.errors import ConfigError
from retriever.documents import Analyzer, AnalyzerSettings
from retriever.documents import analyzer as analysis
from retriever.documents.analyzer import ENGLISH_STOP_WORDS

PLAIN = Analyzer(AnalyzerSettings("none", division="plain"))
ENGLISH = Analyzer(AnalyzerSettings("english", division="plain"))
NEW = Analyzer(AnalyzerSettings("none", division="grams"))
AUTO = [Analyzer(AnalyzerSettings(division=one)) for one in ("auto", "grams")]
STEMMERS = set(Stemmer.algorithms())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("The quick-brown_fox, 3.5!", ["the", "quick", "brown", "fox", "3", "5"]),
        ("ÉTÉ e\u0301te\u0301 été", ["été", "été", "été"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Привет, МИР", ["привет", "мир"]),
        ("東京タワーに行くABC", ["東", "京", "タ", "ワ", "ー", "に", "行", "く", "abc"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("ｶﾞ か\u3099", ["ガ", "が"]),
        ("ＡＢＣ ﬁne m² ½", ["abc", "fine", "m2", "1", "2"]),
        ("don't don’t 'quoted' rock 'n' roll", ["don't", "don't", "quoted", "rock", "n", "roll"]),
        ("co\u00adop می\u200cشود", ["coop", "میشود"]),
        ("I\u0307stanbul İSTANBUL", ["istanbul", "istanbul"]),
        ("C++ 😀 → ™ \ud800x", ["c", "x"]),
        ("ΟΔΟΣ", ["οδος"]),
    ],
)
def test_words_of_many_scripts(text, words):
    assert PLAIN.tokens(text) == words


def test_english_drops_stop_words_and_possessives_and_stems():
    text = "The dogs were running; it's the neighbors' dog’s bowl, and they don't bark."
    assert " ".join(ENGLISH.tokens(text)) == "dog were run neighbor dog bowl don't bark"
    # Lucene's stop words are few.
    words = "able act who what"
    assert Analyzer(AnalyzerSettings("english", stemming=False)).tokens(words) == words.split()
    assert len(ENGLISH_STOP_WORDS) == 33


def test_steps_can_be_turned_off():
    text = "The cats' toys"
    assert Analyzer(AnalyzerSettings("english", stemming=False)).tokens(text) == ["cats", "toys"]
    assert Analyzer(AnalyzerSettings("english", stop_words=False)).tokens(text) == [
        "the",
        "cat",
        "toy",
    ]


def test_apostrophes_separate_where_the_language_puts_articles_or_suffixes_before_them():
    french = Analyzer(AnalyzerSettings("french", stemming=False))
    assert french.tokens("l'avion d’Hiver qu’il") == ["avion", "hiver"]
    turkish = Analyzer(AnalyzerSettings("turkish", False, False, "plain"))
    assert turkish.tokens("IĞDIR'DA İzmir'de") == ["ığdır", "da", "izmir", "de"]


@pytest.mark.parametrize("language", ["german", "spanish", "russian", "hindi", "arabic", "porter"])
def test_no_stop_word_of_the_language_becomes_a_term(language):
    words = ENGLISH_STOP_WORDS if language == "porter" else get_stop_words(language)
    analyzer = Analyzer(AnalyzerSettings(language))
    whole = [word for word in words if len(PLAIN.tokens(word)) == 1]
    assert len(whole) >= 33
    assert [term for word in whole for term in analyzer.tokens(word)] == []
    assert [term for word in whole for term in analyzer.tokens(word.title())] == []


@pytest.mark.parametrize("language", sorted(STEMMERS))
def test_every_snowball_language_stems_or_says_what_is_missing(language):
    analyzer = Analyzer(AnalyzerSettings(language, stop_words=False))
    assert analyzer.tokens("zzgl") == [Stemmer.Stemmer(language).stemWord("zzgl")]
    if language.removesuffix("_porter") in {*AVAILABLE_LANGUAGES, "porter"}:
        assert Analyzer(AnalyzerSettings(language)).settings.stop_words
    else:
        with pytest.raises(ConfigError, match=f"no stop-word list for {language!r}"):
            AnalyzerSettings(language)


def test_unsupported_language_or_step_is_refused_with_alternatives():
    with pytest.raises(ConfigError, match="no stop-word list for 'tamil': turn stop words off"):
        AnalyzerSettings("tamil")
    with pytest.raises(ConfigError, match="no stemmer for 'bulgarian': turn stemming off"):
        AnalyzerSettings("bulgarian")
    assert Analyzer(AnalyzerSettings("bulgarian", stemming=False)).tokens("и жена") == ["жена"]
    with pytest.raises(ConfigError, match="division: expected auto, icu, grams or plain"):
        AnalyzerSettings(division="words")
    with pytest.raises(ConfigError, match="unknown language 'klingon'") as error:
        AnalyzerSettings("klingon")
    assert all(language in str(error.value) for language in (*STEMMERS, "bulgarian", "none"))


def test_no_language_means_no_stemming_and_no_stop_words():
    assert AnalyzerSettings("none") == AnalyzerSettings("none", False, False)
    assert PLAIN.tokens("The running") == ["the", "running"]


def test_spans_mark_the_words_as_written():
    text = "Cafe\u0301s’ — L’É\u00adTÉ, ½ 東京"
    analyzer = Analyzer(AnalyzerSettings("none", division="plain"))
    marked = [(term, text[start:end]) for term, start, end in analyzer.spans(text)]
    assert marked == [
        ("cafés", "Cafe\u0301s"),
        ("l'été", "L’É\u00adTÉ"),
        ("1", "½"),
        ("2", "½"),
        ("東", "東"),
        ("京", "京"),
    ]


MIXED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aZ é'’_ ½ﷺ\u0301\u200c\u00ad東がｶﾞİß"),
        st.characters(min_codepoint=0x300, max_codepoint=0x36F),
    )
)


@given(MIXED)
def test_spans_agree_with_tokens_and_lie_in_the_text(text):
    for analyzer in (NEW, *AUTO, PLAIN, ENGLISH):
        spans = list(analyzer.spans(text))
        assert [term for term, _, _ in spans] == analyzer.tokens(text)
        assert all(0 <= start < end <= len(text) for _, start, end in spans)
        for term in {term for term, _, _ in spans}:
            assert [one for one in analyzer.spans(text, {term}) if one[0] == term] == [
                one for one in spans if one[0] == term
            ]
        # Words of the plain division do not overlap; those of a ligature are in one place.
        pairs = pairwise([span for _, *span in spans]) if analyzer in (PLAIN, ENGLISH) else ()
        assert all(before == after or before[1] <= after[0] for before, after in pairs)


@given(MIXED)
def test_terms_are_normalized_lower_case_words(text):
    for term in PLAIN.tokens(text) + NEW.tokens(text):
        assert term
        assert unicodedata.is_normalized("NFKC", term)
        assert not set(term) & set(" ’\u00ad\u200c\u200d")


@given(MIXED)
@example("ΑΣ\u0301 Σ")
def test_canonically_equal_texts_have_equal_terms(text):
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    for analyzer in (PLAIN, NEW):
        assert analyzer.tokens(composed) == analyzer.tokens(decomposed)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_words_it_has_among_other_text(text):
    # Without stop words in capitals, whose terms stand at the end.
    for analyzer in (PLAIN, ENGLISH, Analyzer(AnalyzerSettings("english", stop_words=False))):
        assert analyzer.tokens(text + " Ω")[:-1] == analyzer.tokens(text)


def test_memory_of_words_is_bounded_without_changing_terms(monkeypatch):
    monkeypatch.setattr(analysis, "_MEMO_ENTRIES", 3)
    analyzer = Analyzer(AnalyzerSettings("english", division="plain"))
    text = "running cats jumped over lazy dogs while running " + "x" * 300
    assert analyzer.tokens(text) == ENGLISH.tokens(text)
    assert len(analyzer._term_tables(("english",))) <= 3


def test_unreferenced_analyzer_is_freed_without_cycle_collection():
    gc.disable()
    try:
        analyzer = Analyzer()
        analyzer.tokens("running cats")
        assert analyzer.query_tokens("what is a cat", {}) == ["cat"]
        kept = weakref.ref(analyzer), weakref.ref(analyzer._term_tables(("english",)))
        del analyzer
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()


def test_stored_stop_list_replaces_list_of_language():
    kept = Analyzer(AnalyzerSettings("english"), stop_list=["cat"])
    assert kept.tokens("the cat sat") == ["the", "sat"]
    same = Analyzer(AnalyzerSettings(), stop_list=sorted(Analyzer().stop_list))
    assert same.tokens("the cat sat on the mat") == Analyzer().tokens("the cat sat on the mat")
