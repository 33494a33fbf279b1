"""Plain lines, standard input, gzip, detection, several sources, and errors of whole ones."""

from __future__ import annotations

import gzip
import io
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from retriever import ConfigError, CorpusReader, Fields, SourceError
from retriever.documents.sources import UnopenedError
from tests.retriever.documents.source_samples import names_or_skips, read, refuses, write


def texts(source: object, *fields: object) -> list[str]:
    return [document.text for document in read(source, *fields)]


def test_a_text_file_holds_a_passage_a_line(tmp_path):
    path = write(tmp_path / "c.txt", '\ufeffone \r\n\n  \n{"two"}\x0b\u2028\rthree\nfour')
    assert texts(path) == ["one ", '{"two"}\x0b\u2028\rthree', "four"]


@pytest.mark.parametrize(
    ("line", "message"), [(b"tw\xc3", "invalid UTF-8: byte 0xc3"), (b"thr\0ee", "NUL byte")]
)
def test_a_bad_text_line_is_named_or_skipped(tmp_path, line, message):
    path = write(tmp_path / "c.txt", b"one\n" + line + b"\nfour\n")
    names_or_skips(path, ":2", message, ["one", "four"])


@pytest.mark.parametrize("fields", [Fields(id="key"), Fields(title="head")])
def test_plain_text_has_no_named_id_or_title(tmp_path, fields):
    write(tmp_path / "c.txt", "one\n")
    for source in (tmp_path, tmp_path / "c.txt"):
        refuses(source, "plain text, which has no", fields)


DETECTED = {
    "jsonl": b' \n{"text": "x"}\n',
    "jsonl with mark": b'\xef\xbb\xbf{"text": "x"}\n',
    "csv": b"id,text\r\n1,x\r\n",
    "quoted csv": b'"a,b","passage"\n1,x\n',
    "one column": b'text\n"x"\n',
    "tsv": b"id\ttext\n1\tx\n",
    "tsv with commas": b"a,b\tcontents\n1\tx\n",
    "lines": b"x",
}


@pytest.mark.parametrize("content", DETECTED.values(), ids=DETECTED.keys())
@pytest.mark.parametrize("name", ["corpus", "corpus.data", "corpus.gz", "-"])
def test_format_is_detected_from_content_without_known_suffix(tmp_path, name, content):
    zipped = gzip.compress(content)
    for data in (content, zipped):
        stdin = io.BytesIO(data)
        source = name if name == "-" else write(tmp_path / name, data)
        reader = CorpusReader([source], stdin=stdin)
        assert [document.text for document in reader] == ["x"]
        assert reader.total_bytes == (None if name == "-" else len(data))
        assert reader.bytes_read == len(data)


def test_the_given_text_field_takes_part_in_detection(tmp_path):
    path = write(tmp_path / "corpus", "id,body\n1,x\n")
    assert texts(path, Fields(text="body")) == ["x"]
    refuses(path, "text field 'other'", Fields(text="other"))


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl"])
def test_gzip_is_told_by_its_magic_bytes_and_may_have_several_members(tmp_path, name):
    parts = [gzip.compress(f'{{"id": {i}, "text": "t{i}"}}\n'.encode()) for i in range(3)]
    reader = CorpusReader([write(tmp_path / name, b"".join(parts))])
    assert [document.text for document in reader] == ["t0", "t1", "t2"]
    assert reader.bytes_read == reader.total_bytes
    # Nor does the name tell.
    assert texts(write(tmp_path / "c.txt.gz", "plain\n")) == ["plain"]


@pytest.mark.parametrize("name", ["c.json", "c.jsonl", "c"])
def test_a_json_array_is_refused_with_the_remedy(tmp_path, name):
    path = write(tmp_path / name, '\n[ {"text": "x"}]')
    refuses(path, r"JSON array.*jq -c '\.\[\]'")


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.tsv", "c.txt", "c"])
@pytest.mark.parametrize(
    "content", [b"", b"\n \n", gzip.compress(b"")], ids=["empty", "blank lines", "empty gzip"]
)
def test_a_source_without_records_is_an_error(tmp_path, name, content):
    path = write(tmp_path / name, content)
    refuses(path, "holds no records|no text column")


def test_a_file_that_vanishes_or_is_forbidden_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "c.txt", "x")
    reader = CorpusReader([path], on_error="skip")

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", forbidden)
        with pytest.raises(SourceError, match=r"c\.txt: cannot be read: Permission denied"):
            list(reader)
    path.unlink()
    with pytest.raises(SourceError, match="no such file"):
        list(reader)


@pytest.mark.parametrize(("kept", "place"), [(2, 2), (9, 500), (200, -6), (-1, 2), (-8, 2)])
def test_damaged_gzip_is_raised_even_when_skipping(tmp_path, kept, place):
    lines = "".join(f'{{"id": {i}, "text": "{i * 7919}"}}\n' for i in range(5000))
    data = bytearray(gzip.compress(lines.encode()))
    refuses(write(tmp_path / "c.jsonl", bytes(data[:kept])), "the gzip data ends too early")
    data[place] ^= 0xFF
    refuses(write(tmp_path / "d.jsonl", bytes(data)), "the gzip data is corrupt")


def test_sources_that_cannot_be_opened_are_skipped_unless_none_can(tmp_path):
    good = write(tmp_path / "a.txt", "x\n")
    bad = [tmp_path / "gone.txt", tmp_path / "dangling.txt", tmp_path / "loop", tmp_path / "no.db"]
    bad[1].symlink_to("nowhere.txt")
    bad[2].symlink_to("loop")
    for one in bad:
        with pytest.raises(SourceError, match=str(one)):
            CorpusReader([good, one])
    reader = CorpusReader([*bad, good], on_error="skip")
    assert [document.text for document in reader] == ["x"]
    assert (reader.skipped, reader.total_bytes) == (4, 2)
    assert all(map(str.startswith, reader.problems, map(str, bad)))
    with pytest.raises(SourceError, match=r"no\.db: no such file"):
        CorpusReader(bad, on_error="skip")


def test_a_folder_that_cannot_be_listed_is_named_or_skipped(tmp_path, monkeypatch):
    scandir = os.scandir

    def listed(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.chdir(tmp_path)
    for name in ("all/good.txt", "all/locked/a.txt", "locked/b.txt"):
        write(tmp_path / name, "x")
    fault = "the folder cannot be listed: Permission denied"
    outer, inner = f"locked: {fault}", f"all/locked: {fault}"
    for sources, ids, problems in (
        (["all"], ["good.txt"], [inner]),
        (["locked", "all"], ["all/good.txt"], [outer, inner]),
    ):
        with pytest.raises(UnopenedError, match=f"^{problems[0]}"):
            CorpusReader(sources)
        reader = CorpusReader(sources, on_error="skip")
        assert [document.id for document in reader] == ids
        assert reader.problems == problems
    with pytest.raises(UnopenedError, match=f"^{outer}"):
        CorpusReader("locked", on_error="skip")


def test_standard_input_is_read_only_once(monkeypatch):
    lines = io.BytesIO(b'{"id": "a", "text": "x"}\nbad\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
    reader = CorpusReader(["-"], on_error="skip")
    assert [(document.id, document.text) for document in reader] == [("a", "x")]
    assert reader.problems[0].startswith("stdin:2: not JSON")
    with pytest.raises(SourceError, match=r"^stdin: holds no records"):
        list(reader)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_delivers_few_bytes_at_a_time_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def feed() -> None:
        with pipe.open("wb", buffering=0) as file:
            for byte in b"id,text\n1,x\n2,y\n":
                file.write(bytes([byte]))

    writer = threading.Thread(target=feed)
    reader = CorpusReader([pipe])
    writer.start()
    assert [document.text for document in reader] == ["x", "y"]
    writer.join()
    assert reader.total_bytes is None


EMPTY = {
    "c.jsonl": (
        '{"id": 1, "text": "x"}\n{"id": 2, "text": " \\n"}\n{"id": 3, "text": "", "title": " "}\n',
        [":2", ":3"],
    ),
    "c.csv": ("id,text,title\n1,x,\n2, ,\n3,,\n", [":3", ":4"]),
    "c.tsv": ("1\tx\n2\t\n3\t \n", [":2", ":3"]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_records_are_counted_and_skipped_or_malformed(tmp_path, name):
    content, places = EMPTY[name]
    path = write(tmp_path / name, content)
    reader = CorpusReader([path])
    assert [(document.id, document.text) for document in reader] == [("1", "x")]
    assert (reader.empty, reader.skipped, reader.problems) == (2, 0, [])
    assert reader.empty_at == [f"{path}{place}" for place in places]
    reader = CorpusReader([path], on_empty="fail", on_error="skip")
    assert [document.id for document in reader] == ["1"]
    said = "expected a text or a title, found neither"
    assert reader.problems == [f"{path}{place}: {said}" for place in places]
    assert reader.empty == 0
    with pytest.raises(SourceError, match=f"{places[0]}: {said}"):
        read(path, on_empty="fail")


def test_unknown_reader_settings_and_empty_sources_are_refused(tmp_path):
    for name in ("on_error", "on_empty"):
        with pytest.raises(ConfigError, match=f"{name} is 'ignore'"):
            CorpusReader(["-"], **{name: "ignore"})
    with pytest.raises(SourceError, match="no source was given"):
        CorpusReader([])


@pytest.mark.soak
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    peaks = []
    # The smaller file fills the buffers of gzip too, which have 128 KiB since Python 3.12.
    for count in (25_000, 75_000):
        lines = (f'{{"id": "doc{i}", "text": "text number {i}"}}\n' for i in range(count))
        path = write(tmp_path / f"{count}.jsonl", gzip.compress("".join(lines).encode()))
        tracemalloc.start()
        for _ in CorpusReader([path]):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_reader_left_halfway_closes_its_file(tmp_path):
    path = write(tmp_path / "c.jsonl", '{"id": 1, "text": "x"}\n{"id": 2, "text": "y"}\n')
    documents = iter(CorpusReader([path]))
    assert next(documents).id == "1"
    documents.close()
    open_files = Path("/proc/self/fd")
    if open_files.exists():
        assert str(path) not in [os.path.realpath(link) for link in open_files.iterdir()]


def sources(folder: Path) -> None:
    """Two folders that hold the same name, and two files with an id in common."""
    for name in ("p1/README.md", "p1/a/b.txt", "p2/README.md", "2/p1/a.txt"):
        write(folder / name, f"text of {name}")
    for name, ids in (("a.jsonl", ("x", "README.md")), ("b.jsonl", ("z", "x"))):
        write(folder / name, "".join(f'{{"id": "{id_}", "text": "t"}}\n' for id_ in ids))


def test_ids_of_several_folders_begin_with_the_folders_names(tmp_path, monkeypatch):
    sources(tmp_path)
    reader = CorpusReader([tmp_path / "p1", f"{tmp_path}/p2"])
    names = ["p1/README.md", "p1/a/b.txt", "p2/README.md"]
    assert [(document.id, document.text) for document in reader] == [
        (name, f"text of {name}") for name in names
    ]
    assert reader.generated_ids == "ids are the names of the folders with the paths below them"
    # However the folders are written.
    monkeypatch.chdir(tmp_path / "p1")
    assert [document.id for document in CorpusReader([".", "../p2/"])] == names
    for second in ("../2/p1", "../p1/"):
        with pytest.raises(SourceError, match=r"/p1/?: has the same name as \., so ids"):
            CorpusReader([".", second])


def test_an_id_in_two_sources_is_an_error_that_names_both(tmp_path):
    sources(tmp_path)
    for first, second, at, ids in (
        ("a.jsonl", "b.jsonl", "a.jsonl:1", ["x", "README.md", "z"]),
        ("p2", "a.jsonl", "p2/README.md", ["README.md", "x"]),
    ):
        given = [tmp_path / first, tmp_path / second]
        with pytest.raises(SourceError, match=f"^{given[1]}:2: the id .* before, at .*/{at}; "):
            list(CorpusReader(given))
        reader = CorpusReader(given, on_error="skip")
        # Each time that it is read.
        for _ in range(2):
            assert [document.id for document in reader] == ids
            assert reader.skipped == 1


@pytest.mark.parametrize(("id_", "kept"), [('"id": "a", ', ["a", ""]), ("", [""])])
def test_empty_records_with_an_id_are_yielded_if_asked_for(tmp_path, id_, kept):
    other = id_.replace("a", "b")
    path = write(tmp_path / "c.jsonl", f'{{{id_}"text": " "}}\n{{{other}"text": "x"}}\n')
    reader = CorpusReader([path], on_empty="yield")
    assert [document.id if document.is_empty else "" for document in reader] == kept
    assert reader.empty_at == [f"{path}:1"]
