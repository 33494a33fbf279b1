"""Ready vectors into an index: a round trip changes no answer, and what is wrong is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from indexes.folder.verify import verify
from retriever import (
    AnalyzerSettings,
    CommitSettings,
    Document,
    Fields,
    Index,
    IndexingReport,
    SearchSettings,
)
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError, SourceError
from retriever.index.export import export_jsonl, export_npy
from retriever.index.imports import import_documents
from retriever.index.ready import unit_vectors
from tests.retriever.index.moving_samples import (
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)

DENSE = SearchSettings(mode="dense", k=10)
SMALL = CommitSettings(passages=30)
EAST, NORTH = [1, 0, 0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0, 0, 0]


@pytest.fixture
def model(tmp_path):
    return word_vectors(tmp_path / "words.txt")


@pytest.fixture
def choice(model):
    return choice_of(model)


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def one_line(error):
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["jsonl", "npy"])
def test_export_and_import_give_equal_answers_in_every_mode(tmp_path, choice, seed, form):
    source = make_index(tmp_path / "one", choice, random_documents(80, seed))
    with Index.open(source) as index:
        index.delete([f"d{number}" for number in range(0, 80, 7)])
    export_jsonl(source, tmp_path / "out.jsonl", vectors=form == "jsonl")
    vectors = None
    if form == "npy":
        vectors = tmp_path / "vectors.npy"
        export_npy(source, vectors)
    report = import_documents(
        tmp_path / "two",
        tmp_path / "out.jsonl",
        vectors=vectors,
        commit=SMALL,
    )
    assert stored(tmp_path / "two") == stored(source)
    assert answers(tmp_path / "two") == answers(source)
    with Index.open(source) as one, Index.open(tmp_path / "two") as two:
        assert report.passages == two.info()["passages"] == one.info()["passages"]
        assert two.encoder_spec == one.encoder_spec
    assert (report.added, report.scaled) == (len(stored(source)), 0)
    assert verify(tmp_path / "two") == []


def test_one_vector_a_document_is_ranked_by_its_product_with_the_query(tmp_path, model):
    chance = np.random.default_rng(5)
    vectors = {f"d{i}": chance.standard_normal(8).tolist() for i in range(30)}
    records = [{"key": id_, "text": "w1", "embedding": v} for id_, v in vectors.items()]
    report = import_documents(
        tmp_path / "my.index",
        write(tmp_path / "in.jsonl", *records),
        str(model),
        fields=Fields(id="key"),
        vector_field="embedding",
    )
    assert report == IndexingReport(added=30, passages=30, scaled=30)
    with Index.open(tmp_path / "my.index") as index:
        query = index.encoder.encode(["w3 w4"], query=True)[0]
        hits = index.search("w3 w4", DENSE)
    scores = {id_: np.dot(v, query) / np.linalg.norm(v) for id_, v in vectors.items()}
    best = sorted(scores, key=lambda id_: -scores[id_])[:10]
    assert [hit.id for hit in hits] == best
    np.testing.assert_allclose(
        [hit.score for hit in hits], [scores[id_] for id_ in best], atol=2e-6
    )


def test_a_matrix_beside_a_corpus_has_its_rows_in_order(tmp_path, model):
    corpus = tmp_path / "c.csv"
    corpus.write_text("id,text,year\nx,w1,1999\ny,w2,2000\n")
    np.save(tmp_path / "v.npy", np.asfortranarray([NORTH, EAST], np.float16))
    import_documents(tmp_path / "my.index", corpus, str(model), vectors=tmp_path / "v.npy")
    found = stored(tmp_path / "my.index")
    assert found == {
        "x": (None, "w1", {"year": 1999}, [(0, 2)], [NORTH]),
        "y": (None, "w2", {"year": 2000}, [(0, 2)], [EAST]),
    }


def test_ids_as_encode_writes_them_are_compared(tmp_path, model):
    corpus = write(tmp_path / "c.jsonl", {"id": "x", "text": "w1"}, {"id": "y", "text": "w2"})
    np.save(tmp_path / "v.npy", np.array([NORTH, EAST], np.float32))
    (tmp_path / "v.ids.jsonl").write_text('"y"\n"x"\n')
    folder, choice = tmp_path / "my.index", str(model)
    with pytest.raises(SourceError, match=r"v\.ids\.jsonl:1: expected the document 'x', found 'y'"):
        import_documents(folder, corpus, choice, vectors=tmp_path / "v.npy")
    (tmp_path / "v.ids.jsonl").write_text('"x"\n"y"\n')
    assert import_documents(folder, corpus, choice, vectors=tmp_path / "v.npy").added == 2


GOOD = {"id": "a", "text": "w1 w2", "vector": EAST}
PASSAGE = {"start": 0, "stop": 2, "vector": EAST}
BAD = {
    "wrong dimension": ({"vector": EAST[:5]}, "expected vectors of 8 dimensions", "found 5"),
    "nan": ({"vector": [float("nan"), *EAST[1:]]}, "NaN"),
    "infinity": ({"vector": [*EAST[1:], float("inf")]}, "infinity"),
    "too large for float32": ({"vector": [1e39, *EAST[1:]]}, "too large"),
    "too large for anything": ({"vector": [10**400, *EAST[1:]]}, "too large"),
    "text in it": ({"vector": ["1", *EAST[1:]]}, "list of 8 numbers"),
    "truth in it": ({"vector": [True, *EAST[1:]]}, "list of 8 numbers"),
    "no list": ({"vector": "base64"}, "list of 8 numbers"),
    "missing": ({"vector": None}, "found neither", "--vector-field"),
    "both": ({"vectors": [PASSAGE]}, "found both"),
    "no passage": ({"vector": None, "vectors": []}, "list of passages"),
    "a list of numbers": ({"vector": None, "vectors": EAST}, "list of passages"),
    "a passage without stop": (
        {"vector": None, "vectors": [PASSAGE, {"start": 0, "vector": EAST}]},
        "list of passages",
    ),
    "a passage outside": (
        {"vector": None, "vectors": [PASSAGE | {"stop": 6}]},
        "text of 5 characters, found 0 to 6",
    ),
    "truth as a place": (
        {"vector": None, "vectors": [PASSAGE | {"start": False}]},
        "found False to 2",
    ),
    "a passage backwards": (
        {"vector": None, "vectors": [PASSAGE | {"start": 3}]},
        "found 3 to 2",
    ),
    "a short passage vector": (
        {"vector": None, "vectors": [PASSAGE, PASSAGE | {"vector": [1]}]},
        "passage 2",
        "found 1;",
    ),
    "an id again": ({"id": "a"}, "'a' was given before, at "),
    "no text": ({"text": None}, "'text' is null"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_record_that_cannot_be_used_is_named_and_those_before_it_stand(tmp_path, model, bad):
    changes, *parts = BAD[bad]
    source = write(tmp_path / "in.jsonl", GOOD, {**GOOD, "id": "b", **changes})
    with pytest.raises(SourceError) as caught:
        import_documents(tmp_path / "my.index", source, str(model))
    message = one_line(caught)
    assert message.startswith(f"{source}:2: ")
    for part in parts:
        assert part in message
    assert set(stored(tmp_path / "my.index")) == {"a"}
    assert verify(tmp_path / "my.index") == []


def test_what_was_read_before_a_bad_record_stands_and_is_counted(tmp_path, model):
    records = [{**GOOD, "id": f"d{i:04}"} for i in range(1200)]
    source = write(tmp_path / "in.jsonl", *records, {"id": "bad", "text": "w1"})
    report, folder = IndexingReport(), tmp_path / "my.index"
    with pytest.raises(SourceError, match="1201"):
        import_documents(
            folder, source, str(model), commit=CommitSettings(passages=1), report=report
        )
    assert report.added == len(stored(folder)) == 1200
    assert verify(folder) == []
    write(source, *records)
    again = import_documents(folder, source, str(model))
    assert (again.added, again.unchanged) == (0, 1200)


def held(folder):
    return set(stored(folder)) if folder.exists() else set()


def matrix(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (np.zeros((3, 8)), ["vectors of 2 documents", "found those of 3"]),
        (np.zeros((1, 8)), ["vectors of 2 documents", "found those of 1"]),
        (np.zeros((2, 7)), ["8 dimensions", "found 7", "--model"]),
        (np.zeros(16), ["shape (rows, 8)", "(16,)"]),
        (np.zeros((2, 8), np.int64), ["expected floats", "int64"]),
        (np.array([EAST, [np.nan] * 8]), ["row 1 (counted from 0)", "NaN"]),
        (np.array([EAST, ["x"] * 8], object), ["numpy.save"]),
    ],
    ids=["more", "fewer", "wide", "flat", "integers", "nan", "pickle"],
)
def test_a_matrix_that_does_not_fit_is_named(tmp_path, model, rows, parts):
    corpus = write(tmp_path / "c.jsonl", {"id": "x", "text": "w1"}, {"id": "y", "text": "w2"})
    matrix(tmp_path, rows)
    with pytest.raises(SourceError) as caught:
        import_documents(tmp_path / "my.index", corpus, str(model), vectors=tmp_path / "v.npy")
    message = one_line(caught)
    assert str(tmp_path / "v.npy") in message
    for part in parts:
        assert part in message
    # Faults that are found before reading create no index; rows are checked one by one.
    assert held(tmp_path / "my.index") == ({"x"} if "row 1" in parts[0] else set())


@pytest.mark.parametrize(
    ("ids", "part"),
    [
        ('"x"\n', "expected 2 lines"),
        ('"x"\n"y"\n"z"\n', "expected 2 lines"),
        ('"x"\n{"id": "y"}\n', "v.ids.jsonl:2: expected the id"),
        ('"x"\nnot json\n', "v.ids.jsonl:2: expected the id"),
        ('"x"\n{"id": "y", "start": 0, "stop": 99}\n', "v.ids.jsonl:2: expected a passage inside"),
        ('{"id": "x", "start": 0, "stop": 1}\n{"id": "x", "start": 1, "stop": 2}\n', "found those"),
    ],
)
def test_ids_that_do_not_fit_are_named(tmp_path, model, ids, part):
    corpus = write(tmp_path / "c.jsonl", {"id": "x", "text": "w1"}, {"id": "y", "text": "w2"})
    matrix(tmp_path, np.array([EAST, NORTH]))
    (tmp_path / "v.ids.jsonl").write_text(ids)
    with pytest.raises(SourceError) as caught:
        import_documents(tmp_path / "my.index", corpus, str(model), vectors=tmp_path / "v.npy")
    assert part in one_line(caught)
    assert held(tmp_path / "my.index") == ({"x"} if "inside" in part else set())


def test_other_sources_are_refused_before_an_index_is_made(tmp_path, model):
    choice, folder = str(model), tmp_path / "my.index"
    corpus = write(tmp_path / "c.jsonl", {"id": "x", "text": "w1"})
    with pytest.raises(ConfigError, match="name it with --model"):
        import_documents(folder, corpus)
    with pytest.raises(SourceError, match="read twice"):
        import_documents(folder, "-", choice, vectors=tmp_path / "v.npy")
    with pytest.raises(SourceError, match="no such file"):
        import_documents(folder, tmp_path / "none.csv", choice, vectors=tmp_path / "v.npy")
    assert not folder.exists()
    (tmp_path / "c.csv").write_text("id,text\n1,w1\n")
    with pytest.raises(SourceError, match="expected JSON Lines"):
        import_documents(folder, tmp_path / "c.csv", choice)
    with pytest.raises(SourceError, match="no records"):
        import_documents(folder, write(tmp_path / "e.jsonl"), choice)
    with pytest.raises(SourceError, match=r"v\.npy: no such file"):
        import_documents(folder, corpus, choice, vectors=tmp_path / "v.npy")


def test_the_encoder_beside_an_export_is_taken_and_checked(tmp_path, choice, model):
    source = make_index(tmp_path / "one", choice, random_documents(5))
    export = tmp_path / "out.jsonl"
    export_jsonl(source, export, vectors=True)
    other = word_vectors(tmp_path / "others.txt", seed=9)
    for wrong in (str(other), choice_of(model, "max-length=20")):
        with pytest.raises(EncoderMismatchError) as caught:
            import_documents(tmp_path / "two", export, wrong)
        assert "out.encoder.json" in one_line(caught)
    assert not (tmp_path / "two").exists()
    # An index of the same model with another window.
    make_index(tmp_path / "three", str(model), [Document("x", "w1")])
    with pytest.raises(EncoderMismatchError) as caught:
        import_documents(tmp_path / "three", export)
    assert str(tmp_path / "three") in one_line(caught)
    # Settings that are not given come from the file.
    import_documents(tmp_path / "two", export, str(model))
    with Index.open(tmp_path / "two") as index:
        assert index.encoder_spec.max_length == 12
    word_vectors(model, seed=3)
    with pytest.raises(EncoderMismatchError) as caught:
        import_documents(tmp_path / "four", export)
    assert str(model) in one_line(caught)
    (tmp_path / "out.encoder.json").write_text('{"encoder": 3}')
    with pytest.raises(SourceError, match="specification of an encoder"):
        import_documents(tmp_path / "four", export)
    assert not (tmp_path / "four").exists()


def test_vectors_of_an_encoder_that_does_not_normalize_stay_as_they_are(tmp_path, model):
    chance = np.random.default_rng(1)
    powers = 10.0 ** chance.uniform(-44, 38, (200, 8))
    wild = (chance.choice([-1, 1], powers.shape) * powers).astype(np.float32)
    choice = f"{model}::normalize=no"
    records = [
        {"id": f"{i:03}", "text": "w1", "vector": row.tolist()} for i, row in enumerate(wild)
    ]
    report = import_documents(tmp_path / "one", write(tmp_path / "in.jsonl", *records), choice)
    assert report.scaled == 0
    export_jsonl(tmp_path / "one", tmp_path / "out.jsonl", vectors=True)
    import_documents(tmp_path / "two", tmp_path / "out.jsonl")
    for folder in ("one", "two"):
        found = [vectors[0] for *_, vectors in stored(tmp_path / folder).values()]
        np.testing.assert_array_equal(np.array(found, np.float32), wild)


def test_vectors_get_length_one_and_others_keep_every_bit():
    unit = np.float32([[0.6, 0.8], [0.6, 0.80005], [0, 0]])
    vectors, changed = unit_vectors(np.concatenate([unit, np.float32([[3, 4], [3e30, 4e30]])]))
    assert changed == 2
    np.testing.assert_array_equal(vectors[:3], unit)
    np.testing.assert_allclose(vectors[3:], [[0.6, 0.8]] * 2, rtol=1e-6)


def test_unchanged_documents_keep_their_vectors_and_changed_ones_are_replaced(tmp_path, model):
    choice, folder = str(model), tmp_path / "my.index"
    make_index(folder, choice, [Document(id_, f"w{i}") for i, id_ in enumerate("abc")])
    before = stored(folder)
    source = write(
        tmp_path / "in.jsonl",
        {"id": "a", "text": "w0", "vector": EAST},
        {"id": "b", "text": "w1", "vector": EAST, "new": 1},
        {"id": "c", "text": "w9", "vector": EAST},
        {"id": "d", "text": "w9", "vector": EAST},
    )
    report = import_documents(folder, source, choice)
    assert report == IndexingReport(added=1, updated=2, unchanged=1, passages=2)
    found = stored(folder)
    assert found["a"] == before["a"]
    assert found["b"] == (None, "w1", {"new": 1}, *before["b"][3:])
    assert found["c"][4] == found["d"][4] == [EAST]
    assert verify(folder) == []


def test_records_without_ids_get_those_that_indexing_makes(tmp_path, model):
    records = [{"text": "w1", "vector": EAST}, {"text": "w2", "vector": NORTH}]
    source = write(tmp_path / "in.jsonl", *records, records[0])
    choice, folder = str(model), tmp_path / "my.index"
    assert import_documents(folder, source, choice).added == 2
    from retriever import CorpusReader

    with Index.open(folder) as index:
        report = index.add(
            document for document in CorpusReader([source]) if document.metadata.pop("vector")
        )
    assert report.unchanged == 2


def test_an_import_takes_an_analyzer_for_a_new_index(tmp_path, model):
    source = write(tmp_path / "in.jsonl", {"id": "a", "text": "the end", "vector": EAST})
    choice = str(model)
    import_documents(tmp_path / "x", source, choice, analyzer=AnalyzerSettings("none"))
    with Index.open(tmp_path / "x") as index:
        assert index.search("the", SearchSettings(mode="bm25"))
    with pytest.raises(BadInputError, match="analyzer"):
        import_documents(tmp_path / "x", source, choice, analyzer=AnalyzerSettings("german"))
