from __future__ import annotations

import gzip

import pytest

from eval.datasets.pairs import read_pairs, read_sts
from retriever.errors import SourceError

HEADER = "score\tsentence1\tsentence2\n"
BENCHMARK = "main-captions\tMSRvid\t2012test\t0001\t{}\t{}\t{}\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


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


def put(folder, **files):
    """Write files; in the names of the arguments `__` is a dot and `_dash_` a dash."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        written(folder, content, name.replace("__", ".").replace("_dash_", "-"))
    return folder


def parts(task):
    return {subset.name: rows(subset.pairs) for subset in task.subsets}


def refused(path, message):
    with pytest.raises(SourceError) as caught:
        read_sts(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


class TestOwnForm:
    def test_parts_are_read_once_though_a_file_of_all_lies_beside_them(self, tmp_path):
        folder = put(
            tmp_path / "STS12",
            test__b__x__tsv=HEADER + "1\ta\tb\n",
            test__A__tsv=HEADER + "2\tc\td\n3\te\tf\n",
            test__all__tsv=HEADER + "1\ta\tb\n2\tc\td\n3\te\tf\n",
        )
        task = read_sts(folder)
        assert task.name == "sts12"
        assert list(parts(task).items()) == [
            ("A", [(2.0, "c", "d"), (3.0, "e", "f")]),
            ("b.x", [(1.0, "a", "b")]),
        ]
        assert (task.train, task.dev) == (None, None)

    def test_a_lost_part_is_noticed_by_the_file_of_all(self, tmp_path):
        folder = put(
            tmp_path, test__A__tsv=HEADER + "2\tc\td\n", test__all__tsv=HEADER + "1\ta\tb\n" * 2
        )
        refused(folder, "test.all.tsv: expected the 1 pairs of the parts beside it (A), found 2")

    def test_a_file_of_all_alone_is_the_test(self, tmp_path):
        task = read_sts(put(tmp_path, test__all__tsv=HEADER + "2\tc\td\n"))
        assert parts(task) == {"all": [(2.0, "c", "d")]}

    @pytest.mark.parametrize("dev", ["dev", "trial"])
    def test_the_splits_of_a_supervised_set_are_read(self, tmp_path, dev):
        folder = put(tmp_path / "sick", test__tsv=HEADER + "1\ta\tb\n")
        put(folder, train__tsv=HEADER + "2\ta\tb\n", entailment__test__tsv="label\n")
        (folder / f"{dev}.tsv.gz").write_bytes(gzip.compress((HEADER + "3\ta\tb\n").encode()))
        task = read_sts(folder)
        assert task.name == "sick"
        assert parts(task) == {"test": [(1.0, "a", "b")]}
        assert rows(task.train) == [(2.0, "a", "b")]
        assert rows(task.dev) == [(3.0, "a", "b")]

    def test_a_whole_test_and_a_part_of_it_are_refused(self, tmp_path):
        text = HEADER + "1\ta\tb\n"
        refused(put(tmp_path, test__tsv=text, test__A__tsv=text), "found both (test.A.tsv)")

    def test_one_file_is_a_test_of_one_part(self, tmp_path):
        put(tmp_path, pairs__tsv=HEADER + "1\ta\tb\n")
        task = read_sts(tmp_path / "pairs.tsv")
        assert (task.name, parts(task)) == ("pairs", {"pairs": [(1.0, "a", "b")]})


class TestSemEval:
    def test_pairs_that_were_not_judged_are_left_out(self, tmp_path):
        folder = put(
            tmp_path / "test_evaluation_task2a",
            STS__input__belief__txt='one " a\tone b\ntwo\t2\nthree\t3\n',
            STS__gs__belief__txt="1.5\r\n\r\n3\r\n",
        )
        task = read_sts(folder)
        assert task.name == "sts15"
        assert parts(task) == {"belief": [(1.5, 'one " a', "one b"), (3.0, "three", "3")]}

    def test_the_last_pairs_may_be_those_that_were_not_judged(self, tmp_path):
        put(tmp_path, STS__input__a__txt="a\tb\nc\td\n", STS__gs__a__txt="1\n\n")
        assert parts(read_sts(tmp_path)) == {"a": [(1.0, "a", "b")]}

    def test_names_of_2016_and_the_sources_of_sentences_are_understood(self, tmp_path):
        folder = put(
            tmp_path / "sts2016-english-with-gs-v1.0",
            STS2016__input__answer_dash_answer__txt="a\tb\thttp://x\thttp://y\n",
            STS2016__gs__answer_dash_answer__txt="4\n",
        )
        task = read_sts(folder)
        assert task.name == "sts16"
        assert parts(task) == {"answer-answer": [(4.0, "a", "b")]}

    @pytest.mark.parametrize(
        ("folder", "name"),
        [
            ("STS12-en-test", "sts12"),
            ("STS2013-en-test/test-gs", "sts13"),
            ("anything/test-gold", "sts12"),
            ("sts-en-test-gs-2014", "sts14"),
            ("STS2012-en-test", "sts12"),
            ("my-pairs", "my-pairs"),
        ],
    )
    def test_the_usual_name_of_a_test_comes_from_its_folder(self, tmp_path, folder, name):
        put(tmp_path / folder, STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n")
        assert read_sts(tmp_path / folder).name == name

    def test_the_folder_around_the_files_will_do(self, tmp_path):
        put(tmp_path / "x/test-gs", STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n")
        (tmp_path / "x/other").mkdir()
        task = read_sts(tmp_path / "x")
        assert (task.name, parts(task)) == ("sts13", {"a": [(1.0, "a", "b")]})

    def test_a_folder_of_several_tests_is_refused_with_their_names(self, tmp_path):
        for name in ("STS12-en-test", "STS13-en-test"):
            put(tmp_path / name, STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n")
        refused(tmp_path, "name one of its folders: STS12-en-test, STS13-en-test")

    def test_scores_that_are_published_without_sentences_are_passed_over(self, tmp_path):
        put(tmp_path, STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n")
        put(tmp_path, STS__gs__ALL__txt="1\n2\n", STS__gs__SMT__txt="1\n")
        assert parts(read_sts(tmp_path)) == {"a": [(1.0, "a", "b")]}

    def test_other_scores_without_sentences_are_refused(self, tmp_path):
        put(tmp_path, STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n", STS__gs__b__txt="1\n")
        refused(tmp_path, "STS.gs.b.txt: expected the sentences of these scores beside them in")

    @pytest.mark.parametrize(
        ("sentences", "scores", "message"),
        [
            ("a\tb\n", None, "STS.gs.a.txt: no such file"),
            ("a\tb\n", "1\n2\n", "each of the 1 pairs of STS.input.a.txt, blank where a pair"),
            ("a\tb\nc\td\n", "1\n", "found 1; download both again"),
            ("a\tb\n", "high\n", "STS.gs.a.txt:1: expected a finite number as score, found 'high'"),
            ("a\tb\nc\td\n", "\nnan\n", "STS.gs.a.txt:2: expected a finite number"),
            ("a\tb\nc d\n", "1\n2\n", "STS.input.a.txt:2: expected 2 cells separated by tabs"),
            ("a\t \n", "1\n", "STS.input.a.txt:1: expected a text as sentence2"),
            ("a\tb\n", "\n", "STS.gs.a.txt: expected scored pairs, found none"),
            (b"a\tb\n\xff\tb\n", "1\n2\n", "STS.input.a.txt:2: invalid UTF-8"),
        ],
    )
    def test_files_that_do_not_fit_are_refused(self, tmp_path, sentences, scores, message):
        put(tmp_path, STS__input__a__txt=sentences)
        if scores is not None:
            put(tmp_path, STS__gs__a__txt=scores)
        refused(tmp_path, message)

    def test_one_file_of_sentences_is_read_with_its_scores(self, tmp_path):
        put(tmp_path, STS__input__a__txt="a\tb\n", STS__gs__a__txt="1\n")
        put(tmp_path, STS__input__c__txt="c\td\n", STS__gs__c__txt="2\n")
        assert parts(read_sts(tmp_path / "STS.input.c.txt")) == {"c": [(2.0, "c", "d")]}


class TestBenchmarkAndSick:
    def test_the_benchmark_is_tabs_without_header_and_quotes_mean_nothing(self, tmp_path):
        folder = put(
            tmp_path / "STSBenchmark",
            sts_dash_train__csv=BENCHMARK.format("5.000", '" a plane', "a, b"),
            sts_dash_dev__csv=BENCHMARK.format("1", "c", "d").replace("\n", "\thttp://x\tsource\n"),
            sts_dash_test__csv=BENCHMARK.format("2.5", "e", "f "),
        )
        task = read_sts(folder)
        assert task.name == "stsb"
        assert rows(task.train) == [(5.0, '" a plane', "a, b")]
        assert rows(task.dev) == [(1.0, "c", "d")]
        assert parts(task) == {"test": [(2.5, "e", "f")]}
        assert parts(read_sts(folder / "sts-dev.csv")) == {"sts-dev": [(1.0, "c", "d")]}

    def test_sick_is_read_by_its_header(self, tmp_path):
        folder = put(
            tmp_path / "SICK",
            SICK_train__txt=SICK + "1\tA\tB\t4.5\tNEUTRAL\n",
            SICK_trial__txt=SICK + "2\tC\tD\t3.2\tENTAILMENT\r\n",
            SICK_test_annotated__txt=SICK + "3\tE\tF\t1\tCONTRADICTION\n",
        )
        task = read_sts(folder)
        assert task.name == "sick"
        assert rows(task.train) == [(4.5, "A", "B")]
        assert rows(task.dev) == [(3.2, "C", "D")]
        assert parts(task) == {"test": [(1.0, "E", "F")]}

    def test_a_set_without_its_test_is_refused(self, tmp_path):
        put(tmp_path, sts_dash_train__csv=BENCHMARK.format("1", "a", "b"))
        refused(tmp_path, "sts-test.csv: expected the test beside sts-train.csv, found none")

    def test_malformed_lines_are_named(self, tmp_path):
        put(tmp_path / "a", sts_dash_test__csv=BENCHMARK.format("one", "a", "b"))
        refused(tmp_path / "a", "sts-test.csv:1: expected a finite number as score, found 'one'")
        put(tmp_path / "b", sts_dash_test__csv="genre\tfile\n")
        refused(tmp_path / "b", "sts-test.csv:1: expected 7 cells")
        put(tmp_path / "c", SICK_test_annotated__txt="1\tE\tF\t1\tNEUTRAL\n")
        refused(tmp_path / "c", "SICK_test_annotated.txt:1: expected the header pair_ID, ")


def test_what_is_no_test_is_refused(tmp_path):
    refused(tmp_path, "found none of them; check the path, or add the test")
    refused(tmp_path / "absent", "no such file or folder")


@pytest.mark.parametrize(
    ("name", "counts", "train", "dev"),
    [
        ("sts12", {"MSRpar": 750, "SMTeuroparl": 459, "surprise.SMTnews": 399}, None, None),
        ("sts13", {"FNWN": 189, "headlines": 750, "OnWN": 561}, None, None),
        ("sts14", {"deft-forum": 450, "deft-news": 300, "tweet-news": 750}, None, None),
        ("sts15", {"answers-forums": 375, "answers-students": 750, "belief": 375}, None, None),
        ("sts16", {"answer-answer": 254, "plagiarism": 230, "postediting": 244}, None, None),
        ("stsb", {"test": 1379}, 5749, 1500),
        ("sick", {"test": 4927}, 4500, 500),
    ],
)
def test_published_tests_have_the_published_number_of_pairs(published, name, counts, train, dev):
    task = read_sts(published / name)
    found = {subset.name: len(subset.pairs) for subset in task.subsets}
    totals = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
    assert task.name == name
    assert counts.items() <= found.items()
    assert sum(found.values()) == totals.get(name, sum(counts.values()))
    assert (task.train and len(task.train), task.dev and len(task.dev)) == (train, dev)
