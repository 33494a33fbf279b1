from __future__ import annotations

import gzip
from collections import Counter

import pytest

from eval.datasets.classification import PROBING_FILES, read_classification, read_probing
from retriever.errors import SourceError

OWN = "split\tlabel\ttext\n"
PAIRS = "label\tsentence1\tsentence2\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def rows(texts):
    rights = texts.right or [None] * len(texts)
    return list(zip(texts.labels, texts.left, rights, strict=True))


def splits(task):
    return {split: rows(texts) for split, texts in task.splits.items()}


def refused(path, message, read=read_classification):
    with pytest.raises(SourceError) as caught:
        read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


class TestOwnForm:
    def test_one_file_has_all_splits(self, tmp_path):
        text = OWN + 'test\tx\t"c\ntrain\tx\ta\ntrain\ty\tb\ndev\ty\td \n'
        folder = put(tmp_path / "Mine", {"mine.tsv": text, "SOURCE.md": "x"})
        task = read_classification(folder)
        assert task.name == "mine"
        assert list(splits(task).items()) == [
            ("train", [("x", "a", None), ("y", "b", None)]),
            ("dev", [("y", "d", None)]),
            ("test", [("x", '"c', None)]),
        ]
        assert task.splits["train"].right is None
        assert splits(read_classification(folder / "mine.tsv")) == splits(task)

    def test_a_cross_validated_task_has_one_split(self, tmp_path):
        task = read_classification(put(tmp_path / "mr", {"mr.tsv": OWN + "all\t1\ta\nall\t0\tb\n"}))
        assert (task.name, list(task.splits)) == ("mr", ["all"])

    def test_pairs_have_a_file_a_split(self, tmp_path):
        files = {f"{split}.tsv": PAIRS + f"1\t{split}\tb\n" for split in ("test", "train")}
        task = read_classification(put(tmp_path / "mrpc", files))
        assert task.name == "mrpc"
        assert list(splits(task).items()) == [
            ("train", [("1", "train", "b")]),
            ("test", [("1", "test", "b")]),
        ]

    def test_entailment_is_read_beside_scored_pairs(self, tmp_path):
        files = {f"{split}.tsv": "score\tsentence1\tsentence2\n" for split in ("train", "test")}
        files |= {
            f"entailment.{split}.tsv": PAIRS + f"NEUTRAL\t{split}\tb\n"
            for split in ("train", "trial", "test")
        }
        task = read_classification(put(tmp_path / "sick", files))
        assert task.name == "sick-e"
        assert [texts.left for texts in task.splits.values()] == [("train",), ("trial",), ("test",)]
        assert list(task.splits) == ["train", "dev", "test"]

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("own", "train\tx\ta\n", "own.tsv: expected the splits train and test, or train, dev"),
            ("own", "test\tx\ta\n", "or all alone, found test; add what is missing"),
            ("own", "all\tx\ta\ntest\tx\ta\n", "found all, test"),
            ("trec", "test\tx\ta\n", "expected the splits train, test of trec, found test"),
            ("sst2", "test\tx\ta\ntrain\tx\ta\n", "splits train, dev, test of sst2, found train, "),
            ("mr", "test\tx\ta\ntrain\tx\ta\n", "expected the splits all of mr, found train, test"),
            ("own", "valid\tx\ta\n", "own.tsv:2: expected the split all, train, dev, test, found"),
            ("own", "test\t \ta\n", "own.tsv:2: expected a label, found 'nothing'"),
            ("own", "test\tx\t \n", "own.tsv:2: expected a text after the label x, found none"),
            ("own", "test\tx\n", "own.tsv:2: expected 3 cells separated by tabs"),
            ("own", "", "own.tsv: expected the splits"),
        ],
    )
    def test_a_missing_split_or_a_malformed_line_is_named(self, tmp_path, name, text, message):
        refused(put(tmp_path / name, {f"{name}.tsv": OWN + text}), message)

    def test_files_of_another_kind_are_refused(self, tmp_path):
        score = "score\tsentence1\tsentence2\n1\ta\tb\n"
        folder = put(tmp_path / "stsb", {"train.tsv": score, "test.tsv": score})
        refused(folder, "train.tsv:1: expected the header label, sentence1, sentence2, found ")
        folder = put(tmp_path / "two", {"a.tsv": OWN, "b.tsv": OWN})
        refused(folder, "or one .tsv, found a.tsv, b.tsv; name the file")
        refused(tmp_path, "found none; name one of its folders: stsb, two")
        refused(tmp_path / "absent", "no such file or folder")


class TestSentEval:
    @pytest.mark.parametrize(
        ("name", "one", "other"),
        [
            ("mr", "rt-polarity.pos", "rt-polarity.neg"),
            ("cr", "custrev.pos", "custrev.neg"),
            ("mpqa", "mpqa.pos", "mpqa.neg"),
            ("subj", "subj.objective", "subj.subjective"),
        ],
    )
    def test_a_file_a_class_is_one_split_to_cross_validate(self, tmp_path, name, one, other):
        put(tmp_path, {one: "good \n\nbetter\n", other: "a clich\u00e9\n".encode("latin-1")})
        task = read_classification(tmp_path)
        assert task.name == name
        assert splits(task) == {
            "all": [("1", "good", None), ("1", "better", None), ("0", "a clich\u00e9", None)]
        }
        (tmp_path / other).unlink()
        refused(tmp_path, f"{other}: expected this file of the split 'all', found none")

    def test_a_file_that_is_utf8_is_not_taken_for_latin1(self, tmp_path):
        put(tmp_path, {"mpqa.pos": "clich\u00e9\n", "mpqa.neg": "a\n"})
        assert read_classification(tmp_path).splits["all"].left[0] == "clich\u00e9"

    def test_sst_of_two_classes_has_the_label_after_a_tab(self, tmp_path):
        files = {
            f"sentiment-{split}": f"{split} is fun \t1\n3 hours\t0\n"
            for split in ("train", "dev", "test")
        }
        task = read_classification(put(tmp_path / "any", files))
        assert task.name == "sst2"
        assert list(task.splits) == ["train", "dev", "test"]
        assert splits(task)["dev"] == [("1", "dev is fun", None), ("0", "3 hours", None)]

    def test_sst_of_five_classes_has_the_label_before_a_space(self, tmp_path):
        files = {f"sentiment-{split}": f"4 {split} is fun\n" for split in ("train", "dev", "test")}
        task = read_classification(put(tmp_path, files))
        assert task.name == "sst5"
        assert splits(task)["test"] == [("4", "test is fun", None)]
        put(tmp_path, {"sentiment-test": "5 too good\n"})
        refused(tmp_path, "test:1: expected the label 0 or 1 or 2 or 3 or 4, found '5'")

    def test_trec_has_coarse_classes_and_may_be_latin1(self, tmp_path):
        files = {
            "train_5500.label": "LOC:city A sister\u00f0city ?\n".encode("latin-1"),
            "TREC_10.label": "NUM:dist How far : is it ?\n",
        }
        task = read_classification(put(tmp_path, files))
        assert task.name == "trec"
        assert splits(task) == {
            "train": [("LOC", "A sister\u00f0city ?", None)],
            "test": [("NUM", "How far : is it ?", None)],
        }

    def test_mrpc_has_a_byte_order_mark_and_quotes_that_mean_nothing(self, tmp_path):
        files = {
            "msr_paraphrase_train.txt": MRPC + '1\t7\t8\tHe said " a\tb\r\n',
            "msr_paraphrase_test.txt": MRPC + "0\t9\t10\tc\td\r\n",
        }
        task = read_classification(put(tmp_path, files))
        assert task.name == "mrpc"
        assert splits(task) == {"train": [("1", 'He said " a', "b")], "test": [("0", "c", "d")]}

    def test_sick_has_entailment_in_its_last_column(self, tmp_path):
        names = {"train": "train", "dev": "trial", "test": "test_annotated"}
        files = {
            f"SICK_{name}.txt": SICK + f"1\tA\t{split}\t4.5\tNEUTRAL\n"
            for split, name in names.items()
        }
        task = read_classification(put(tmp_path, files))
        assert task.name == "sick-e"
        assert splits(task) == {split: [("NEUTRAL", "A", split)] for split in names}

    @pytest.mark.parametrize(
        ("file", "text", "message"),
        [
            ("sentiment-train", "a\t1\n", "sentiment-dev: expected this file of the split 'dev'"),
            ("TREC_10.label", "NUM:d a\n", "the split 'train', found none; the folder has the spl"),
            ("msr_paraphrase_test.txt", MRPC, "msr_paraphrase_train.txt: expected this file"),
            ("SICK_train.txt", SICK, "SICK_trial.txt: expected this file of the split 'dev'"),
        ],
    )
    def test_a_missing_split_is_named(self, tmp_path, file, text, message):
        refused(put(tmp_path, {file: text}), message)

    @pytest.mark.parametrize(
        ("file", "text", "message"),
        [
            ("train_5500.label", "NUM:d a\nGEO:y a\n", ":2: expected the label ABBR or DESC or"),
            ("train_5500.label", "How far\n", ":1: expected a question after its class"),
            ("train_5500.label", "NUM:d\n", ":1: expected a text after the label NUM"),
            ("train_5500.label", "\n", "train_5500.label: expected labels and texts, found none"),
            ("train_5500.label", b"NUM:d a\nNUM:d a\0b\n", ":2: holds a NUL byte"),
        ],
    )
    def test_a_malformed_line_is_named(self, tmp_path, file, text, message):
        refused(put(tmp_path, {"TREC_10.label": "NUM:d a\n", file: text}), message)

    def test_a_line_that_is_not_utf8_is_named_where_the_set_is(self, tmp_path):
        files = {f"sentiment-{split}": "a\t1\n" for split in ("train", "dev", "test")}
        put(tmp_path, files | {"sentiment-dev": b"a\t1\nclich\xe9\t0\n"})
        refused(tmp_path, "sentiment-dev:2: invalid UTF-8")
        put(tmp_path, {"sentiment-dev": "a 1\n"})
        refused(tmp_path, "sentiment-dev:1: expected a text, a tab and 0 or 1")

    def test_files_may_be_gzipped(self, tmp_path):
        files = {"train_5500.label.gz": gzip.compress(b"NUM:d a\n"), "TREC_10.label": "NUM:d b\n"}
        assert read_classification(put(tmp_path, files)).splits["train"].left == ("a",)


PROBE = 'tr\t0\ta " b\ntr\t1\tmore\tc d\nva\t1\te f\nte\t0\tg h\n'


class TestProbing:
    @pytest.mark.parametrize(("name", "file"), [*PROBING_FILES.items(), ("my_task", "my_task.txt")])
    def test_the_ten_files_have_their_usual_names(self, tmp_path, name, file):
        task = read_probing(
            put(tmp_path, {f"{file}.gz": gzip.compress(PROBE.encode())}) / f"{file}.gz"
        )
        assert task.name == name
        assert list(splits(task).items()) == [
            ("train", [("0", 'a " b', None), ("1", "c d", None)]),
            ("dev", [("1", "e f", None)]),
            ("test", [("0", "g h", None)]),
        ]
        assert task.splits["train"].right is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (PROBE + "train\t1\ta\n", ".txt:5: expected tr or va or te, a label and a sentence"),
            (PROBE + "tr\ta\n", ".txt:5: expected tr or va or te"),
            (PROBE + "tr\t\ta\n", ".txt:5: expected a label, found 'nothing'"),
            (PROBE + "tr\t1\t \n", ".txt:5: expected a text after the label 1"),
            (PROBE.encode() + b"tr\t1\t\xff\n", ".txt:5: invalid UTF-8"),
            (PROBE.replace("va", "tr"), "expected lines of the splits tr, va, te, found none of"),
            ("", "found none of tr (train)"),
        ],
    )
    def test_a_malformed_file_is_refused(self, tmp_path, text, message):
        refused(
            put(tmp_path, {"bigram_shift.txt": text}) / "bigram_shift.txt", message, read_probing
        )

    def test_a_folder_is_refused_with_the_files_in_it(self, tmp_path):
        refused(tmp_path, "probing task, found a folder; name a file", read_probing)
        put(tmp_path, {"bigram_shift.txt": PROBE})
        refused(tmp_path, "name one of its files: bigram_shift.txt", read_probing)
        refused(tmp_path / "absent.txt", "no such file or folder", read_probing)


@pytest.mark.parametrize(
    ("folder", "name", "counts", "classes"),
    [
        ("mr", "mr", {"all": 10662}, 2),
        ("cr", "cr", {"all": 3771}, 2),
        ("mpqa", "mpqa", {"all": 10603}, 2),
        ("subj", "subj", {"all": 10000}, 2),
        ("sst2", "sst2", {"train": 67349, "dev": 872, "test": 1821}, 2),
        ("sst5", "sst5", {"train": 8544, "dev": 1101, "test": 2210}, 5),
        ("trec", "trec", {"train": 5452, "test": 500}, 6),
        ("mrpc", "mrpc", {"train": 4076, "test": 1725}, 2),
        ("sick", "sick-e", {"train": 4500, "dev": 500, "test": 4927}, 3),
    ],
)
def test_published_sets_have_the_published_number_of_texts(
    published, folder, name, counts, classes
):
    task = read_classification(published / folder)
    assert task.name == name
    assert {split: len(texts) for split, texts in task.splits.items()} == counts
    assert all(len(Counter(texts.labels)) == classes for texts in task.splits.values())
