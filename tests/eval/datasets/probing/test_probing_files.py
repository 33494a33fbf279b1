from __future__ import annotations

import gzip

import pytest

from eval.datasets.probing.files import FILES, read_probing
from retriever.errors import SourceError

LINES = 'tr\t0\ta " b\ntr\t1\tc d\nva\t1\te f\nte\t0\tg h\n'


def written(tmp_path, text, name="bigram_shift.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path, message):
    with pytest.raises(SourceError) as caught:
        read_probing(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_three_splits_of_a_file_are_told_by_its_first_column(tmp_path):
    task = read_probing(written(tmp_path, LINES))
    assert task.name == "bshift"
    assert list(task.splits) == ["train", "dev", "test"]
    train = task.splits["train"]
    assert (train.labels, train.left, train.right) == (("0", "1"), ('a " b', "c d"), None)
    assert task.splits["dev"].left == ("e f",)
    assert task.splits["test"].labels == ("0",)


@pytest.mark.parametrize(("name", "file"), FILES.items())
def test_the_ten_files_have_their_usual_names(tmp_path, name, file):
    path = written(tmp_path, gzip.compress(LINES.encode()), file + ".gz")
    assert read_probing(path).name == name


def test_another_file_is_called_as_it_is(tmp_path):
    assert read_probing(written(tmp_path, LINES, "my_task.txt")).name == "my_task"


def test_columns_between_label_and_sentence_are_passed_over(tmp_path):
    task = read_probing(written(tmp_path, LINES.replace("tr\t0\t", "tr\t0\tmore\t")))
    assert task.splits["train"].left[0] == 'a " b'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINES + "train\t1\ta\n", ".txt:5: expected tr or va or te, a label and a sentence"),
        (LINES + "tr\ta\n", ".txt:5: expected tr or va or te"),
        (LINES + "tr\t\ta\n", ".txt:5: expected a label, found 'nothing'"),
        (LINES + "tr\t1\t \n", ".txt:5: expected a text after the label 1"),
        (LINES.encode() + b"tr\t1\t\xff\n", ".txt:5: invalid UTF-8"),
        (LINES.replace("va", "tr"), ".txt: expected lines of the splits tr, va, te, found none of"),
        ("", "found none of tr (train)"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, message):
    refused(written(tmp_path, text), message)


def test_a_folder_is_refused_with_the_files_in_it(tmp_path):
    refused(tmp_path, "expected the file of a probing task, found a folder; name a file")
    written(tmp_path, LINES)
    refused(tmp_path, "name one of its files: bigram_shift.txt")
    refused(tmp_path / "absent.txt", "no such file or folder")
