import pytest

from eval.datasets.pairs import read_pairs, read_sts
from tests.eval.datasets.question_samples import refused, write

HEADER = "score\tsentence1\tsentence2\n"
ONE = HEADER + "1\ta\tb\n"
BENCHMARK = "main-captions\tMSRvid\t2012test\t0001\t{}\t{}\t{}\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def rows(pairs):
    listed = pairs and zip(pairs.gold, pairs.left, pairs.right, strict=True)
    return pairs and "/".join(f"{gold:g} {left}|{right}" for gold, left, right in listed)


def read(task):
    """Return name, parts, training pairs and dev pairs of a similarity task."""
    parts = {subset.name: rows(subset.pairs) for subset in task.subsets}
    return task.name, parts, rows(task.train), rows(task.dev)


@pytest.mark.parametrize(
    ("name", "text", "pairs"),
    [
        (
            "a.tsv",
            HEADER + '3.5\t" he said\tshe said "yes\n\n0\ta\tb\r\n',
            '3.5 " he said|she said "yes/0 a|b',
        ),
        (
            "a.csv",
            'sentence2,genre,score,sentence1\n"one, two",x,1e0,"a ""b"""\n',
            '1 a "b"|one, two',
        ),
        (
            "a.jsonl",
            '{"score": 4, "sentence1": "a", "sentence2": "b", "genre": null}\n'
            '{"score": "2.5", "sentence1": "c", "sentence2": "d"}\n',
            "4 a|b/2.5 c|d",
        ),
    ],
)
def test_read_pairs_concatenates_files_plain_or_gzipped(tmp_path, name, text, pairs):
    folder = write(tmp_path, {name: text, f"{name}.gz": text, "more.tsv": HEADER + "1\tx\ty\n"})
    for first in (folder / name, folder / f"{name}.gz"):
        assert rows(read_pairs([first, folder / "more.tsv"])) == f"{pairs}/1 x|y"


def test_read_pairs_refuses_a_file_contained_in_another(tmp_path):
    write(tmp_path, {"all.tsv": ONE + "2\tc\td\n2\tc\td\n", "part.tsv": HEADER + "2\tc\td\n"})
    write(tmp_path, {"other.tsv": HEADER + "2\tc\td\n3\te\tf\n"})
    everything, part, other = (tmp_path / f"{name}.tsv" for name in ("all", "part", "other"))
    for paths in ([everything, part], [part, everything]):
        refused(read_pairs, paths, part, "all.tsv too")
    refused(read_pairs, [other, other], other, "name each pair once")
    # A pair that two files share is no reason to refuse either.
    assert len(read_pairs([everything, other])) == 5


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a.tsv", HEADER + "nan\ta\tb\n", 2, "finite number as score, found 'nan'; correct or"),
        ("a.tsv", ONE + "\ttext\tb\n", 3, "finite number as score, found ''"),
        ("a.tsv", HEADER + "1\ta\n", 2, "expected 3 cells as in the header, found 2"),
        ("a.tsv", HEADER + "1\t \tb\n", 2, "expected a text as sentence1, found nothing"),
        ("a.tsv", "score\tsentence1\n1\ta\n", 1, "one column 'sentence2'"),
        ("a.tsv", "score\tscore\tsentence1\tsentence2\n", 1, "one column 'score'"),
        ("a.tsv", "5.000\ta man\ta woman\n", 1, "begin the file with the names of its columns"),
        ("a.tsv", HEADER.encode() + b"1\t\xff\tb\n", 2, "invalid UTF-8"),
        ("a.csv", 'score,sentence1,sentence2\n1,"a,b\n', 2, "expected a row of CSV on one line"),
        ("a.jsonl", "{\n", 1, "expected a JSON object with score, sentence1, "),
        ("a.jsonl", "[1]\n", 1, "found '[1]'"),
        (
            "a.jsonl",
            '{"score": 1, "sentence1": "a"}\n',
            1,
            "with score, sentence1, sentence2, found",
        ),
        ("a.jsonl", '{"score": [1], "sentence1": "a", "sentence2": "b"}\n', 1, "found '[1]'"),
        ("a.jsonl", '{"score": 1, "sentence1": 5, "sentence2": "b"}\n', 1, "sentence1, found 5"),
        ("a.jsonl", '{"score": 1, "sentence1": "\\ud800", "sentence2": "b"}\n', 1, "sentence1 "),
        ("empty.tsv", HEADER, None, "expected scored pairs, found none"),
        ("pairs.txt", HEADER, None, ".tsv, .csv or .jsonl, found '.txt'; rename it"),
        ("no.tsv", None, None, "no such file"),
    ],
)
def test_a_malformed_file_is_named_with_what_was_expected_and_found(
    tmp_path, name, text, line, message
):
    write(tmp_path, {} if text is None else {name: text})
    path = tmp_path / name
    refused(read_pairs, [path], f"{path}:{line}: " if line else f"{path}: ", message)


PAIR = {"STS.input.a.txt": "a\tb\n", "STS.gs.a.txt": "1\n"}
# Folder, files, and the test that is read.
TESTS = {
    "parts beside a file of all": (
        "STS12",
        {
            "test.b.x.tsv": ONE,
            "test.A.tsv.gz": HEADER + "2\tc\td\n3\te\tf\n",
            "test.all.tsv": ONE + "2\tc\td\n3\te\tf\n",
        },
        ("sts12", {"A": "2 c|d/3 e|f", "b.x": "1 a|b"}, None, None),
    ),
    "a file of all alone": ("mine", {"test.all.tsv": ONE}, ("mine", {"all": "1 a|b"}, None, None)),
    "splits with trial": (
        "sick",
        {
            "test.tsv": ONE,
            "train.tsv": HEADER + "2\ta\tb\n",
            "trial.tsv.gz": HEADER + "3\ta\tb\n",
            "entailment.test.tsv": "label\n",
        },
        ("sick", {"test": "1 a|b"}, "2 a|b", "3 a|b"),
    ),
    "splits with dev": (
        "sick",
        {"test.tsv": ONE, "dev.tsv": HEADER + "3\ta\tb\n"},
        ("sick", {"test": "1 a|b"}, None, "3 a|b"),
    ),
    # Pairs that were not judged are left out, also at the end.
    "SemEval": (
        "STS2015-en-test",
        {
            "STS.input.belief.txt": 'one " a\tone b\ntwo\t2\nthree\t3\nfour\t4\n',
            "STS.gs.belief.txt": "1.5\r\n\r\n3\r\n\r\n",
        },
        ("sts15", {"belief": '1.5 one " a|one b/3 three|3'}, None, None),
    ),
    "SemEval of 2016": (
        "sts2016-english-with-gs-v1.0",
        {"STS2016.input.a-a.txt": "a\tb\thttp://x\thttp://y\n", "STS2016.gs.a-a.txt": "4\n"},
        ("sts16", {"a-a": "4 a|b"}, None, None),
    ),
    "scores that are published without sentences": (
        "STS2013-en-test",
        PAIR | {"STS.gs.ALL.txt": "1\n2\n", "STS.gs.SMT.txt": "1\n"},
        ("sts13", {"a": "1 a|b"}, None, None),
    ),
    "sentences of all parts": (
        "mine",
        PAIR | {"STS.input.ALL.txt": "a\tb\n", "STS.gs.ALL.txt": "1\n"},
        ("mine", {"a": "1 a|b"}, None, None),
    ),
    "the benchmark": (
        "STSBenchmark",
        {
            "sts-train.csv": BENCHMARK.format("5.000", '" a plane', "a, b"),
            "sts-dev.csv": BENCHMARK.format("1", "c", "d").replace("\n", "\thttp://x\tsource\n"),
            "sts-test.csv": BENCHMARK.format("2.5", "e", "f "),
        },
        ("stsbenchmark", {"test": "2.5 e|f"}, '5 " a plane|a, b', "1 c|d"),
    ),
    "SICK": (
        "SICK",
        {
            "SICK_train.txt": SICK + "1\tA\tB\t4.5\tNEUTRAL\n",
            "SICK_trial.txt": SICK + "2\tC\tD\t3.2\tENTAILMENT\r\n",
            "SICK_test_annotated.txt": SICK + "3\tE\tF\t1\tCONTRADICTION\n",
        },
        ("sick", {"test": "1 E|F"}, "4.5 A|B", "3.2 C|D"),
    ),
}


@pytest.mark.parametrize(("folder", "files", "expected"), TESTS.values(), ids=TESTS)
def test_read_sts_recognizes_the_form_of_each_folder(tmp_path, folder, files, expected):
    task = read(read_sts(write(tmp_path / folder, files)))
    assert task == expected
    assert list(task[1]) == sorted(task[1])


@pytest.mark.parametrize(
    ("files", "name", "pairs"),
    [
        ({"pairs.tsv.gz": ONE}, "pairs", "1 a|b"),
        ({"sts-dev.csv": BENCHMARK.format("1", "c", "d")}, "sts-dev", "1 c|d"),
        ({"STS.input.a.txt.gz": "a\tb\n", "STS.gs.a.txt": "1\n"}, "a", "1 a|b"),
        ({"SICK_mine.txt": SICK + "1\tA\tB\t4\tNEUTRAL\n"}, "SICK_mine", "4 A|B"),
    ],
)
def test_read_sts_of_one_file_has_one_subset(tmp_path, files, name, pairs):
    path = write(tmp_path, {**files, "STS.input.b.txt": "a\n"}) / next(iter(files))
    assert read(read_sts(path)) == (name, {name: pairs}, None, None)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("STS12-en-test", "sts12"),
        ("sts2014", "sts14"),
        ("STS-B", "sts-b"),
        ("sts201", "sts201"),
    ],
)
def test_sts_task_is_named_after_its_folder(tmp_path, folder, name):
    assert read_sts(write(tmp_path / folder, PAIR)).name == name


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test.A.tsv": ONE, "test.all.tsv": ONE + ONE[-6:]}, "1 pairs of the parts beside it (A)"),
        ({"test.tsv": ONE, "test.A.tsv": ONE}, "found both (test.A.tsv)"),
        ({**PAIR, "STS.gs.b.txt": "1\n"}, "STS.gs.b.txt: expected the sentences of these scores"),
        ({"STS.input.a.txt": "a\tb\n"}, "STS.gs.a.txt: no such file"),
        ({**PAIR, "STS.gs.a.txt": "1\n2\n"}, "each of the 1 pairs of STS.input.a.txt"),
        ({**PAIR, "STS.input.a.txt": "a\tb\nc\td\n"}, "found 1; download both again"),
        ({**PAIR, "STS.gs.a.txt": "high\n"}, "STS.gs.a.txt:1: expected a finite number as score"),
        ({**PAIR, "STS.input.a.txt": "a b\n"}, "STS.input.a.txt:1: expected 2 cells separated by"),
        ({**PAIR, "STS.gs.a.txt": "\n"}, "STS.gs.a.txt: expected scored pairs, found none"),
        ({"sts-dev.csv": "x"}, "sts-test.csv: expected the test beside sts-dev.csv, found none"),
        ({"sts-test.csv": "genre\tfile\n"}, "sts-test.csv:1: expected 7 cells"),
        ({"SICK_test_annotated.txt": "1\tE\tF\t1\tNEUTRAL\n"}, ".txt:1: expected the header pair"),
        ({"note.txt": "x"}, "found note.txt; name another folder, or add the test"),
        ({"STS12/STS.input.a.txt": "a\tb\n"}, "found STS12; name another folder"),
    ],
)
def test_read_sts_refuses_a_folder_of_mismatched_files(tmp_path, files, message):
    refused(read_sts, write(tmp_path, files), tmp_path, message)
    refused(read_sts, tmp_path / "absent", tmp_path / "absent", "no such file or folder")


@pytest.mark.parametrize(
    ("name", "counts", "total", "train", "dev"),
    [
        ("sts12", {"MSRpar": 750, "SMTeuroparl": 459, "surprise.SMTnews": 399}, 3108, None, None),
        ("sts13", {"FNWN": 189, "headlines": 750, "OnWN": 561}, 1500, None, None),
        ("sts14", {"deft-forum": 450, "deft-news": 300, "tweet-news": 750}, 3750, None, None),
        ("sts15", {"answers-forums": 375, "belief": 375}, 3000, None, None),
        ("sts16", {"answer-answer": 254, "postediting": 244}, 1186, None, None),
        ("stsb", {"test": 1379}, 1379, 5749, 1500),
        ("sick", {"test": 4927}, 4927, 4500, 500),
    ],
)
def test_published_tests_have_the_published_number_of_pairs(
    published, name, counts, total, train, dev
):
    task = read_sts(published / name)
    pair_counts = {subset.name: len(subset.pairs) for subset in task.subsets}
    assert task.name == name
    assert counts.items() <= pair_counts.items()
    assert sum(pair_counts.values()) == len(task.tested()) == total
    assert (task.train and len(task.train), task.dev and len(task.dev)) == (train, dev)
