"""Other spellings, beginnings of words and synonyms in queries, against a look at the texts."""

from __future__ import annotations

import random
import re
from itertools import islice

import pytest

from retriever import (
    AnalyzerSettings,
    BadInputError,
    ConfigError,
    Index,
    SourceError,
    Synonyms,
    load_synonyms,
)
from retriever.search.expansions import find_spellings
from retriever.search.queries import highlights

WORDS = [
    *("migrate", "migrating", "migration", "migrations", "migratory", "migraine", "mild"),
    *(
        "index",
        "indexes",
        "indices",
        "indexing",
        "indexed",
        "Indexer",
        "indie",
        "study",
        "studying",
    ),
    *("studious", "student", "übung", "Übungen", "uebrig", "run", "running", "runtime"),
]


def ids(index, text, **keywords):
    keywords = {"mode": "bm25", "k": 100, "raw": False} | keywords
    return [hit.id for hit in index.search(text, **keywords)]


@pytest.fixture
def make(tmp_path, fake_encoder):
    """A function that makes an index of texts by id."""

    def make_index(texts, **settings):
        index = Index.create(tmp_path / "index", **settings)
        index.add({"id": id_, "text": text} for id_, text in texts.items())
        return index

    return make_index


FILLER = "was seen by the harbor on a cold morning"


@pytest.mark.parametrize("language", ["auto", "english", "none", "swedish", "danish"])
@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("Schröder", "Schroeder"),
        ("Schröder", "SCHROEDER"),
        ("Schröder", "schroeder,"),
        ("Öster", "Oester"),
        ("Øster", "Oester"),
        ("Kjærgård", "Kjaergaard"),
        ("Ångström", "Aangstroem"),
        ("Cœur", "coeur"),
        ("Füßli", "Fuessli"),
        ("Übermühle", "Uebermuehle"),
        ("Scho\u0308nberg", "Schoenberg"),
    ],
)
def test_a_name_and_its_spelling_without_umlauts_find_each_other(make, language, written, typed):
    texts = {"umlaut": f"{written} {FILLER}", "letters": f"{typed} {FILLER}", "other": FILLER}
    with make(texts, analyzer=AnalyzerSettings(language)) as index:
        # The exact spelling is first.
        assert ids(index, typed) == ["letters", "umlaut"]
        assert ids(index, written) == ["umlaut", "letters"]
        assert ids(index, typed, raw=True) == ["letters", "umlaut"]
        assert ids(index, f"{typed} morning")[:2] == ["letters", "umlaut"]


def test_the_exact_spelling_is_first_beside_german_texts(make):
    german = "Der Arzt {} hat den Patienten am Montag untersucht, und die Familie war froh."
    texts = {"one": german.format("Bjørnsen"), "two": german.format("Bjoernsen")}
    with make(texts) as index:
        assert index.languages == {"german": 2}
        # The stem of the latter is the former without its accent.
        assert ids(index, "Bjoernsen") == ["two", "one"]
        assert ids(index, "Bjørnsen") == ["one", "two"]


def test_a_few_texts_in_a_language_without_umlauts_in_stems_change_nothing(make):
    """The German stems of Möller and Moeller, which few passages have, are no reason."""
    texts = {f"{number:02}": f"The boat {FILLER} with a lamp" for number in range(60)}
    texts |= {"umlaut": f"The poet Möller {FILLER}", "letters": f"The poet Moeller {FILLER}"}
    texts |= {"german": "Der Arzt hat den Patienten am Montag untersucht und war sehr froh."}
    with make(texts) as index:
        assert index.languages == {"english": 62, "german": 1}
        assert ids(index, "Moeller") == ["letters", "umlaut"]
        assert ids(index, "Möller") == ["umlaut", "letters"]


def test_letters_side_by_side_that_are_no_umlaut_find_nothing_else(make):
    texts = {"blue": "a blue poet", "value": "the value of shoes", "bluhm": "Blühm Pötter"}
    with make(texts) as index:
        assert ids(index, "blue poet") == ["blue"]
        assert index.expansions("blue poet value shoes") == []
        assert ids(index, "Bluehm") == ["bluhm"]


def test_a_name_without_its_umlaut_is_no_spelling_of_it(make):
    with make({"bare": f"Schroder {FILLER}", "umlaut": f"Schröder {FILLER}"}) as index:
        assert ids(index, "Schroeder") == ["umlaut"]


def test_word_found_in_other_spelling_gets_no_correction(make):
    with make({"a": "Schröder wrote", "b": "the migration of birds"}) as index:
        assert index.suggestion("Schroeder") is None
        assert index.suggestion("migra*") is None
        assert index.suggestion("migratoin") == "migration"


def test_a_stem_without_the_spelling_is_no_other_spelling(make):
    with make({"stem": f"the viru {FILLER}", "word": f"virüs {FILLER}"}) as index:
        # The stem of "virues" is "viru".
        assert ids(index, "virüs") == ["word"]


def test_spellings_are_those_of_each_place():
    assert set(find_spellings("oeoe")) == {
        a + b for a in ("oe", "ö", "ø", "œ") for b in ("oe", "ö", "ø", "œ")
    } - {"oeoe"}
    assert list(find_spellings("plain")) == []
    assert len(list(islice(find_spellings("ae" * 5000), 10))) == 10


def test_query_with_many_spellings_is_expanded_in_little_time(make):
    with make({"a": "Schröder"}) as index:
        assert ids(index, "aeoeue" * 2000) == []
        assert ids(index, " ".join(f"ae{number}oe" for number in range(3000)) + " Schroeder")


def test_beginnings_find_every_word_that_begins_so_below_the_word_itself(make):
    chance = random.Random(2)
    texts = {
        f"{number:03}": " ".join(chance.choices(WORDS, k=3)) + " " + FILLER for number in range(90)
    }
    with make(texts) as index:
        for beginning in ("mig", "migra", "migrati", "indi", "index", "indexi", "studyi", "stud"):
            pattern = re.compile(rf"\b{beginning}", re.IGNORECASE)
            expected = {id_ for id_, text in texts.items() if pattern.search(text)}
            assert expected
            assert expected <= set(ids(index, f"{beginning}*"))
            assert ids(index, beginning) == ids(index, beginning, raw=True)
        # Stems meet: nothing without a form of such a word.
        assert set(ids(index, "mil*")) == {id_ for id_, text in texts.items() if "mild" in text}


def test_the_word_itself_is_before_others_that_begin_so(make):
    texts = {
        "exact": f"the config {FILLER} and again in the long evening hours of the same day",
        "many": "configuration configurations configurable configure configmap",
        "none": f"a confession {FILLER}",
    }
    with make(texts) as index:
        assert ids(index, "config*") == ["exact", "many"]
        assert ids(index, "CONFIG*") == ["exact", "many"]
        assert ids(index, "(config*)") == ["exact", "many"]
        assert ids(index, "where is config*?")[0] == "exact"
        assert ids(index, "confi*") == ["many", "exact"] or ids(index, "confi*")[1] == "many"
        for mode in ("hybrid", "bm25"):
            assert {"exact", "many"} <= set(ids(index, "config*", mode=mode, k=3))


@pytest.mark.parametrize(
    "text",
    [
        *("co*", "*.config", "config * map", "**config**", "*config*", "see *the config*"),
        *('"config*"', "config**", "config*map", "config*.yaml", "a*b"),
    ],
)
def test_asterisk_not_at_end_of_word_is_text(make, text):
    with make({"a": "the config of it", "b": "the configmap"}) as index:
        assert index.expansions(text, raw=False) == []


def test_an_asterisk_that_a_document_has_as_written_is_text(make):
    texts = {
        "pointer": "In C, a string is a char* or an array.",
        "character": "The character of a play.",
        "emphasis": "Read *all of the regular* rules; a regulation says so.",
    }
    with make(texts) as index:
        assert ids(index, "char*") == ["pointer"]
        assert ids(index, "charac*") == ["character"]
        # Emphasis that ends there is no asterisk of the text.
        assert index.expansions("regular*", raw=False) == []
        assert [value.word for value in index.expansions("regul*", raw=False)] == ["regul*"]


def test_raw_query_expands_no_prefix(make):
    with make({"a": "config", "b": "configuration"}) as index:
        assert ids(index, "config*", raw=True) == ["a"]
        assert index.expansions("config*") == []
        assert ids(index, "config*") == ["a", "b"]


def test_beginnings_of_scripts_without_spaces_and_of_other_scripts(make):
    texts = {
        "tokyo": "東京都の天気",
        "moscow": "Погода в Московской области",
        "kids": "बच्चों की किताब",
    }
    with make(texts) as index:
        assert ids(index, "東*") == ["tokyo"]
        assert ids(index, "моск*") == ["moscow"]
        assert ids(index, "किता*") == ["kids"]


def test_beginnings_with_umlauts_find_both_spellings(make):
    texts = {"umlaut": "die Übungen", "letters": "die Uebungen", "other": "die Ubung"}
    with make(texts, analyzer=AnalyzerSettings("none")) as index:
        assert set(ids(index, "übun*")) == {"umlaut", "letters", "other"}
        assert {"umlaut", "letters"} <= set(ids(index, "uebun*"))


def test_a_beginning_with_ae_finds_no_word_with_a(make):
    texts = {"anaemia": "mild anaemia", "umlaut": "die Anämie", "other": "anamnestic doubts"}
    with make(texts, analyzer=AnalyzerSettings("english")) as index:
        assert ids(index, "anaem*") == ["anaemia", "umlaut"]
        assert set(ids(index, "anäm*")) == {"anaemia", "umlaut", "other"}


def test_facets_weights_and_highlights_know_expansions(make, tmp_path):
    texts = {"a": "Schröder went", "b": "the configuration", "c": "nothing"}
    with make(texts) as index:
        index.add({"id": id_, "text": text, "kind": id_} for id_, text in texts.items())
        for text, id_, word in (("Schroeder", "a", "Schröder"), ("confi*", "b", "configuration")):
            facets = index.facets(["kind"], text, raw=False)
            assert facets.matches == 1
            assert {value.value: value.matches for value in facets.fields["kind"].values}[id_] == 1
            weights = index.term_weights(text, raw=False)
            ((start, stop),) = highlights(texts[id_], index.analyzer, weights, index.languages)
            assert texts[id_][start:stop] == word
        reason = index.no_hits_reason("confi*", mode="bm25", raw=False, where='kind = "c"')
        assert "change the filter" in reason


GROUPS = [["nyc", "New York City", "big apple"], ["car", "automobile"], ["C++", "cpp"]]


def test_synonyms_find_phrases_of_their_group_below_the_words_themselves(make):
    texts = {
        "nyc": f"a flight to NYC {FILLER}",
        "city": f"a flight to New York City {FILLER}",
        "york": f"a flight to York, a new city {FILLER}",
        "yorkshire": f"a flight to York {FILLER}",
        "automobile": f"an automobile {FILLER}",
        "cars": f"many cars {FILLER}",
    }
    with make(texts) as index:
        assert ids(index, "nyc") == ["nyc"]
        index.synonyms = Synonyms(GROUPS)
        # All words of a phrase, wherever they stand in a passage.
        assert ids(index, "nyc") == ["nyc", "city", "york"]
        assert ids(index, "flight new york city")[:2] == ["city", "york"]
        assert "nyc" in ids(index, "new york city")
        assert "nyc" not in ids(index, "new york")
        assert ids(index, "automobiles") == ["automobile", "cars"]
        assert ids(index, "NYC", raw=True) == ["nyc", "city", "york"]
        (expansion,) = index.expansions("car")
        assert (expansion.word, expansion.alternatives) == ("car", (("automobil",),))
        index.synonyms = None
        assert ids(index, "nyc") == ["nyc"]


def test_synonyms_of_scripts_without_spaces_are_found_within_a_run(make):
    with make({"tokyo": "東京の天気", "edo": "江戸の天気は雨", "kyoto": "京都"}) as index:
        index.synonyms = Synonyms([["東京", "江戸"]])
        assert ids(index, "東京都庁")[:1] == ["tokyo"]
        assert "edo" in ids(index, "東京都庁")


def test_synonyms_leave_dense_ranks_alone(make):
    with make({"a": "an automobile", "b": "a car", "c": "a boat"}) as index:
        before = ids(index, "car", mode="dense")
        index.synonyms = Synonyms(GROUPS)
        assert ids(index, "car", mode="dense") == before


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        (b"a, b\nalone\n", 2, "found 1 phrase"),
        (b"# only a comment\n\na,,b\n", 3, "expected a phrase"),
        (b"a, b\n\n\xff, c\n", 3, "UTF-8"),
        (b"a => b, c", 1, "separate phrases by commas"),
        (b"x, " + b"w " * 11, 1, "1 to 10 words"),
        (b", ".join(b"w%d" % n for n in range(51)), 1, "found 51 phrases"),
        (b"a, b\n" * 10_001, 10_001, "10,000 groups"),
    ],
)
def test_a_bad_file_of_synonyms_is_refused_with_its_line(tmp_path, content, line, expected):
    path = tmp_path / "synonyms.txt"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=re.escape(f"{path}:{line}: ")) as error:
        load_synonyms(path)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_synonyms_has_comments_a_byte_order_mark_and_any_line_end(tmp_path):
    path = tmp_path / "synonyms.txt"
    path.write_bytes(b"\xef\xbb\xbf# cities\r\nnyc,  New   York # note\r\n\r\nC#, csharp\r\n")
    assert load_synonyms(path).groups == [["nyc", "New York"], ["C#", "csharp"]]


def test_a_file_of_synonyms_is_limited_and_must_be_there(tmp_path):
    path = tmp_path / "synonyms.txt"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(BadInputError, match="at most 1,000,000 bytes"):
        load_synonyms(path)
    with pytest.raises(SourceError, match="cannot read synonyms"):
        load_synonyms(tmp_path)


def test_synonyms_of_a_program_are_checked_too():
    with pytest.raises(ConfigError, match="group 2: expected 2 to 50"):
        Synonyms([["a", "b"], ["c"]])
    with pytest.raises(ConfigError, match="group 1: expected phrases"):
        Synonyms(["ab"])


def test_queries_without_expansions_have_the_same_scores_beside_them(make):
    texts = {f"{number}": " ".join(WORDS[number : number + 5]) for number in range(15)}
    with make(texts) as index:
        before = list(index.rank(["migration of the index", "studying"], mode="bm25", k=20))
        index.synonyms = Synonyms(GROUPS)
        after = list(index.rank(["migration of the index", "studying"], mode="bm25", k=20))
        assert before == after


@pytest.mark.parametrize(
    "store", ["postgres_url", pytest.param("milvus_url", marks=pytest.mark.milvus)]
)
def test_other_stores_find_what_a_folder_finds(make, request, store):
    texts = {f"{number:02}": " ".join(WORDS[number : number + 3]) for number in range(20)}
    texts |= {"a": "Schröder writes 100%_sure", "b": "int* p, the integer", "c": "100 percent"}
    with make(texts) as index, Index.create(request.getfixturevalue(store)) as other:
        other.add(index)
        is_exact = store != "milvus_url"
        phrase = "mild migraine" if is_exact else "mild"
        other.synonyms = index.synonyms = Synonyms([["diploma", phrase, "runtime"]])
        queries = ["Schroeder", "diploma"]
        beginnings = ["migra*", "migrati*", "studyi*", "int*", "inte*", "100*"]
        for query in queries + beginnings * is_exact:
            expected = index.search(query, mode="bm25", k=30, raw=False)
            assert expected
            hits = other.search(query, mode="bm25", k=30, raw=False)
            assert {hit.id for hit in hits} == {hit.id for hit in expected}, query
            scores = {hit.id: hit.score for hit in hits}
            # Milvus scores each alternative on its own.
            for hit in expected if is_exact else ():
                assert scores[hit.id] == pytest.approx(hit.score, rel=1e-5), query
