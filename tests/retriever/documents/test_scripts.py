"""Scripts without spaces, code identifiers, accents, and languages that the analyzer tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import Analyzer, AnalyzerSettings, division
from retriever.documents.analyzer import PLAIN, reconcile_settings
from retriever.documents.division import normalize
from retriever.errors import MissingExtraError
from retriever.search.phrases import contains_phrase, fold
from retriever.search.queries import highlights

GRAMS = Analyzer(AnalyzerSettings("none", division="grams"))
AUTO = Analyzer()


@pytest.mark.parametrize(
    ("text", "words", "grams"),
    [
        ("防守丢分", ["防守", "丢", "分"], ["防", "守", "丢", "分", "防守", "守丢", "丢分"]),
        ("東京に行く", ["東京", "に", "行く"], [*"東京に行く", "東京", "京に", "に行", "行く"]),
        ("𠮷野家", ["𠮷", "野家"], [*"𠮷野家", "𠮷野", "野家"]),
        ("猫", ["猫"], ["猫"]),
        ("ของยอมแพ้", ["ของ", "ยอม", "แพ้"], ["ของ", "องย", "งยอ", "ยอม", "อมแ", "มแพ", "แพ้"]),
        ("ພາສາລາວ", ["ພາສາ", "ລາວ"], ["ພາສ", "າສາ", "ສາລ", "າລາ", "ລາວ"]),
        ("ភាសា", ["ភាសា"], ["ភាស", "ាសា"]),
        ("မြန်", ["မြန်"], ["မြန", "ြန်"]),
    ],
)
def test_scripts_without_spaces_become_words_of_icu_and_characters(text, words, grams):
    assert GRAMS.tokens(text) == grams
    pytest.importorskip("icu4py")
    icu = Analyzer(AnalyzerSettings("none", division="icu"))
    assert icu.tokens(text) == words + grams


def test_other_words_beside_scripts_without_spaces_stay_whole():
    assert GRAMS.tokens("NFL 防守, 36分!") == ["nfl", "防", "守", "防守", "36", "分"]
    assert GRAMS.tokens("한국어 ABC") == ["한국어", "한국", "국어", "abc"]
    assert GRAMS.tokens("१९४५ ๑๒ ۳") == ["1945", "12", "3"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("parse_roman_numeral", ["parse_roman_numeral", "parse", "roman", "numeral"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("os.path.join", ["os.path.join", "os", "path", "join"]),
        ("self._write_due", ["self._write_due", "write_due", "self", "write", "due"]),
        ("getURL PDFs iPhone", ["geturl", "get", "url", "pdfs", "iphone", "phone"]),
        ("__init__ end. Next", ["init", "end", "next"]),
    ],
)
def test_identifiers_are_terms_as_a_whole_and_in_parts(text, terms):
    assert GRAMS.tokens(text) == terms
    marked = {text[start:stop].lower() for _, start, stop in GRAMS.spans(text)}
    assert marked == set(terms)


def test_a_word_with_accents_is_also_found_without_them():
    assert GRAMS.tokens("études Ёлка ΆΛΦΑ Straße Łódź") == [
        *("études", "etudes", "ёлка", "елка", "άλφα", "αλφα"),
        *("straße", "strasse", "łódź", "lodz"),
    ]
    # Letters of their own, not accents.
    assert GRAMS.tokens("йогурт їжак में") == ["йогурт", "їжак", "में"]
    assert GRAMS.tokens("שָׁלוֹם كِتاب") == ["שָׁלוֹם", "שלום", "كِتاب", "كتاب"]


@given(st.text("aZ9._'’éµ–ß\u0301\u00ad防ไ ", max_size=12), st.booleans())
def test_word_pattern_equals_plain_definition(text, splits):
    joint = r"\.?_+|\." + ("" if splits else "|['’]")
    marks = f"[{division.mark_ranges()}{division.MARK_LIKE}]"
    cjk, syllabic = division.CJK, division._SYLLABIC
    letters = rf"[^\W_{cjk}{syllabic}{division.MARK_LIKE}]"
    run = f"{letters}+(?:{marks}+{letters}*)*"
    spaceless = "|".join(f"[{one}](?:[{one}]|{marks})*" for one in (cjk, syllabic))
    plain = re.compile(f"{spaceless}|{run}(?:(?:{joint}){run})*")
    assert division.word_pattern(False, splits, False).findall(text) == plain.findall(text)
    if text.isascii():
        assert division.word_pattern(True, splits, False).findall(text) == plain.findall(text)


TEXTS = {
    "english": "The chancellor did not say what the houses of the city would cost.",
    "german": "Der Hund und die Katze sind nicht in den Häusern, die er mit ihr gebaut hat.",
    "french": "Les enfants sont dans la maison et ils ont vu que l'avion est sur une île.",
    "spanish": "La casa de mi padre está en el centro y no se ve desde las calles de la ciudad.",
    "russian": "Он сказал, что книги о войне и мире не были на столе в доме.",
    "greek": "Η γλώσσα αυτή είναι ελληνική και δεν είναι δύσκολη για τους μαθητές.",
    "arabic": "هذه هي اللغة التي كتبت بها الكتب في المدينة من قبل",
    "persian": "این کتاب را از او گرفتم که در خانه بود و با من به شهر آمد",
    "turkish": "Bu ev çok güzel ama daha büyük bir ev için ne kadar para gerek ve kim öder",
    "vietnamese": "Người ta nói rằng đó là một ngày mà các em sẽ đi và về với cha của họ",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_text_is_told_and_decides_its_stems(language):
    assert AUTO.languages(TEXTS[language]) == (language,)
    fixed = Analyzer(AnalyzerSettings(language, stemming=language not in ("vietnamese",)))
    text = TEXTS[language].lower()
    mine, theirs = AUTO.tokens(text), fixed.tokens(text)
    # `auto` keeps the longer words of the lists.
    assert [term for term in mine if term in theirs] == theirs
    if language == "english":
        assert mine == theirs


def test_a_text_of_several_scripts_has_a_language_in_each():
    assert AUTO.languages("Книги Tolstoy о войне и мире и не только, and the rest of them") == (
        "english",
        "russian",
    )
    assert AUTO.tokens("книги books") == ["книг", "book"]
    # Words that Danish has as Norwegian has them.
    danish = "Du kan ved hver start vælge, hvor både lyd og billede kun vises så længe."
    assert AUTO.languages(danish) == ("danish",)
    assert AUTO.languages("मराठी भाषा महाराष्ट्रात बोलली जाते " * 5) == ("other devanagari",)


def test_a_query_has_the_languages_that_the_index_holds():
    query = "Häuser running"
    assert AUTO.query_tokens(query, {}) == AUTO.tokens(query) == ["häuser", "hauser", "run"]
    assert AUTO.query_tokens(query, {"german": 9}) == ["haus", "running"]
    both = {"german": 9, "english": 9}
    assert set(AUTO.query_tokens(query, both)) == {"haus", "running", "häuser", "hauser", "run"}
    assert AUTO.query_tokens("die Häuser und das Haus", both) == ["haus", "haus"]
    # A few documents are none of its languages, but for words that no other documents have.
    rare = {"german": 99, "english": 1}
    assert AUTO.query_tokens(query, rare) == ["haus", "running"]
    passages = Counter(haus=3, run=1)

    def count(terms):
        return {term: passages[term] for term in terms}

    assert AUTO.query_tokens(query, rare, count) == ["haus", "running", "run"]
    assert AUTO.query_tokens("und the Häuser", rare, count) == ["the", "haus"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("how do I run another program and read its output", "run anoth program read output"),
        ("How do I do a GET request?", "get request GET"),
        ("what’s the use of a zebra, and why don't they run", "use zebra run"),
        ("who am I", "who am i"),
        ("how to do this", "how do"),
        # Beside no other function word these are content.
        ("trash can", "trash can"),
        ("do notation", "do notat"),
        ("in may", "may"),
        ("what can rust", "rust"),
        # Quotation marks and capitals keep a word.
        ('"how do" I run', "how do run"),
        ("“who” is a pronoun", "who pronoun"),
        ("what does WHO say", "who say WHO"),
        ("WHAT DOES WHO SAY", "say"),
        ("How can I win World War I", "win world war"),
        ('a 5" pipe and how I cut 6" pipes', "5 pipe cut 6 pipe"),
        ("what_is how.to", "what_is what how.to how"),
    ],
)
def test_function_words_of_a_query_have_no_terms_beside_other_words(text, terms):
    for held in ({}, {"english": 9}):
        assert AUTO.query_tokens(text, held) == terms.split()
    assert Analyzer(AnalyzerSettings("english")).query_tokens(text, {}) == terms.split()
    assert set(terms.split()) <= set(AUTO.tokens(text))


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("german", "Welche Häuser können wir kaufen", "haus kauf"),
        ("french", "Comment est-ce que les chiens peuvent nager ?", "chien nag"),
        ("spanish", "¿Cuándo fueron construidas las casas?", "constru cas"),
        ("italian", "Quali case hanno comprato?", "cas compr"),
        ("portuguese", "Quando foram feitas as casas?", "feit cas"),
        ("dutch", "Waarom hebben huizen deuren", "huis deur"),
        ("romanian", "Care este capitala", "capital"),
        ("turkish", "Türkiye nerede, başkenti nedir", "türki turki başke baske"),
    ],
)
def test_function_words_are_those_of_the_language_of_a_query(language, text, terms):
    assert AUTO.query_tokens(text, {language: 9}) == terms.split()
    named = Analyzer(AnalyzerSettings(language)).query_tokens(text, {})
    assert set(named) <= set(terms.split())
    # In Dutch texts "how" and "what" are no function words.
    assert AUTO.query_tokens("how", {language: 9}) == ["how"]


def test_all_words_are_terms_without_stop_words_and_in_the_language_none():
    text = "how do I run"
    for settings in (
        AnalyzerSettings("none"),
        AnalyzerSettings("english", stop_words=False),
        AnalyzerSettings(stop_words=False),
    ):
        assert Analyzer(settings).query_tokens(text, {}) == text.lower().split()


def test_function_words_of_no_language_that_a_query_may_be_in_have_terms():
    both = {"german": 9, "english": 9}
    # "war" is a German function word and English content.
    assert AUTO.query_tokens("how old is the war", both) == ["old", "war"]
    passages = Counter(war=1, old=1, how=5)

    def count(terms):
        return {term: passages[term] for term in terms}

    # A function word is not looked for in the other languages either.
    assert "how" not in AUTO.query_tokens("how old is the zebra", both, count)


def test_indexes_of_earlier_releases_keep_their_terms():
    stored = AnalyzerSettings(**PLAIN | {"language": "english", "stemming": True})
    assert stored == AnalyzerSettings("english", division="plain")
    text = "HTTPServer os.path études 東京 ไทย"
    assert Analyzer(stored).tokens(text) == ["httpserver", "os", "path", "étude", "東", "京", "ไทย"]


def test_icu_analyzer_without_icu4py_refuses_only_scripts_without_spaces(monkeypatch):
    monkeypatch.setattr("retriever.errors.find_spec", lambda module: None)
    division._word_breaker.cache_clear()  # What an earlier test imported.
    analyzer = Analyzer(AnalyzerSettings(division="icu"))
    assert analyzer.tokens("books") == ["book"]
    with pytest.raises(MissingExtraError, match=r"icu4py, .*layer-retriever\[scripts\]"):
        analyzer.tokens("東京")
    monkeypatch.setattr("retriever.documents.analyzer.find_spec", lambda module: None)
    assert Analyzer().settings.division == "grams"


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("防守", "黑豹队的防守只丢分，守门", ["防守"]),
        ("คะแนน", "แพ้ที่คะแนนเท่าไร", ["คะแนน"]),
        ("path.join", "call os.path.join now", ["path", "join"]),
        ("os.path.join", "call os.path.join now", ["os.path.join"]),
        ("etudes", "les études", ["études"]),
        ("server", "an HTTPServer", ["Server"]),
        ("ភាស", "ភាសាខ្មែរ", ["ភាសា"]),
        ("្មែ", "ភាសាខ្មែរ", ["ខ្មែ"]),
        ("က္ခ", "ပက္ခိ", ["က္ခိ"]),
    ],
)
def test_highlights_mark_the_words_once(query, text, marked):
    weights = dict.fromkeys(AUTO.tokens(query), 1.0)
    assert [text[start:stop] for start, stop in highlights(text, AUTO, weights)] == marked


SENTENCES = {
    # Agglutinative languages have few function words, and short texts of any language have none.
    "turkish": "Panthers savunması yalnızca 308 sayı verdi ve ligde altıncı sırada bitirdi.",
    "finnish": "Komento tulostaa tiedoston sisällön näytölle rivi kerrallaan.",
    "hungarian": "A parancs kiírja a megadott könyvtár tartalmát.",
    "romanian": "Comanda afișează conținutul directorului curent.",
    "german": "Zeigt alle Dateien des Verzeichnisses an.",
    "polish": "Wyświetla zawartość podanego katalogu.",
    "czech": "Příkaz vypíše obsah zadaného adresáře.",
    "indonesian": "Perintah ini menampilkan seluruh isi berkas.",
    "norwegian": "Overskytende data går tapt hvis filen er større enn valgt størrelse.",
    "ukrainian": "Команда виводить список усіх файлів каталогу.",
    "persian": "زبان برنامه‌نویسی پایتون بسیار آسان است",
    "english": "Prints every file below that folder.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_the_language_of_a_short_sentence_is_told_by_ngrams(language):
    assert AUTO.languages(SENTENCES[language]) == (language,)


@pytest.mark.parametrize(
    "text",
    [
        "José García Márquez",  # a name
        "methylphenidate hydrochloride, sodium benzoate, propanol, amine nitrate",
        "for i in range(n): print(self.value[i], file=out)",
        "Zapisnik sa sastanka upravnog odbora udruge",  # Croatian, which has no stemmer
        "redb oakk catd inkf sunn redm oakb",
    ],
)
def test_texts_of_no_language_of_the_analyzer_are_read_as_english(text):
    assert AUTO.languages(text) == ("english",)


def test_a_query_and_its_hits_are_read_without_the_model_of_languages():
    script = """if True:
        import sys
        from retriever.documents.analyzer import Analyzer
        text, held = "Panthers savunması yalnızca 308 sayı verdi", {"turkish": 9, "english": 9}
        for languages in (held, {"turkish": 9}, {}):
            Analyzer().query_tokens(text, languages)
            list(Analyzer().spans(text, {"sayı"}, languages))
        Analyzer().words(text)
        assert "py3langid" not in sys.modules
        assert Analyzer().languages(text) == ("turkish",)
        assert "py3langid" in sys.modules
    """
    subprocess.run([sys.executable, "-c", script], check=True)


def test_passages_are_read_in_each_language_of_an_index():
    text = "Çocukların kitapları books"
    (stem,) = AUTO.query_tokens("kitaplar", {"turkish": 1})
    places = [text[start:stop] for _, start, stop in AUTO.spans(text, {stem}, ["turkish"])]
    assert places == ["kitapları"]
    held = ["english", "turkish"]
    places = [text[start:stop] for _, start, stop in AUTO.spans(text, {stem, "book"}, held)]
    assert places == ["books", "kitapları"]


def test_indexes_of_earlier_releases_tell_languages_by_function_words():
    stored = AnalyzerSettings(**PLAIN | {"division": "grams"})
    assert "detection" not in stored.to_json()
    earlier = Analyzer(stored)
    assert earlier.languages(SENTENCES["turkish"]) == ("english",)
    assert earlier.languages(TEXTS["german"]) == ("german",)
    assert earlier.identity != Analyzer(AnalyzerSettings(division="grams")).identity
    # What an opened index is asked for is what it has; a language that is named needs no telling.
    assert reconcile_settings(AnalyzerSettings(), stored) == stored
    assert reconcile_settings(AnalyzerSettings(division="grams"), stored) == stored
    german = AnalyzerSettings(**PLAIN | {"language": "german", "division": "grams"})
    assert AnalyzerSettings("german", division="grams", terms="parts") == german


@pytest.mark.parametrize(("code", "language"), [("tr", "turkish"), ("ro", "romanian")])
def test_languages_of_xquad_texts_are_detected(published, code, language):
    for name, share in (("corpus", 0.99), ("queries.test", 0.95)):
        lines = (published / f"xquad_{code}" / f"{name}.jsonl").read_text("utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines[:300]]
        assert sum(language in AUTO.languages(text) for text in texts) >= share * len(texts)


ABOVE, BELOW = "\u0301", "\u0316"
COMBINING = f"{ABOVE}{BELOW}\u3099\uff9e"
ROWS = {
    "Latin": "a" + (ABOVE + BELOW) * 50_000,
    "kana": "か" + ("\u3099" + BELOW) * 50_000,
    "half-width kana": "ｶ" + ("\uff9e" + BELOW) * 50_000,
    "Thai": "ก" + "\u0e48\u0e38" * 50_000,
    "Arabic": "ب" + "\u0651\u064e" * 50_000,
    "identifier": "ab.cd_" + (ABOVE + BELOW) * 50_000,
    "bare": (ABOVE + BELOW) * 50_000,
    "Hangul": "\u1100" * 50_000,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_long_row_of_combining_characters_is_analyzed_in_linear_time(name):
    started = time.monotonic()
    for kind in ("plain", "grams", "icu"):
        list(Analyzer(AnalyzerSettings(division=kind)).spans(ROWS[name]))
    assert contains_phrase(text := fold(ROWS[name]), text)
    # Each of these takes 8 seconds where they are put in order.
    assert time.monotonic() - started < 15


def test_marks_and_digits_are_those_of_the_interpreter_for_what_unicode_14_assigns():
    planes = [*range(0x300, 0x20000), *range(0xE0000, 0xF0000)]
    unicode_14 = re.compile(f"[{division.mark_ranges()}]")
    digits = division.ascii_digits()
    for character in map(chr, planes):
        is_mark = unicodedata.category(character)[0] == "M"
        is_digit = "\u0660" <= character <= "\uffff" and character.isdecimal()
        is_newer = unicodedata.unidata_version != "14.0.0" and (is_mark or is_digit)
        if not is_newer or unicode_14.match(character):
            assert (unicode_14.match(character) is not None) == is_mark, character
        if not is_newer or ord(character) in digits:
            assert (ord(character) in digits) == is_digit, character
        if is_digit and ord(character) in digits:
            assert digits[ord(character)] == str(unicodedata.decimal(character))


@given(st.text(st.sampled_from("aé日\u1100\u1161\u11a8" + COMBINING), max_size=40))
def test_normal_forms_are_those_of_unicode_but_for_long_rows(text):
    for form in ("NFC", "NFD", "NFKC"):
        for length in (1, 20):
            row = text * length
            cut = re.sub(f"([{COMBINING}]{{30}})[{COMBINING}]+", r"\1", row)
            assert normalize(form, row) == unicodedata.normalize(form, cut)
