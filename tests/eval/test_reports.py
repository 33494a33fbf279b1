"""Reports of any experiment as text, Markdown, LaTeX and a folder of files."""

import re

import pytest

from eval import Report, Section, Table, check_report_folder
from eval.reports import in_latex, latex_lines, markdown_table, text_lines, write_report
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


def test_text_lines_show_the_brief_sections_of_a_report():
    assert list(text_lines(report())) == [
        "a title",
        "  fact: text",
        "",
        "caption",
        "name    value",
        "first    1.00",
        "second  22.50*",
    ]


def test_command_in_a_report_is_escaped_in_markdown_and_latex(tmp_path):
    command = "retriever '\udcff'\n```\n# x\n\\input{b}"
    write_report(tmp_path / "report", report(command=command))
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    assert lines[2:6] == ["    retriever '\ufffd'", "    ```", "    # x", "    \\input{b}"]
    lines = (tmp_path / "report/report.tex").read_text().splitlines()
    assert lines[1:5] == ["% retriever '\ufffd'", "% ```", "% # x", "% \\input{b}"]


def test_writing_a_report_again_replaces_only_its_own_files(tmp_path):
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
def test_obstacle_inside_the_report_folder_is_an_error_in_one_line(tmp_path, name):
    obstacle = tmp_path / "report" / name
    obstacle.parent.mkdir()
    if obstacle.suffix:
        obstacle.mkdir()
    else:
        obstacle.write_text("")
    with pytest.raises(StorageError, match=re.escape(str(obstacle))):
        write_report(
            tmp_path / "report", report(figures={"never": int} if name == "figures" else None)
        )
    assert not list((tmp_path / "report").rglob(".*"))


def test_without_matplotlib_the_report_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    figures = {"one": lambda: pytest.fail("no figure can be drawn")}
    written = write_report(tmp_path / "report", report(figures=figures))
    assert not (tmp_path / "report/figures").exists()
    assert written[-1].name == "report.md"
    text = (tmp_path / "report/report.md").read_text().replace("\\", "")
    assert 'pip install "layer-retriever[plot]"' in text


ODD_IN_LATEX = (
    r"a\_b\%c\&d\#e\$f\{g\}\textbackslash{}h\textasciitilde{}i\textasciicircum{}j\textless{}k"
    r"\textgreater{}\textbar{}l{\char34}m{\char96}n-{}-o"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ODD, ODD_IN_LATEX),
        # No ligature and no line end is left.
        ("''a--b---c,,d", "'{}'a-{}-b-{}-{}-c,{},d"),
        ("50 ± 2 × 3", r"50 $\pm$ 2 $\times$ 3"),
        ("a\nb\tc\x00", "a b c\ufffd"),
    ],
)
def test_in_latex_escapes_special_characters(text, expected):
    assert in_latex(text) == expected


def test_latex_table_has_a_cell_for_each_column():
    table = Table(("a", "b&c"), (("[x]", "1 & 2"), (ODD, "")))
    lines = list(latex_lines(Report("name", "title", (Section(tables=(table,)),), {})))
    assert [line for line in lines if line.endswith(r" \\")] == [
        r"{a} & {b\&c} \\",
        r"{[x]} & {1 \& 2} \\",
        rf"{{{ODD_IN_LATEX}}} & {{}} \\",
    ]
    assert r"\begin{longtable}{lr}" in lines


def test_markdown_table_escapes_cells():
    table = Table(("a", "b|c"), ((ODD, "1 | 2"),), "t_t")
    odd = r"a\_b%c\&d\#e\$f\{g\}\\h\~i^j\<k\>\|l" + r'"m\`n--o'
    assert list(markdown_table(table)) == [
        *("", r"**t\_t**", "", r"| a | b\|c |", "| --- | ---: |"),
        rf"| {odd} | 1 \| 2 |",
    ]
