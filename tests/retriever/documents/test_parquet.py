"""Parquet and tables of other libraries: types, batches, compressed and piped files, errors."""

from __future__ import annotations

import datetime as dt
import gc
import gzip
import io
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from retriever import CorpusReader, Document, Index, MissingExtraError, SourceError
from tests.retriever.documents.source_samples import names_or_skips, read, refuses

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write(folder: Path, columns: dict[str, object], name: str = "c.parquet") -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def test_parquet_rows_are_read_in_order_over_batches(tmp_path):
    rows = [{"id": f"d{i}", "text": f"t{i}", "title": None, "n": i} for i in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet", row_group_size=700)
    reader = CorpusReader([tmp_path / "c.parquet"])
    assert list(reader) == [Document(f"d{i}", f"t{i}", None, {"n": i}) for i in range(3000)]
    assert reader.bytes_read == reader.total_bytes == (tmp_path / "c.parquet").stat().st_size


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.large_string()])
def test_columns_of_several_types_hold_ids_and_texts(tmp_path, kind):
    texts = pa.array(["x", "y"]).dictionary_encode()
    path = write(tmp_path, {"id": pa.array([1, 2]).cast(kind), "text": texts})
    assert read(path) == [Document("1", "x"), Document("2", "y")]


MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 600, tzinfo=dt.UTC)
LONG = Decimal("1.00000000000000000001")
CELLS = [
    (pa.array([dt.date(2020, 1, 2)]), "2020-01-02"),
    (pa.array([dt.time(1, 2, 3)]), "01:02:03"),
    (pa.array([MOMENT]), MOMENT.isoformat()),
    (pa.array([1_577_934_245_000_000_123], pa.timestamp("ns")), "2020-01-02T03:04:05"),
    (pa.array([3_723_000_000_123], pa.time64("ns")), "01:02:03"),
    (pa.array([1_500_000_000], pa.duration("ns")), 1.5),
    # A decimal is a float only where it reads back the same.
    (pa.array([Decimal("1.10")]), 1.1),
    (pa.array([LONG]), str(LONG)),
    (
        pa.array([{"list": [1, None, 2], "deep": {"day": dt.date(2020, 1, 2)}}]),
        {"list": [1, None, 2], "deep": {"day": "2020-01-02"}},
    ),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), {"k": 1}),
    (pa.array([1.5, None]), 1.5, None),
    (pa.array([float("nan")]), None),
]


@pytest.mark.parametrize(("cells", "values"), [(one, values) for one, *values in CELLS], ids=str)
def test_cells_become_json_and_nulls_are_left_out(tmp_path, cells, values):
    texts = [f"t{i}" for i in range(len(cells))]
    documents = read(write(tmp_path, {"text": texts, "m": cells}))
    assert [document.metadata.get("m") for document in documents] == values


def test_compressed_piped_and_misnamed_files_are_read(tmp_path):
    content = write(tmp_path, {"id": ["a"], "text": ["x"]}).read_bytes()
    for name, data in (("z.parquet.gz", gzip.compress(content)), ("c.csv", content)):
        (tmp_path / name).write_bytes(data)
        assert read(tmp_path / name) == [Document("a", "x")]
    assert read("-", stdin=io.BytesIO(content)) == [Document("a", "x")]


def test_unusable_file_raises_even_when_skipping(tmp_path):
    refuses(write(tmp_path, {"body": ["x"]}), "no text column .*columns are 'body'")
    refuses(write(tmp_path, {"text": pa.array([], pa.string())}), "holds no records")


LEFT_OUT = {
    "bytes": (pa.array([None, b"y"]), "holds a value of type bytes"),
    "bytes in a list": (pa.array([["x"], None, [b"y"]], pa.list_(pa.binary())), "of type bytes"),
    "uint64": (pa.array([1, 2**64 - 1], pa.uint64()), "beyond 64 bits"),
    "year": (pa.array([1, 10**17], pa.timestamp("ms")), "holds a value that cannot be converted"),
}


@pytest.mark.parametrize(("cells", "fault"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_cell_that_no_index_can_store_is_left_out_and_its_document_kept(tmp_path, cells, fault):
    numbers = range(len(cells))
    path = write(tmp_path, {"text": [f"t{i}" for i in numbers], "m": cells, "n": numbers})
    reader = CorpusReader([path])
    documents = list(reader)
    assert [document.metadata["n"] for document in documents] == list(numbers)
    assert "m" not in documents[-1].metadata
    assert reader.left_out["m"].first.startswith(f"{path}: row ")
    assert fault in reader.left_out["m"].first
    assert reader.skipped == 0


def test_a_bad_row_is_named_with_its_number_or_skipped(tmp_path):
    path = write(tmp_path, {"text": ["x", None]})
    names_or_skips(path, ": row 2", "'text' is None", ["x"])
    path = write(tmp_path, {"id": ["a", None], "text": ["x", "y"]})
    names_or_skips(path, ": row 2", "id is None", ["x"])


@pytest.mark.parametrize("damage", ["magic only", "cut", "pages", "not parquet", "flipped"])
def test_corrupt_parquet_file_is_refused_with_its_name(tmp_path, damage):
    path = tmp_path / "c.parquet"
    table = pa.table({"id": [f"d{i}" for i in range(5000)], "text": ["needle"] * 5000})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    whole = path.read_bytes()
    broken = {
        "magic only": b"PAR1",
        "cut": whole[: len(whole) // 2],
        "pages": whole[:4] + b"\xff" * 200 + whole[204:],
        "not parquet": b'{"id": "a", "text": "x"}\n',
        "flipped": whole.replace(b"needle", b"beetle"),
    }
    path.write_bytes(broken[damage])
    refuses(path, "not a readable Parquet file")


def test_memory_does_not_grow_with_a_row_group(tmp_path):
    peaks = []
    for count in (10_000, 100_000):
        texts = [f"{i * 7919:0100}" for i in range(count)]
        path = tmp_path / f"{count}.parquet"
        table = pa.table({"id": range(count), "text": texts})
        pq.write_table(table, path, row_group_size=count, use_dictionary=False, compression="none")
        del texts, table
        gc.collect()
        before = pa.total_allocated_bytes()
        peak = 0
        for document in CorpusReader([path]):
            if document.id.endswith("00"):
                peak = max(peak, pa.total_allocated_bytes() - before)
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, {"text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r'pip install "layer-retriever\[parquet\]"'):
        read(path)


TABLE = {
    "id": ["a", "b", "c"],
    "text": ["apples and pears", "pears", "plums"],
    "title": ["Fruit", None, ""],
    "year": [2020, None, 2022],
    "day": [dt.date(2020, 3, 31), None, None],
}
DOCUMENTS = [
    ("a", "apples and pears", "Fruit", {"year": 2020, "day": "2020-03-31"}),
    ("b", "pears", None, {}),
    ("c", "plums", "", {"year": 2022}),
]


class Frame:
    """Data frame that, like those of pandas and polars, iterates over column names or columns."""

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
def test_data_frame_rows_are_added_as_documents(index, kind):
    assert index.add(KINDS[kind](TABLE)).added == 3
    found = [(document.id, document.text, document.title, document.metadata) for document in index]
    assert found == DOCUMENTS


def test_rows_are_read_in_slices_get_ids_of_their_texts_and_can_have_vectors(index, monkeypatch):
    monkeypatch.setattr("retriever.documents.tables._BATCH_ROWS", 2)
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
        index.add(Frame(pa.table(TABLE)))
    assert index.add(pytest.importorskip("pandas").Series(TABLE["text"])).added == 3
