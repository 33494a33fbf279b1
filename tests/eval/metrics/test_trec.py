import gzip
import io
import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics.trec import read_qrels, read_run, write_run
from retriever.errors import BadInputError, SourceError

WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0").filter(
        lambda character: not character.isspace()
    ),
    min_size=1,
)
RUNS = st.dictionaries(
    WORDS.filter(lambda word: not word.startswith("\ufeff")),
    st.dictionaries(WORDS, st.floats(allow_nan=False, allow_infinity=False), min_size=1).map(
        lambda scores: sorted(scores.items(), key=lambda pair: -pair[1])
    ),
    max_size=4,
)

THIRD = np.float32(1 / 3)


def written(run, tag="tag") -> str:
    file = io.StringIO()
    write_run(file, run, tag)
    return file.getvalue()


@given(RUNS)
def test_a_written_run_reads_back_exactly_and_parses_as_trec_eval_does(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("run") / "run.txt"
    write_run(path, run, "tag")
    expected = {query: dict(ranked) for query, ranked in run.items()}
    assert read_run(path) == expected
    with path.open(encoding="utf-8", newline="\n") as file:
        assert pytrec_eval.parse_run(file) == expected
    assert [child.name for child in path.parent.iterdir()] == ["run.txt"]


def test_lines_have_six_columns_ranks_from_one_and_ties_by_document_descending():
    run = {"q2": [("x", 1)], "q1": [("a", 0.5), ("b", 0.5), ("z", 0.1)], "q": [("a", THIRD)]}
    assert written(run, "bm25").splitlines() == [
        "q2 Q0 x 1 1.0 bm25",
        "q1 Q0 b 1 0.5 bm25",
        "q1 Q0 a 2 0.5 bm25",
        "q1 Q0 z 3 0.1 bm25",
        f"q Q0 a 1 {float(THIRD)!r} bm25",
    ]


@pytest.mark.parametrize(
    "bad", ["", "a b", "a\tb", " a", "a\n", "a\u00a0b", "a\u2028b", "\ud800", "\0"]
)
def test_identifiers_and_tags_that_a_run_file_cannot_hold_are_refused_by_name(bad):
    for run, tag in (
        ({bad: [("d", 1.0)]}, "tag"),
        ({"q": [(bad, 1.0)]}, "tag"),
        ({"q": [("d", 1.0)]}, bad),
    ):
        with pytest.raises(BadInputError) as caught:
            written(run, tag)
        assert repr(bad) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_query_id_with_byte_order_mark_before_it_is_refused():
    with pytest.raises(BadInputError, match="byte order mark before it, found"):
        written({"\ufeffq": [("d", 1.0)]})


@pytest.mark.parametrize(
    ("ranked", "message"),
    [
        ([("a", 1.0), ("b", 2.0)], "at most 1.0 .* 2.0 for document b"),
        ([("a", math.nan)], "finite score .* nan for document a"),
        ([("a", math.inf)], "finite score .* inf for document a"),
        ([("a", 1.0), ("a", 0.5)], "document a is in the ranking twice"),
    ],
)
def test_writing_an_invalid_ranking_is_refused_and_leaves_no_file(tmp_path, ranked, message):
    path = tmp_path / "run.txt"
    with pytest.raises(BadInputError, match=f"query q: .*{message}"):
        write_run(path, {"good": [("a", 1.0)], "q": ranked}, "tag")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reader", "content", "expected"),
    [
        (
            read_run,
            b"\xef\xbb\xbfq1 Q0 a 1 2.5 t\r\n\n  q1\tQ0\tb  2 -1e-3 t\nq2 0 a 0 7 t\n   \n",
            {"q1": {"a": 2.5, "b": -0.001}, "q2": {"a": 7.0}},
        ),
        (
            read_qrels,
            b"q1 0 a 1\nq1\t0\tb\t0\n\nq2 Q0 a -2\n",
            {"q1": {"a": 1, "b": 0}, "q2": {"a": -2}},
        ),
        (
            read_qrels,
            b"query-id\tcorpus-id\tscore\r\nq 1\tdoc 7\t2\r\nq 1\tb\t0\r\n",
            {"q 1": {"doc 7": 2, "b": 0}},
        ),
        (read_qrels, b"query-id corpus-id score\nq1 a 2\nq1\tb 0\n", {"q1": {"a": 2, "b": 0}}),
    ],
    ids=["run", "TREC", "BEIR", "BEIR with spaces"],
)
def test_runs_and_qrels_are_read_gzipped_or_plain(tmp_path, reader, content, expected):
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(content))
    assert reader(tmp_path / "plain") == reader(tmp_path / "zipped.gz") == expected


@pytest.mark.parametrize(
    ("reader", "text", "line", "message"),
    [
        (read_run, "q Q0 a 1 1.0 t\nq Q0 b 2 1.0\n", 2, "6 columns .* found 5: 'q Q0 b 2 1.0'"),
        (read_run, "q Q0 a 1 1.0 my tag\n", 1, "6 columns .* found 7"),
        (read_run, "\n\nq Q0 a 1 nan t\n", 3, "finite number as score, found 'nan'"),
        (read_run, "q Q0 a 1 -inf t\n", 1, "finite number as score, found '-inf'"),
        (read_run, "q Q0 a 1 1e999 t\n", 1, "finite number as score, found '1e999'"),
        (read_run, "q Q0 a 1 1_0 t\n", 1, "finite number as score, found '1_0'"),
        (read_run, "q Q0 a 1 high t\n", 1, "finite number as score, found 'high'"),
        (
            read_run,
            "q Q0 a 1 2 t\nr Q0 a 1 2 t\nq Q0 a 2 1 t\n",
            3,
            "document of query q, found a again",
        ),
        (read_qrels, "q 0 a 1\nq 0 a 1\n", 2, "document of query q, found a again"),
        (read_qrels, "q 0 a 1.5\n", 1, "integer as grade, found '1.5'"),
        (read_qrels, "q 0 a 1_0\n", 1, "integer as grade, found '1_0'"),
        (read_qrels, f"q 0 a {'9' * 5000}\n", 1, "integer as grade, found '999"),
        (read_qrels, "q a 1\n", 1, "4 columns .* found 3: .* line 'query-id corpus-id score'"),
        (read_qrels, "q 0 a 1 x\n", 1, "4 columns .* found 5"),
        (read_qrels, "query-id\tcorpus-id\tscore\nq 0 a 1\n", 2, "3 columns .* found 1"),
        (read_qrels, "query-id\tcorpus-id\tscore\n\td\t1\n", 2, "3 columns"),
        (read_qrels, "query-id\tcorpus-id\tscore\nq\td\tx\n", 2, "integer as grade, found 'x'"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line(tmp_path, reader, text, line, message):
    path = tmp_path / "input.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=message) as caught:
        reader(path)
    assert str(caught.value).startswith(f"{path}:{line}: expected ")
    assert "\n" not in str(caught.value)
