"""Which files of a folder are read: as git says of the same ignore files, and what is counted."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import ConfigError, CorpusReader
from retriever.documents.folders import FolderRules, files_below, left_out_text
from tests.retriever.documents.source_samples import read, write

# A wildcard of git matches one byte, one of ours a character, so none of another script is alone.
NAMES = st.sampled_from(["a", "b", "ab", "a b", "c[1]", "éa"])
PATHS = st.builds(
    lambda folders, name: "/".join([*folders, f"{name}.txt"]), st.lists(NAMES, max_size=3), NAMES
)
PARTS = st.sampled_from(
    ["a", "b", "ab", "*", "**", "?", "[ab]", "[!a]*", "a*.txt", "*.txt", "b.txt", "c\\[1\\]*", "é*"]
)
LINES = st.builds(
    lambda mark, start, parts, end: f"{mark}{start}{'/'.join(parts)}{end}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/", "  ", "\r"]),
)
IGNORES = st.dictionaries(
    st.lists(NAMES, max_size=2).map("/".join), st.lists(LINES, max_size=4), max_size=3
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@given(paths=st.lists(PATHS, min_size=1, max_size=8), ignores=IGNORES)
def test_ignore_files_mean_what_they_mean_to_git(repository, paths, ignores):
    for name in os.listdir(repository):
        if name != ".git":
            path = repository / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in paths:
        write(repository / path, "x")
    for folder, lines in ignores.items():
        write(repository / folder / ".gitignore", "\n".join(lines))
    command = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others"]
    told = subprocess.run(
        [*command, "--exclude-standard"], cwd=repository, capture_output=True, check=True
    )
    expected = {os.fsdecode(path) for path in told.stdout.split(b"\0") if path}
    expected = {path for path in expected if not path.endswith(".gitignore")}
    assert {one.path for one in files_below(repository, FolderRules(), Counter())} == expected


def test_the_last_ignore_file_of_a_folder_decides_and_each_reason_is_counted(tmp_path):
    kept = ["a.md", "sub/b.txt", "sub/keep/c.txt"]
    for name in (*kept, "x.log", "y.tar.gz", "z.ZIP", "Makefile", ".env", ".git/a.txt"):
        write(tmp_path / name, "text")
    write(tmp_path / "node_modules/m.txt", "text")
    write(tmp_path / "drafts/d.txt", "text")
    write(tmp_path / ".gitignore", "node_modules/\n*.txt\n")
    write(tmp_path / ".retrieverignore", "!*.txt\n")
    (tmp_path / "loop").symlink_to("sub")
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate((64 << 20) + 1)
    reader = CorpusReader(tmp_path, exclude=["drafts/"])
    assert [one.id for one in reader] == kept
    assert reader.files_left_out == Counter(
        {
            ".log": 1,
            ".gz": 1,
            ".zip": 1,
            "of other names": 1,
            "hidden": 2,
            "ignored": 1,
            "excluded": 1,
            "links to folders": 1,
            "larger than 64 MiB": 1,
        }
    )


def test_only_what_is_included_is_read(tmp_path):
    for name in ("a.md", "b.txt", "sub/c.md", "sub/d.txt", "docs/e.txt"):
        write(tmp_path / name, "text")
    wanted = {"include": ["*.md", "docs/"], "exclude": ["/a.md"]}
    assert [one.id for one in read(tmp_path, **wanted)] == ["docs/e.txt", "sub/c.md"]
    for pattern in (" ", "# a", "*a*b*c*d*"):
        with pytest.raises(ConfigError, match="expected a pattern"):
            CorpusReader(tmp_path, exclude=[pattern])


def test_ignore_files_that_are_links_pipes_or_made_to_take_long_do_no_harm(tmp_path):
    write(tmp_path / "out", "*.txt")
    folder = tmp_path / "notes"
    write(folder / f"{'a' * 200}b.txt", "text")
    (folder / ".gitignore").symlink_to("../out")
    os.mkfifo(folder / ".ignore")
    write(folder / ".retrieverignore", b"\xff*\n!\n[\n" + b"*a" * 20 + b"*c\n" + b"**/a/" * 30)
    started = time.perf_counter()
    assert len(read(folder)) == 1
    assert time.perf_counter() - started < 2


def test_the_largest_counts_are_listed():
    counts = {f".s{number}": number for number in range(1, 21)}
    assert left_out_text({".gz": 12, ".html": 1200, "hidden": 12}) == (
        "1,200 .html, 12 .gz, 12 hidden"
    )
    assert left_out_text(counts).startswith("20 .s20, 19 .s19, ")
    assert left_out_text(counts).endswith("9 .s9 and 36 of other kinds")
