"""Ready vectors into an index: a round trip changes no answer, and what is wrong is named."""

from __future__ import annotations

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
from retriever.index import export_jsonl, export_npy, import_documents
from retriever.index.indexing.embedded_documents import unit_vectors
from tests.retriever.index.collection_samples import (
    answers,
    choice_of,
    make_index,
    random_documents,
    stored,
    word_vectors,
)

SMALL = CommitSettings(passages=30)
EAST, NORTH = [1, 0, 0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0, 0, 0]


@pytest.fixture
def model(tmp_path):
    return word_vectors(tmp_path / "words.txt")


@pytest.fixture
def corpus(write_jsonl):
    """Two documents, to which vectors belong."""
    return write_jsonl({"id": "x", "text": "w1", "year": 1999}, {"id": "y", "text": "w2"})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["jsonl", "npy"])
def test_export_and_import_give_equal_answers_in_every_mode(tmp_path, model, seed, form):
    source = make_index(tmp_path / "one", choice_of(model), random_documents(80, seed))
    with Index.open(source) as index:
        index.delete([f"d{number}" for number in range(0, 80, 7)])
    export_jsonl(source, tmp_path / "out.jsonl", vectors=form == "jsonl")
    vectors = None
    if form == "npy":
        vectors = tmp_path / "vectors.npy"
        export_npy(source, vectors)
    report = import_documents(
        tmp_path / "two", tmp_path / "out.jsonl", vectors=vectors, commit=SMALL
    )
    assert stored(tmp_path / "two") == stored(source)
    assert answers(tmp_path / "two") == answers(source)
    with Index.open(source) as one, Index.open(tmp_path / "two") as two:
        assert report.passages == two.info()["passages"] == one.info()["passages"]
        assert two.encoder_spec == one.encoder_spec
    assert (report.added, report.scaled) == (len(stored(source)), 0)
    assert verify(tmp_path / "two") == []


def test_one_vector_a_document_is_scaled_and_its_field_can_be_named(tmp_path, model, write_jsonl):
    rows = {"a": EAST, "b": NORTH}
    records = [
        {"key": id_, "text": "w1", "embedding": [3 * one for one in row]}
        for id_, row in rows.items()
    ]
    folder, source, fields = tmp_path / "my.index", write_jsonl(*records), Fields(id="key")
    report = import_documents(folder, source, str(model), fields=fields, vector_field="embedding")
    assert report == IndexingReport(added=2, passages=2, scaled=2)
    assert {id_: parts[4] for id_, parts in stored(folder).items()} == {"a": [EAST], "b": [NORTH]}


@pytest.mark.parametrize("ids", ["", '"x"\n"y"\n'])
def test_a_matrix_beside_a_corpus_has_its_rows_in_order(tmp_path, model, corpus, ids):
    np.save(tmp_path / "v.npy", np.asfortranarray([NORTH, EAST], np.float16))
    if ids:
        (tmp_path / "v.ids.jsonl").write_text(ids)
    import_documents(tmp_path / "my.index", corpus, str(model), vectors=tmp_path / "v.npy")
    assert stored(tmp_path / "my.index") == {
        "x": (None, "w1", {"year": 1999}, [(0, 2)], [NORTH]),
        "y": (None, "w2", {}, [(0, 2)], [EAST]),
    }


GOOD = {"id": "a", "text": "w1 w2", "vector": EAST}
PASSAGE = {"start": 0, "stop": 2, "vector": EAST}
NOT_WHOLE = {"vector": None}
BAD = [
    ({"vector": EAST[:5]}, "expected vectors of 8 dimensions, .* found 5"),
    ({"vector": [10**400, *EAST[1:]]}, "too large"),
    ({"vector": ["1", *EAST[1:]]}, "list of 8 numbers"),
    ({"vector": [True, *EAST[1:]]}, "list of 8 numbers"),
    ({"vector": "base64"}, "list of 8 numbers"),
    (NOT_WHOLE, "found neither; .* --set vector-field"),
    ({"vectors": [PASSAGE]}, "found both"),
    (NOT_WHOLE | {"vectors": []}, "list of passages"),
    (NOT_WHOLE | {"vectors": EAST}, "list of passages"),
    (NOT_WHOLE | {"vectors": [PASSAGE, {"start": 0, "vector": EAST}]}, "list of passages"),
    (NOT_WHOLE | {"vectors": [PASSAGE | {"more": 1}]}, "list of passages"),
    (NOT_WHOLE | {"vectors": [PASSAGE | {"stop": 6}]}, r"passage 1: .* 0 to 5, .*\(0, 6\)"),
    (NOT_WHOLE | {"vectors": [PASSAGE, PASSAGE | {"vector": [1]}]}, "passage 2.* found 1;"),
    ({"id": "a"}, "'a' was given before, at .*:1;"),
    ({"text": None}, "'text' is None"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_import_names_bad_record_and_keeps_those_before(
    tmp_path, model, write_jsonl, changes, message
):
    source = write_jsonl(GOOD, {**GOOD, "id": "b", **changes})
    report = IndexingReport()
    with pytest.raises(SourceError, match=message) as caught:
        import_documents(tmp_path / "my.index", source, str(model), report=report)
    assert str(caught.value).startswith(f"{source}:2: ")
    assert "\n" not in str(caught.value)
    assert set(stored(tmp_path / "my.index")) == {"a"}
    assert report.added == 1
    assert verify(tmp_path / "my.index") == []


PAIR = np.array([EAST, NORTH])
UNFIT = [
    (np.zeros((3, 8)), "", r"v\.npy: expected vectors of 2 documents, found 3"),
    (np.zeros((1, 8)), "", r"v\.npy: expected vectors of 2 documents, found 1"),
    (np.zeros((2, 7)), "", r"v\.npy: row 0 .* \(1, 8\).*found \(1, 7\)"),
    (np.zeros(16), "", r"v\.npy: .*shape \(rows, 8\), .*\(16,\)"),
    (np.zeros((2, 8), np.int64), "", r"v\.npy: expected floats .*int64"),
    (np.array([EAST, [np.nan] * 8]), "", r"v\.npy: row 1 \(counted from 0\): .*NaN"),
    (np.array([EAST, ["x"] * 8], object), "", r"v\.npy: .*numpy\.save"),
    (PAIR, '"x"\n', r"v\.ids\.jsonl: expected 2 lines"),
    (PAIR, '"x"\n"y"\n"z"\n', r"v\.ids\.jsonl: expected 2 lines"),
    (PAIR, '"y"\n"x"\n', r"v\.ids\.jsonl:1: expected the document 'x', found 'y'"),
    (PAIR, '"x"\n{"id": "y"}\n', r"v\.ids\.jsonl:2: expected a document id"),
    (PAIR, '"x"\nnot json\n', r"v\.ids\.jsonl:2: expected a document id"),
    (
        PAIR,
        '"x"\n{"id": "y", "start": 0, "stop": 99}\n',
        r"v\.ids\.jsonl:2: passage 1: .* from 0 to 2",
    ),
    (
        PAIR,
        '{"id": "x", "start": 0, "stop": 1}\n{"id": "x", "start": 1, "stop": 2}\n',
        "expected vectors of 2 documents, found 1",
    ),
]


@pytest.mark.parametrize(("rows", "ids", "message"), UNFIT, ids=range(len(UNFIT)))
def test_import_refuses_mismatched_matrix_or_ids_by_name(
    tmp_path, model, corpus, rows, ids, message
):
    np.save(tmp_path / "v.npy", rows)
    if ids:
        (tmp_path / "v.ids.jsonl").write_text(ids)
    folder = tmp_path / "my.index"
    with pytest.raises(SourceError, match=message) as caught:
        import_documents(folder, corpus, str(model), vectors=tmp_path / "v.npy")
    assert "\n" not in str(caught.value)
    # Faults that are found before reading create no index; rows are checked one by one.
    one_by_one = "row 1" in message or "from 0 to 2" in message
    assert (set(stored(folder)) if folder.exists() else set()) == ({"x"} if one_by_one else set())


def test_import_refuses_bad_sources_without_creating_index(tmp_path, model, corpus):
    choice, folder, none = str(model), tmp_path / "my.index", {"vectors": tmp_path / "none.npy"}
    (tmp_path / "c.csv").write_text("id,text\n1,w1\n")
    (tmp_path / "e.jsonl").touch()
    for arguments, vectors, error, message in (
        ((corpus,), {}, ConfigError, "name it with --model"),
        (("-", choice), none, SourceError, "read twice"),
        ((tmp_path / "none.csv", choice), none, SourceError, r"none\.csv: no such file"),
        ((corpus, choice), none, SourceError, r"none\.npy: no such file"),
        ((tmp_path / "c.csv", choice), {}, SourceError, "expected JSON Lines"),
        ((tmp_path / "e.jsonl", choice), {}, SourceError, "no records"),
    ):
        with pytest.raises(error, match=message):
            import_documents(folder, *arguments, **vectors)
    assert not folder.exists()


def test_import_uses_and_checks_encoder_file_of_export(tmp_path, model):
    source = make_index(tmp_path / "one", choice_of(model), random_documents(5))
    export = tmp_path / "out.jsonl"
    export_jsonl(source, export, vectors=True)
    other = word_vectors(tmp_path / "others.txt", seed=9)
    for wrong in (str(other), choice_of(model, "max-length=20")):
        with pytest.raises(EncoderMismatchError, match=r"out\.encoder\.json"):
            import_documents(tmp_path / "two", export, wrong)
    assert not (tmp_path / "two").exists()
    # An index of the same model with another window.
    make_index(tmp_path / "three", str(model), [Document("x", "w1")])
    with pytest.raises(EncoderMismatchError, match=str(tmp_path / "three")):
        import_documents(tmp_path / "three", export)
    # Settings that are not given come from the file.
    import_documents(tmp_path / "two", export, str(model))
    with Index.open(tmp_path / "two") as index:
        assert index.encoder_spec.max_length == 12
    word_vectors(model, seed=3)
    with pytest.raises(EncoderMismatchError, match=str(model)):
        import_documents(tmp_path / "four", export)
    (tmp_path / "out.encoder.json").write_text('{"encoder": 3}')
    with pytest.raises(SourceError, match="specification of an encoder"):
        import_documents(tmp_path / "four", export)
    assert not (tmp_path / "four").exists()


def test_vectors_of_an_encoder_that_does_not_normalize_stay_as_they_are(
    tmp_path, model, write_jsonl
):
    chance = np.random.default_rng(1)
    powers = 10.0 ** chance.uniform(-44, 18, (200, 8))
    wild = (chance.choice([-1, 1], powers.shape) * powers).astype(np.float32)
    choice = f"{model}::normalize=no"
    records = [
        {"id": f"{i:03}", "text": "w1", "vector": row.tolist()} for i, row in enumerate(wild)
    ]
    report = import_documents(tmp_path / "one", write_jsonl(*records), choice)
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


def test_unchanged_documents_keep_their_vectors_and_changed_ones_are_replaced(
    tmp_path, model, write_jsonl
):
    choice, folder = str(model), tmp_path / "my.index"
    make_index(folder, choice, [Document(id_, f"w{i}") for i, id_ in enumerate("abc")])
    before = stored(folder)
    source = write_jsonl(
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


def test_an_import_takes_an_analyzer_for_a_new_index(tmp_path, model, write_jsonl):
    source = write_jsonl({"id": "a", "text": "the end", "vector": EAST})
    choice = str(model)
    import_documents(tmp_path / "x", source, choice, analyzer=AnalyzerSettings("none"))
    with Index.open(tmp_path / "x") as index:
        assert index.search("the", SearchSettings(mode="bm25"))
    with pytest.raises(BadInputError, match="analyzer"):
        import_documents(tmp_path / "x", source, choice, analyzer=AnalyzerSettings("german"))
