from __future__ import annotations

import gzip

import pytest

from eval.datasets.pairs import read_pairs
from retriever.errors import SourceError

HEADER = "score\tsentence1\tsentence2\n"


def written(tmp_path, text, name="pairs.tsv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(pairs):
    return list(zip(pairs.gold.tolist(), pairs.left, pairs.right, strict=True))


def test_a_quote_in_tsv_is_a_character_like_any_other(tmp_path):
    path = written(tmp_path, HEADER + '3.5\t" he said\tshe said "yes\n\n0\ta\tb\r\n')
    assert rows(read_pairs([path])) == [(3.5, '" he said', 'she said "yes'), (0.0, "a", "b")]


def test_a_quote_in_csv_is_csvs(tmp_path):
    text = 'sentence2,genre,score,sentence1\n"one, two",x,1e0,"a ""b"""\n'
    assert rows(read_pairs([written(tmp_path, text, "pairs.csv")])) == [(1.0, 'a "b"', "one, two")]


def test_jsonl_may_have_other_fields_and_scores_as_text(tmp_path):
    text = (
        '{"score": 4, "sentence1": "a", "sentence2": "b", "genre": null}\n'
        '{"score": "2.5", "sentence1": "c", "sentence2": "d"}\n'
    )
    pairs = read_pairs([written(tmp_path, text, "pairs.jsonl")])
    assert rows(pairs) == [(4.0, "a", "b"), (2.5, "c", "d")]


def test_several_files_follow_one_another_and_may_be_gzipped(tmp_path):
    first = written(tmp_path, HEADER + "1\ta\tb\n")
    second = written(tmp_path, gzip.compress((HEADER + "2\tc\td\n").encode()), "more.tsv.gz")
    assert rows(read_pairs([second, first])) == [(2.0, "c", "d"), (1.0, "a", "b")]


def test_a_file_whose_pairs_are_all_in_another_is_refused(tmp_path):
    everything = written(tmp_path, HEADER + "1\ta\tb\n2\tc\td\n2\tc\td\n", "all.tsv")
    part = written(tmp_path, HEADER + "2\tc\td\n", "part.tsv")
    other = written(tmp_path, HEADER + "2\tc\td\n3\te\tf\n", "other.tsv")
    for paths in ([everything, part], [part, everything]):
        with pytest.raises(SourceError, match=r"part\.tsv: all of its pairs are in .*all\.tsv too"):
            read_pairs(paths)
    with pytest.raises(SourceError, match="name each pair once"):
        read_pairs([other, other])
    # A pair that two files share is no reason to refuse either.
    assert len(read_pairs([everything, other])) == 5


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a.tsv", HEADER + "nan\ta\tb\n", 2, "expected a finite number as score, found 'nan'"),
        ("a.tsv", HEADER + "inf\ta\tb\n", 2, "expected a finite number as score, found 'inf'"),
        ("a.tsv", HEADER + "1_0\ta\tb\n", 2, "found '1_0'; correct or remove the line"),
        ("a.tsv", HEADER + "1\ta\tb\n\ttext\tb\n", 3, "finite number as score, found ''"),
        ("a.tsv", HEADER + "1\ta\n", 2, "expected 3 cells as in the header, found 2"),
        ("a.tsv", HEADER + "1\ta\tb\tc\n", 2, "expected 3 cells as in the header, found 4"),
        ("a.tsv", HEADER + "1\t \tb\n", 2, "expected a text as sentence1, found nothing"),
        ("a.tsv", "score\tsentence1\n1\ta\n", 1, "one column 'sentence2'"),
        ("a.tsv", "score\tscore\tsentence1\tsentence2\n", 1, "one column 'score'"),
        ("a.tsv", "5.000\ta man\ta woman\n", 1, "begin the file with the names of its columns"),
        ("a.tsv", HEADER.encode() + b"1\t\xff\tb\n", 2, "invalid UTF-8"),
        ("a.csv", 'score,sentence1,sentence2\n1,"a,b\n', 2, "expected a row of CSV on one line"),
        ("a.jsonl", "{\n", 1, "expected a JSON object, found '{'"),
        ("a.jsonl", "[1]\n", 1, "found no score"),
        ("a.jsonl", '{"score": 1, "sentence1": "a"}\n', 1, "found no sentence2"),
        ("a.jsonl", '{"score": true, "sentence1": "a", "sentence2": "b"}\n', 1, "found 'True'"),
        ("a.jsonl", '{"score": 1, "sentence1": 5, "sentence2": "b"}\n', 1, "sentence1, found 5"),
    ],
)
def test_a_malformed_line_is_named_with_what_was_expected_and_found(
    tmp_path, name, text, line, message
):
    path = written(tmp_path, text, name)
    with pytest.raises(SourceError) as caught:
        read_pairs([path])
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_without_pairs_of_another_kind_or_missing_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"empty\.tsv: expected scored pairs, found none"):
        read_pairs([written(tmp_path, HEADER, "empty.tsv")])
    with pytest.raises(SourceError, match=r"\.tsv, \.csv or \.jsonl, found '\.txt'; rename it"):
        read_pairs([written(tmp_path, HEADER, "pairs.txt")])
    with pytest.raises(SourceError, match=r"no\.tsv: no such file"):
        read_pairs([tmp_path / "no.tsv"])


@pytest.mark.parametrize(
    ("name", "count"),
    [("stsb/dev.tsv", 1500), ("stsb/test.tsv", 1379), ("sts14/test.all.tsv", 3750)],
)
def test_published_sets_have_the_published_number_of_pairs(published, name, count):
    assert len(read_pairs([published / name])) == count
