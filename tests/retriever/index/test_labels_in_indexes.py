"""Names of files and keywords: what is found by them, how they rank, and where they are kept."""

import json
import math
import unicodedata

import pytest

from indexes.bm25.formulas import LABEL_WEIGHT
from retriever import (
    Document,
    Index,
    Mark,
    PassageSettings,
    Synonyms,
    encode_shards,
    export_jsonl,
    import_documents,
    reindexed,
)
from retriever.documents import CorpusReader, passage_text
from retriever.errors import SourceError
from tests.retriever.documents import file_samples as samples

# Its few words are none of the texts.
pytestmark = pytest.mark.filterwarnings("ignore:the encoder does not know the language")

FILES = {
    "boats/kayak_repair-2021.txt": "Sand the hull and wait for two dry days.",
    "boats/oars.txt": "Oil the wood before winter comes back.",
    "src/parseTideTable.py": "def read(path):\n    return open(path).read()\n",
    "walks.md": "---\ntags: [hiking, weekend/alps]\naliases: Bergtour\n---\nTake water and a map.",
    "soup.md": "+++\nkeywords = 'broth, leek'\n+++\nBoil it for an hour.",
    "bread.md": "+++\n[taxonomies]\ntags = ['sourdough']\n+++\nFeed it every second day.",
    "page.html": "<html><head><meta name='Keywords' content='quilting, patchwork'></head>"
    "<body><main><p>Cut squares and sew them row by row.</p></main></body></html>",
    "garden.txt": "The kayak lies behind the shed, and the leek grows beside it.",
}


@pytest.fixture
def notes(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "notes"


@pytest.fixture
def index(tmp_path, notes, model):
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(notes), remember=True)
        yield index


def ids(index, text, **settings):
    return [hit.id for hit in index.search(text, **{"mode": "bm25", **settings})]


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("kayak repair", "boats/kayak_repair-2021.txt"),
        ("kayak_repair-2021.txt", "boats/kayak_repair-2021.txt"),
        ("tide table", "src/parseTideTable.py"),
        ("parseTideTable", "src/parseTideTable.py"),
        ("boat oar", "boats/oars.txt"),
        ("hiking", "walks.md"),
        ("alps", "walks.md"),
        ("bergtour", "walks.md"),
        ("broth", "soup.md"),
        ("sourdough", "bread.md"),
        ("patchwork", "page.html"),
    ],
)
def test_words_of_names_folders_and_keywords_find_their_file(index, text, id_):
    assert ids(index, text)[0] == id_
    assert id_ in ids(index, text, mode="hybrid")


def test_keywords_of_properties_are_metadata_and_labels(tmp_path, monkeypatch):
    book = samples.book_pdf()
    assert b"/Author(Ada)" in book
    (tmp_path / "a.pdf").write_bytes(book.replace(b"/Author(Ada)", b"/Keywords(k)"))
    core = samples.CORE.replace("<t:created>", "<p:keywords>hives; wax</p:keywords><t:created>")
    monkeypatch.setattr(samples, "CORE", core)
    (tmp_path / "b.docx").write_bytes(samples.docx())
    (tmp_path / "c.pptx").write_bytes(samples.pptx())
    keywords = {"a.pdf": "k", "b.docx": "hives; wax", "c.pptx": "hives; wax"}
    for document in CorpusReader(tmp_path):
        assert document.metadata["keywords"] == keywords[document.id]
        labels = [mark.label for mark in document.outline if mark.kind == "label"]
        assert labels == [document.id[0], keywords[document.id]]


@pytest.mark.parametrize(
    ("label", "terms"),
    [
        ("2024 Rechnungen/ÜbersichtMärz.final", "2024 rechnungen übersicht märz final"),
        ("HTTPServer_v2", "http server v2"),
        ("invoice2023 k8s iPhone", "invoice 2023 k8s iphone"),
        ("9f8c2a4b7d01e6", ""),
        ("scan 20231005123000", "scan"),
        ("हिन्दी_नोट", "हिन्दी नोट"),
    ],
)
def test_file_name_replaces_missing_title_unless_generic(label, terms):
    document = Document("a", "Text.", outline=(Mark(0, "label", label),))
    words = label.rpartition("/")[2] if "/" in label else label
    assert passage_text(document, None, "title").casefold() == " ".join(
        [*[term for term in terms.split() if term in words.casefold()], "text."]
    )
    assert passage_text(document, None, "title", names=False) == "Text."
    assert passage_text(document, None, "none") == "Text."
    titled = Document("a", "Text.", "T", outline=document.outline)
    assert passage_text(titled, None, "title") == "T Text."


def test_words_of_a_text_rank_before_words_of_a_name(index):
    assert ids(index, "kayak") == ["garden.txt", "boats/kayak_repair-2021.txt"]
    assert ids(index, "leek") == ["garden.txt", "soup.md"]


def test_a_word_of_a_label_scores_less_than_the_word_in_a_text_of_that_length(index):
    """By the formula: idf of the more frequent of the two, once, with the passage's length."""
    (hit,) = [hit for hit in index.search("kayak", mode="bm25") if hit.id.startswith("boats")]
    info = index.info()
    lengths = {
        document.id: len(index.analyzer.tokens(document.text))
        for document in index
        if document.title is None
    }
    passages = info["passages"]
    label = index[hit.id].outline[0].label
    assert label == "boats/kayak_repair-2021"
    # boat, kayak_repair, kayak, repair, 2021.
    length = lengths[hit.id] + 5
    saturation = 1 / (1 + 1.2 * (0.25 + 0.75 * length / info["mean_passage_terms"]))
    idf = math.log(1 + (passages - 1 + 0.5) / (1 + 0.5))
    assert hit.bm25 == pytest.approx(LABEL_WEIGHT * idf * saturation, rel=1e-3)


def test_a_folder_of_all_files_does_not_change_their_order(tmp_path, model):
    texts = {f"note{number}.md": f"# T{number}\nword{number} " * 3 for number in range(8)}
    texts |= {"a.md": "# A\nThe docs are old.", "b.md": "# B\nThese docs, those docs, all docs."}
    orders = []
    for place in ("flat", "deep"):
        source = tmp_path / place
        folder = source / "docs" if place == "deep" else source
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        with Index.create(tmp_path / f"{place}.index", model) as index:
            index.add(CorpusReader(source))
            orders.append([id_.removeprefix("docs/") for id_ in ids(index, "docs")])
    flat, deep = orders
    assert flat == ["b.md", "a.md"]
    assert deep[:2] == flat


def test_index_without_context_finds_no_file_names(tmp_path, notes, model):
    with Index.create(tmp_path / "none", model, context="none") as index:
        index.add(CorpusReader(notes))
        assert ids(index, "hiking") == []
        assert ids(index, "kayak") == ["garden.txt"]


def test_records_have_no_labels_whatever_their_fields_are(tmp_path, model):
    source = tmp_path / "kayak.jsonl"
    source.write_text('{"id": "x/kayak.md", "text": "A boat.", "tags": ["kayak"]}\n')
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(source))
        assert ids(index, "kayak") == []
        assert index["x/kayak.md"].outline == ()


def scores(index):
    texts = ["kayak", "hiking map", "leek soup", "boat"]
    return [
        [(hit.id, hit.bm25, hit.dense) for hit in index.search(text, k=10, mode="hybrid")]
        for text in texts
    ]


def test_an_index_of_an_earlier_release_ranks_as_before(tmp_path, notes, model):
    bare = [
        Document(
            document_.id,
            document_.text,
            document_.title,
            document_.metadata,
            without_labels(document_.outline),
        )
        for document_ in CorpusReader(notes)
    ]
    earlier = PassageSettings(labels=False)
    with Index.create(tmp_path / "expected", model, passages=earlier) as index:
        index.add(bare)
        expected = scores(index)
        assert index.difference(CorpusReader(notes)).changed == 0
    with Index.create(tmp_path / "index", model, passages=earlier) as index:
        index.add(CorpusReader(notes))
        assert scores(index) == expected
        assert index.add(CorpusReader(notes)).unchanged == len(FILES)
    assert "labels" not in earlier.to_json()


def without_labels(outline):
    return tuple(mark for mark in outline if mark.kind != "label")


def test_labels_survive_export_import_reindexing_and_shards(tmp_path, index, notes, model):
    expected = scores(index)
    index.close()
    folder = tmp_path / "index"
    export_jsonl(folder, tmp_path / "all.jsonl")
    with Index.create(tmp_path / "imported", model) as imported:
        imported.add(CorpusReader(tmp_path / "all.jsonl"))
        assert scores(imported) == expected
    encode_shards(CorpusReader(notes), tmp_path / "shards", model)
    import_documents(tmp_path / "sharded", tmp_path / "shards")
    with Index.open(tmp_path / "sharded") as sharded:
        assert scores(sharded) == expected
    reindexed(folder, context="title")
    with Index.open(folder) as again:
        assert ids(again, "hiking") == ["walks.md"]


def test_a_changed_tag_is_found_after_a_refresh_and_the_old_one_is_not(index, notes):
    (notes / "walks.md").write_text(FILES["walks.md"].replace("hiking", "skiing"))
    assert index.refresh().changed == 1
    assert (ids(index, "hiking"), ids(index, "skiing")) == ([], ["walks.md"])


def test_a_moved_file_is_found_by_its_new_name(index, notes):
    (notes / "soup.md").rename(notes / "stew.md")
    index.refresh()
    assert (ids(index, "soup"), ids(index, "stew")) == ([], ["stew.md"])


def test_copies_are_counted_whatever_their_names_are(index, notes):
    assert index.count_copies() == 0
    (notes / "copy.txt").write_text(FILES["garden.txt"])
    index.refresh()
    assert index.count_copies() == 1


def test_a_hit_of_a_name_has_its_passage_and_no_suggestion_replaces_the_word(index):
    (hit,) = index.search("hiking", mode="bm25")
    assert (hit.passage, hit.place.lines) == ("Take water and a map.", (5, 5))
    assert index.suggestion("hiking") is None
    assert index.facets([], "hiking").matches == 1


def test_more_like_uses_labels(index):
    assert index.more_like("boats/oars.txt", k=3)


def test_long_labels_are_truncated_and_bad_labels_are_refused(tmp_path, notes, model):
    (notes / "spam.html").write_text(
        f"<html><head><meta name='keywords' content='{'buy, ' * 100_000}'></head>"
        "<body><main><p>Nothing else is here to read.</p></main></body></html>"
    )
    (document,) = [document_ for document_ in CorpusReader(notes) if document_.id == "spam.html"]
    assert max(len(mark.label) for mark in document.outline) <= 1000
    with Index.create(tmp_path / "index", model) as index:
        index.add([{"id": "a", "text": "abc", "outline": [[1, "label", "x"]]}])
        # An offset is none of a label: the field is metadata.
        assert index["a"].metadata == {"outline": [[1, "label", "x"]]}
        index.add([Document("b", "abc", outline=(Mark(0, "label", "zebra"),))])
        assert ids(index, "zebra") == ["b"]
    export_jsonl(tmp_path / "index", tmp_path / "b.jsonl")
    lines = map(json.loads, (tmp_path / "b.jsonl").read_text().splitlines())
    assert [line["outline"] for line in lines if line["id"] == "b"] == [[[0, "label", "zebra"]]]


DECOMPOSED = unicodedata.normalize("NFD", "Füße/Größe.md")
COMPOSED = unicodedata.normalize("NFC", DECOMPOSED)


@pytest.fixture
def decomposed(tmp_path):
    path = tmp_path / "notes" / DECOMPOSED
    path.parent.mkdir(parents=True)
    path.write_text("Shoes are measured at night.")
    return tmp_path / "notes"


@pytest.mark.parametrize("typed", [COMPOSED, DECOMPOSED])
def test_file_names_are_found_in_every_unicode_normal_form(tmp_path, decomposed, model, typed):
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(decomposed), remember=True)
        assert [document.id for document in index] == [COMPOSED]
        assert typed in index
        assert index[typed].text == "Shoes are measured at night."
        assert index.more_like(typed) == []
        for where in (f'id = "{typed}"', f'id in ("x", "{typed}")', f'id like "%{typed[-7:]}"'):
            assert len(index.search("shoes", mode="bm25", where=where)) == 1, where
        assert not index.search("shoes", mode="bm25", where=f'id != "{typed}"')
        assert index.delete([typed]) == 1
    with pytest.raises(SourceError, match="1 excluded"):
        CorpusReader(decomposed, exclude=["x.md", typed.rpartition("/")[2]])
    (document,) = CorpusReader(decomposed / typed)
    assert document.id.endswith(COMPOSED)


def test_record_ids_of_different_unicode_normal_forms_stay_distinct(tmp_path, model):
    with Index.create(tmp_path / "index", model) as index:
        index.add([{"id": COMPOSED, "text": "one"}, {"id": DECOMPOSED, "text": "two"}])
        assert (index[COMPOSED].text, index[DECOMPOSED].text) == ("one", "two")
        assert index.delete([DECOMPOSED]) == 1
        assert [document.id for document in index] == [COMPOSED]


def test_an_index_with_decomposed_ids_keeps_them(tmp_path, decomposed, model, monkeypatch):
    # As earlier releases did.
    monkeypatch.setattr("retriever.documents.folders.normalize_name", lambda name: name)
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(decomposed), remember=True)
        assert [document.id for document in index] == [DECOMPOSED]
        monkeypatch.undo()
        index.refresh()
        index.add(CorpusReader(decomposed), remember=True)
        assert [document.id for document in index] == [DECOMPOSED]
        (decomposed / DECOMPOSED).write_text("Shoes are measured at noon.")
        report = index.refresh()
        assert (report.changed, report.added, report.removed) == (1, 0, 0)
        assert index[COMPOSED].text == "Shoes are measured at noon."
        assert index.search("noon", mode="bm25", where=f'id = "{COMPOSED}"')


def test_files_whose_names_differ_by_form_alone_do_not_collide_silently(decomposed):
    (decomposed / COMPOSED).parent.mkdir()
    (decomposed / COMPOSED).write_text("Another file.")
    reader = CorpusReader(decomposed, on_error="skip-files")
    assert len(list(reader)) == 1
    assert reader.skipped == 1
    assert "was given before" in reader.problems[0]


def test_expansions_of_a_query_find_names(tmp_path, model):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "configuration_Jürgens.txt").write_text("Turn it off and on.")
    (folder / "text.txt").write_text("The configuration of Jürgens.")
    (folder / "other.txt").write_text("Bread and butter.")
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(folder))
        both = ["text.txt", "configuration_Jürgens.txt"]
        assert ids(index, "config*", raw=False) == both
        assert ids(index, "Juergens") == both


def test_a_word_of_the_title_counts_there_alone(tmp_path, model):
    for folder, names in (("named", ("Kayaks.md", "Boats.md")), ("numbered", ("1.md", "2.md"))):
        for name, title in zip(names, ("Kayaks", "Boats"), strict=True):
            path = tmp_path / folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"# {title}\n\nPaint them each spring.\n")
    scores = []
    for folder in ("named", "numbered"):
        with Index.create(tmp_path / f"{folder}.index", model) as index:
            index.add(CorpusReader(tmp_path / folder))
            scores.append([hit.score for hit in index.search("kayaks", mode="bm25")])
    assert scores[0] == scores[1]
    assert len(scores[0]) == 1


@pytest.mark.parametrize("mode", ["bm25", "hybrid", "dense"])
@pytest.mark.parametrize(
    ("phrase", "id_"),
    [
        ("kayak repair", "boats/kayak_repair-2021.txt"),
        ("kayak_repair-2021.txt", "boats/kayak_repair-2021.txt"),
        ("boats/oars.txt", "boats/oars.txt"),
        ("parse tide table", "src/parseTideTable.py"),
        ("weekend/alps", "walks.md"),
        ("broth, leek", "soup.md"),
    ],
)
def test_a_phrase_is_found_in_a_name_and_in_keywords(index, mode, phrase, id_):
    (hit,) = index.search(f'"{phrase}"', mode=mode, raw=False)
    assert (hit.id, hit.passage) == (id_, index[id_].text.strip())


def test_query_excludes_words_and_phrases_of_file_names(index):
    both = ["garden.txt", "boats/kayak_repair-2021.txt"]
    assert ids(index, "kayak", raw=False) == both
    for text in ("kayak -repair", "kayak -repairs", 'kayak -"kayak repair"', "kayak -boats"):
        assert ids(index, text, raw=False) == both[:1], text
    assert ids(index, "kayak", exclude=["boat"]) == both[:1]
    reason = index.no_hits_reason("hiking -bergtour", mode="bm25", raw=False)
    assert "-bergtour" in reason


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("reppair of it", "repair of it"),
        ("hikking", "hiking"),
        ("parsse", "parse"),
        ("patchwoork", "patchwork"),
    ],
)
def test_words_of_names_and_keywords_are_suggested(index, typed, expected):
    assert ids(index, typed) == []
    assert index.suggestion(typed) == expected


def test_text_match_ranks_before_expanded_match_in_file_name(tmp_path, model):
    folder = tmp_path / "notes"
    folder.mkdir()
    filler = "and then the boats were painted in the long evenings of that summer by the lake"
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"The varnishing by Köhler {filler}.")
    (folder / "varnishes_Köhler.txt").write_text("Two.")
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(folder))
        for text in ("varni*", "Koehler"):
            # However rare the word is in names.
            assert ids(index, text, raw=False)[-1] == "varnishes_Köhler.txt"
        (expansion,) = index.expansions("varni*", raw=False)
        assert expansion.word == "varni*"


def test_a_beginning_longer_than_the_stem_finds_names(tmp_path, notes, model):
    (notes / "Configuration tips.txt").write_text("Turn it off and on.")
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(notes))
        assert ids(index, "configura*", raw=False) == ["Configuration tips.txt"]
        assert ids(index, "quiltin*", raw=False) == ["page.html"]


def test_synonyms_of_several_words_find_names(tmp_path, notes, model):
    (notes / "Rio de Janeiro").mkdir()
    (notes / "Rio de Janeiro/hotel.txt").write_text("Breakfast at nine.")
    with Index.create(tmp_path / "index", model) as index:
        index.add(CorpusReader(notes))
        index.synonyms = Synonyms([["carioca", "rio de janeiro"]])
        assert ids(index, "carioca") == ["Rio de Janeiro/hotel.txt"]
