"""Tables of other libraries as documents: a row is a document, whatever iterating gives."""

from __future__ import annotations

import datetime

import pytest

from retriever import Index
from retriever.errors import SourceError

pa = pytest.importorskip("pyarrow")

COLUMNS = {
    "id": ["a", "b", "c"],
    "text": ["apples and pears", "pears", "plums"],
    "title": ["Fruit", None, ""],
    "year": [2020, None, 2022],
    "day": [datetime.date(2020, 3, 31), None, None],
}
EXPECTED = [
    ("a", "apples and pears", "Fruit", {"year": 2020, "day": "2020-03-31"}),
    ("b", "pears", None, {}),
    ("c", "plums", "", {"year": 2022}),
]


class Frame:
    """As those of pandas and polars: iterating gives the names of columns, or columns."""

    def __init__(self, table):
        self._table = table

    @property
    def columns(self):
        return self._table.column_names

    def __iter__(self):
        return iter(self.columns)


class ArrowFrame(Frame):
    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def pandas_frame(columns):
    # Whole numbers with gaps are floats there, and equal to the whole numbers.
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns):
    return pytest.importorskip("polars").DataFrame(columns)


KINDS = {
    "table": pa.table,
    "batch": pa.record_batch,
    "reader": lambda columns: pa.table(columns).to_reader(max_chunksize=2),
    "frame": lambda columns: ArrowFrame(pa.table(columns)),
    "pandas": pandas_frame,
    "pandas with ids as index": lambda columns: pandas_frame(columns).set_index("id"),
    "pandas filtered": lambda columns: pandas_frame(columns)[lambda rows: rows.id > ""],
    "pandas shuffled": lambda columns: pandas_frame(columns).sort_values("text"),
    "polars": polars_frame,
}


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_table_are_documents(index, kind):
    assert index.add(KINDS[kind](COLUMNS)).added == 3
    found = [(one.id, one.text, one.title, one.metadata) for one in index]
    assert found == EXPECTED


def test_rows_are_read_in_slices_get_ids_of_their_texts_and_can_have_vectors(index, monkeypatch):
    monkeypatch.setattr("retriever.documents.tables._ROWS", 2)
    texts = [f"text {i}" for i in range(7)]
    assert index.add(pa.table({"text": texts}), [[1.0] + [0.0] * 15] * 7).added == 7
    assert index.add(texts).unchanged == 7


def pandas_of_one_name(columns):
    return pytest.importorskip("pandas").DataFrame([["a", "b"]], columns=columns)


@pytest.mark.parametrize(
    ("make", "columns", "message"),
    [
        (
            pa.table,
            {"body": ["x"], "n": [1]},
            "Table: no column of texts .* the columns are 'body', 'n': re",
        ),
        (pa.table, {"text": ["x", None]}, "Table: row 2: the text field 'text' is None"),
        (pa.table, {"text": [7]}, "Table: row 1: the text field 'text' is 7"),
        (pa.table, {"id": [1.5], "text": ["x"]}, r"Table: row 1: id is 1\.5"),
        (pandas_frame, {"text": ["x", 7]}, "DataFrame: has no Arrow form: .*column text"),
        (pandas_of_one_name, ["text", "text"], "DataFrame: has no Arrow form: Duplicate column"),
    ],
)
def test_a_table_that_holds_no_documents_is_refused(index, make, columns, message):
    with pytest.raises(SourceError, match=f"^{message}"):
        index.add(make(columns))


def test_a_table_without_the_arrow_interface_is_refused_and_a_column_is_texts(index):
    with pytest.raises(TypeError, match="found a Frame without; give its rows as mappings"):
        index.add(Frame(pa.table(COLUMNS)))
    assert index.add(pytest.importorskip("pandas").Series(COLUMNS["text"])).added == 3
