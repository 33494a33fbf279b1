"""Reports of any experiment as text, Markdown and a folder of files."""

from __future__ import annotations

import builtins
import os
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import Report, Section, Table, check_report_folder
from eval.reports.files import write_report
from eval.reports.text import table_lines, text_lines
from retriever.errors import StorageError

CELL = st.text(st.sampled_from("ab 1日本語ｶｷかéñ"), max_size=6).map(str.strip)


def report(*, command="retriever eval", files=None, figures=None):
    rows = (("first", "1.00"), ("second", "22.50*"))
    return Report(
        name="made",
        title="a title",
        sections=(
            Section(facts={"fact": "text"}, brief=True),
            Section("Heading", tables=(Table(("name", "value"), rows, "caption"),), brief=True),
            Section("More", remarks=("only in the files",)),
        ),
        data={"value": 1},
        command=command,
        files=files or {"runs/a.run": lambda: ["line\n"]},
        figures=figures or {},
    )


def cells(text):
    """The width of text without combining characters, from the Unicode database."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=5))
def test_columns_begin_and_end_in_the_same_cell_of_every_line(rows):
    header = ("名前", "Success@10", "z")
    lines = list(table_lines(Table(header, tuple(rows), left=(0, 2))))
    widths = [max(map(cells, column)) for column in zip(header, *rows, strict=True)]
    for line, (first, second, third) in zip(lines, (header, *rows), strict=True):
        gaps = widths[0] - cells(first), widths[1] - cells(second)
        assert line == f"{first}{' ' * (gaps[0] + 2 + gaps[1])}{second}  {third}".rstrip()


def test_a_terminal_shows_the_brief_sections():
    assert list(text_lines(report())) == [
        "a title",
        "  fact: text",
        "",
        "caption",
        "name    value",
        "first    1.00",
        "second  22.50*",
    ]


def test_a_command_that_is_not_utf_8_is_written_as_a_replacement_character(tmp_path):
    write_report(tmp_path / "report", report(command="retriever '\udcff'\n```\n# x"))
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    assert lines[2:5] == ["    retriever '\ufffd'", "    ```", "    # x"]


def test_writing_again_replaces_its_own_files_and_nothing_else(tmp_path):
    folder = tmp_path / "report"
    (folder / "runs").mkdir(parents=True)
    for name in ("mine.txt", "runs/other.run"):
        (folder / name).write_text("kept")
    write_report(folder, report(command="one"))
    once = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_report(folder, report(command="two"))
    assert b"    two\n" in (folder / "report.md").read_bytes()
    write_report(folder, report(command="one"))
    again = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert again == once
    assert (folder / "mine.txt").read_text() == (folder / "runs/other.run").read_text() == "kept"


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, message in (
        (tmp_path / "file", "found a file"),
        (tmp_path / "none/report", "expected its parent to exist"),
    ):
        for refused in (check_report_folder, lambda path: write_report(path, report())):
            with pytest.raises(StorageError, match=message) as caught:
                refused(folder)
            assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    check_report_folder(tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", ["runs", "figures", "report.md"])
def test_something_in_the_way_inside_the_folder_is_an_error_in_one_line(tmp_path, name):
    way = tmp_path / "report" / name
    way.parent.mkdir()
    if way.suffix:
        way.mkdir()
    else:
        way.write_text("")
    with pytest.raises(StorageError, match=re.escape(str(way))):
        write_report(tmp_path / "report", report())
    assert not list((tmp_path / "report").rglob(".*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="choose a writable folder"):
            check_report_folder(tmp_path / "report")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that nobody may write")
def test_a_folder_that_nobody_may_write_is_an_error_in_one_line():
    with pytest.raises(StorageError, match="choose a writable"):
        write_report(Path("/proc/report"), report())


def test_without_matplotlib_the_report_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    figures = {"one": lambda: pytest.fail("no figure can be drawn")}
    written = write_report(tmp_path / "report", report(figures=figures))
    assert not (tmp_path / "report/figures").exists()
    assert written[-1].name == "report.md"
    text = (tmp_path / "report/report.md").read_text().replace("\\", "")
    assert 'pip install "layer-retriever[plot]"' in text
