from collections import Counter

import pytest

from eval.datasets.classification import PROBING_FILES, read_classification, read_probing
from tests.eval.datasets.question_samples import refused as named
from tests.eval.datasets.question_samples import write

OWN = "split\tlabel\ttext\n"
PAIRS = "label\tsentence1\tsentence2\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
BY_CLASS = {
    "mr": ("rt-polarity.pos", "rt-polarity.neg"),
    "cr": ("custrev.pos", "custrev.neg"),
    "mpqa": ("mpqa.pos", "mpqa.neg"),
    "subj": ("subj.objective", "subj.subjective"),
}
THREE = ("train", "dev", "test")
ENTAILED = ("train", "trial", "test")
SICK_FILES = ("train", "trial", "test_annotated")


def read(task):
    """Return the name of a task and, for each split, its rows as text in order."""
    rows = {}
    for split, texts in task.splits.items():
        columns = [column for column in (texts.labels, texts.left, texts.right) if column]
        rows[split] = "/".join(map(":".join, zip(*columns, strict=True)))
    return task.name, *rows.items()


def refused(path, message, read=read_classification):
    named(read, path, path, message)


SCORED = {f"{split}.tsv": "score\tsentence1\tsentence2\n1\ta\tb\n" for split in ("train", "test")}
# Folder, files, the name of the task, and its rows by split.
TASKS = [
    (
        "Mine",
        {"mine.tsv": OWN + 'test\tx\t"c\ntrain\tx\ta\ntrain\ty\tb\ndev\ty\td \n', "a.md": "x"},
        "mine",
        {"train": "x:a/y:b", "dev": "y:d", "test": 'x:"c'},
    ),
    ("mr", {"mr.tsv": OWN + "all\t1\ta\nall\t0\tb\n"}, "mr", {"all": "1:a/0:b"}),
    (
        "mrpc",
        {f"{split}.tsv": PAIRS + f"1\t{split}\tb\n" for split in ("test", "train")},
        "mrpc",
        {"train": "1:train:b", "test": "1:test:b"},
    ),
    # Entailment beside scored pairs.
    (
        "sick",
        SCORED | {f"entailment.{n}.tsv": PAIRS + f"N\t{n}\tb\n" for n in ENTAILED},
        "sick-e",
        {"train": "N:train:b", "dev": "N:trial:b", "test": "N:test:b"},
    ),
    *(
        (
            "any",
            {positive: "good \n\nbetter\n", negative: "a clich\u00e9\n".encode("latin-1")},
            name,
            {"all": "1:good/1:better/0:a clich\u00e9"},
        )
        for name, (positive, negative) in BY_CLASS.items()
    ),
    # A file that is UTF-8 is not taken for Latin-1.
    ("any", {"mpqa.pos": "clich\u00e9\n", "mpqa.neg": "a\n"}, "mpqa", {"all": "1:clich\u00e9/0:a"}),
    (
        "any",
        {f"sentiment-{split}": f"{split} is\tfun \t1\n3 hours\t0\n" for split in THREE},
        "sst2",
        {split: f"1:{split} is\tfun/0:3 hours" for split in THREE},
    ),
    (
        "any",
        {f"sentiment-{split}": f"4 {split} is fun\n" for split in THREE},
        "sst5",
        {split: f"4:{split} is fun" for split in THREE},
    ),
    (
        "any",
        {
            "train_5500.label.gz": "LOC:city A sister\u00f0city ?\n".encode("latin-1"),
            "TREC_10.label": "NUM:dist How far : is it ?\n",
        },
        "trec",
        {"train": "LOC:A sister\u00f0city ?", "test": "NUM:How far : is it ?"},
    ),
    (
        "any",
        {
            "msr_paraphrase_train.txt": MRPC + '1\t7\t8\tHe said " a\tb\r\n',
            "msr_paraphrase_test.txt": MRPC + "0\t9\t10\tc\td\r\n",
        },
        "mrpc",
        {"train": '1:He said " a:b', "test": "0:c:d"},
    ),
    (
        "any",
        {f"SICK_{n}.txt": SICK + f"1\tA\t{n}\t4.5\tNEUTRAL\n" for n in SICK_FILES},
        "sick-e",
        {"train": "NEUTRAL:A:train", "dev": "NEUTRAL:A:trial", "test": "NEUTRAL:A:test_annotated"},
    ),
]


@pytest.mark.parametrize(("folder", "files", "name", "rows"), TASKS)
def test_read_task_recognizes_the_form_of_each_folder(tmp_path, folder, files, name, rows):
    path = write(tmp_path / folder, files)
    assert read(read_classification(path)) == (name, *rows.items())
    if f"{folder.lower()}.tsv" in files:
        assert read(read_classification(path / f"{folder.lower()}.tsv")) == (name, *rows.items())


SST = {f"sentiment-{split}": "a\t1\n" for split in THREE}
TREC = {"TREC_10.label": "NUM:d a\n"}


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("own", "train\tx\ta\n", "own.tsv: expected the splits train and test, or train, dev"),
        ("own", "all\tx\ta\ntest\tx\ta\n", "or all alone, found all, test; add what is missing"),
        ("own", "test\tx\ta\n", "or all alone, found test; add"),
        ("own", "valid\tx\ta\n", "own.tsv:2: expected the split all, train, dev, test, found"),
        ("own", "test\t \ta\n", "own.tsv:2: expected a label, found 'nothing'"),
        ("own", "test\tx\t \n", "own.tsv:2: expected a text after the label x, found none"),
        ("own", "test\tx\n", "own.tsv:2: expected 3 cells separated by tabs"),
        ("own", "", "own.tsv: expected the splits"),
        ("own", SCORED, "train.tsv:1: expected the header label, sentence1, sentence2, found "),
        ("own", {"train.tsv": PAIRS + "1\ta\t \n"}, "train.tsv:2: expected a text after the lab"),
        ("own", {"train.tsv": PAIRS + "1\ta\tb\n"}, "or all alone, found train; add"),
        ("two", {"a.tsv": OWN, "b.tsv": OWN}, "or one .tsv, found a.tsv, b.tsv; name a file"),
        ("up", {"x/a.tsv": OWN, "y/b.tsv": OWN}, "found x, y; name a file or another folder"),
        ("up", {"x.md": ""}, "found x.md; name a file"),
        *(
            (
                "any",
                {positive: "a\n"},
                f"{negative}: expected this file of the split 'all', found none",
            )
            for positive, negative in BY_CLASS.values()
        ),
        ("any", {"sentiment-train": "a\t1\n"}, "sentiment-dev: expected this file of the split"),
        ("any", TREC, "the split 'train', found none; the folder has the splits test"),
        ("any", {"msr_paraphrase_test.txt": MRPC}, "msr_paraphrase_train.txt: expected this file"),
        ("any", {"SICK_train.txt": SICK}, "SICK_trial.txt: expected this file of the split 'dev'"),
        (
            "any",
            {f"sentiment-{split}": "5 too good\n" for split in THREE},
            "train:1: expected the label 0 or 1 or 2 or 3 or 4, found '5'",
        ),
        ("any", SST | {"sentiment-dev": b"a\t1\nclich\xe9\t0\n"}, "sentiment-dev:2: invalid UTF-8"),
        ("any", SST | {"sentiment-dev": "a 1\n"}, "sentiment-dev:1: expected a text, a tab and 0"),
        ("any", TREC | {"train_5500.label": "GEO:y a\n"}, ":1: expected the label ABBR or DESC or"),
        ("any", TREC | {"train_5500.label": "How far\n"}, ":1: expected a question after its cl"),
        ("any", TREC | {"train_5500.label": "NUM:d\n"}, ":1: expected a text after the label NUM"),
        ("any", TREC | {"train_5500.label": "\n"}, "label: expected labels and texts, found none"),
        ("any", TREC | {"train_5500.label": b"NUM:d a\nNUM:d a\0b\n"}, ":2: holds a NUL byte"),
    ],
)
def test_a_task_that_lacks_a_split_or_is_malformed_is_refused(tmp_path, name, files, message):
    files = {f"{name}.tsv": OWN + files} if isinstance(files, str) else files
    refused(write(tmp_path / name, files), message)
    refused(tmp_path / "absent", "no such file or folder")


PROBE = 'tr\t0\ta " b\ntr\t1\tmore\tc d\nva\t1\te f\nte\t0\tg h\n'


@pytest.mark.parametrize(("name", "file"), [*PROBING_FILES.items(), ("my_task", "my_task.txt")])
def test_the_ten_probing_files_have_their_usual_names(tmp_path, name, file):
    task = read_probing(write(tmp_path, {f"{file}.gz": PROBE}) / f"{file}.gz")
    rows = [("train", '0:a " b/1:c d'), ("dev", "1:e f"), ("test", "0:g h")]
    assert read(task) == (name, *rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROBE + "train\t1\ta\n", ".txt:5: expected tr or va or te, a label and a sentence"),
        (PROBE + "tr\ta\n", ".txt:5: expected tr or va or te"),
        (PROBE + "tr\t\ta\n", ".txt:5: expected a label, found 'nothing'"),
        (PROBE.encode() + b"tr\t1\t\xff\n", ".txt:5: invalid UTF-8"),
        (PROBE.replace("va", "tr"), "expected lines of the splits tr, va, te, found none of va"),
    ],
)
def test_a_malformed_probing_file_is_refused(tmp_path, text, message):
    refused(tmp_path, "probing task, found a folder; name one of its files", read_probing)
    refused(tmp_path / "absent.txt", "no such file or folder", read_probing)
    write(tmp_path, {"bigram_shift.txt": text})
    refused(tmp_path / "bigram_shift.txt", message, read_probing)


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
