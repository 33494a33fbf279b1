"""Reports of any experiment as text, Markdown, LaTeX and a folder of files."""

import builtins
import re

import pytest

from eval import Report, Section, Table, check_report_folder
from eval.reports import in_latex, latex_table, text_lines, write_report
from retriever.errors import StorageError
from tests.eval.sentences.sentence_samples import ODD


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


def test_nothing_in_a_command_is_interpreted(tmp_path):
    command = "retriever '\udcff'\n```\n# x\n\\input{b}"
    write_report(tmp_path / "report", report(command=command))
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    assert lines[2:6] == ["    retriever '\ufffd'", "    ```", "    # x", "    \\input{b}"]
    lines = (tmp_path / "report/report.tex").read_text().splitlines()
    assert lines[1:5] == ["% retriever '\ufffd'", "% ```", "% # x", "% \\input{b}"]


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


_MEANT = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"{\char34}": '"',
    r"{\char96}": "`",
    r"$\pm$": "±",
    r"$\times$": "×",
    "-{}": "-",
    "'{}": "'",
    ",{}": ",",
    **{f"\\{letter}": letter for letter in "{}&%$#_"},
}
_TOKEN = re.compile("|".join(re.escape(one) for one in sorted(_MEANT, key=len, reverse=True)))


def read_latex(text):
    """What LaTeX shows of escaped text; fails on a special character that is not escaped."""
    assert not set(_TOKEN.sub("", text)) & set('\\{}&%$#_~^<>|"`±×')
    return _TOKEN.sub(lambda token: _MEANT[token[0]], text)


@pytest.mark.parametrize("text", [ODD, "''a--b---c,,d", "plain", "50 ± 2 × 3", "\\\\{}"])
def test_latex_shows_what_was_typed(text):
    assert read_latex(in_latex(text)) == text
    # No ligature and no line end is left.
    assert not re.search(r"--|''|,,|[\n\t\x00]", in_latex(f"{text}--- a\nb\tc\x00"))


def test_rows_of_a_table_have_a_cell_for_each_column():
    lines = list(latex_table(Table(("a", "b&c"), (("[x]", "1 & 2"), (ODD, ""))), "t", "l"))
    rows = [line.removesuffix(" \\\\") for line in lines if line.endswith(" \\\\")]
    cells = [[cell[1:-1] for cell in row.split(" & ")] for row in rows if row.startswith("{")]
    # What was typed as " & " has a backslash before the sign, so that only separators divide.
    assert [[read_latex(cell) for cell in row] for row in cells] == [
        ["a", "b&c"],
        ["[x]", "1 & 2"],
        [ODD, ""],
    ]
    assert r"\begin{longtable}{lr}" in lines
