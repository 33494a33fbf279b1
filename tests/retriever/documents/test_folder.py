"""Folders: which files are read, as git says of the same ignore files; order, and bad files."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import ConfigError, CorpusReader, SourceError
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import files_below, left_out_text
from tests.retriever.documents.ignore_samples import make_tree
from tests.retriever.documents.source_samples import read, refuses, write


def test_a_folder_is_read_in_order_of_relative_paths_without_hidden_ones(tmp_path):
    names = ["b.txt", "a.txt", "a/z.md", "a-b.txt", "a/b/c.TXT", "a.b/x.txt", "ä.md", "a!/q.txt"]
    for name in names:
        write(tmp_path / name, f"text of {name}\n")
    for name in (".hidden.txt", ".git/x.txt", "a/.x/y.md", "c.xyz", "d.jsonl", "empty/.keep"):
        write(tmp_path / name, "not read")
    os.symlink(tmp_path, tmp_path / "loop")
    reader = CorpusReader([str(tmp_path)])
    assert [(document.id, document.text) for document in reader] == [
        (name, f"text of {name}") for name in sorted(names)
    ]
    assert reader.bytes_read == reader.total_bytes
    assert reader.generated_ids == "ids are the paths relative to the folder"


def test_folder_deeper_than_recursion_limit_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(1100):
        os.mkdir("a")
        os.chdir("a")
    Path("deep.txt").write_text("deep")
    os.chdir(tmp_path)
    try:
        assert [document.text for document in CorpusReader(["."])] == ["deep"]
    finally:
        # shutil.rmtree calls itself for each level.
        for _ in range(1100):
            os.chdir("a")
        os.unlink("deep.txt")
        for _ in range(1100):
            os.chdir("..")
            os.rmdir("a")


def test_links_out_of_folder_and_special_files_are_skipped_and_counted(tmp_path):
    write(tmp_path / "secret.txt", "secret")
    write(tmp_path / "outside/b.txt", "outside")
    inside = tmp_path / "source"
    write(inside / "a.txt", "plain")
    (inside / "below").mkdir()
    links = {
        "b.txt": "../secret.txt",
        "c.txt": tmp_path / "secret.txt",
        "below/d.txt": "../../secret.txt",
        "gone.txt": "../nowhere.txt",
        "out": "../outside",
        "in": "below",
        "below/e.txt": "../a.txt",
    }
    for name, target in links.items():
        (inside / name).symlink_to(target)
    os.mkfifo(inside / "pipe.txt")
    link = "a link that leads out of the source, which is not followed"
    out = [
        f"{inside}/{name}: {link}" for name in ("b.txt", "below/d.txt", "c.txt", "gone.txt", "out")
    ]
    for on_error in ("fail", "skip"):
        reader = CorpusReader([inside], on_error=on_error)
        assert [(document.id, document.text) for document in reader] == [
            ("a.txt", "plain"),
            ("below/e.txt", "plain"),
        ]
        assert reader.problems == [*out, f"{inside}/pipe.txt: not a plain file"]
        assert reader.skipped == 6


def test_a_source_that_is_a_link_is_followed(tmp_path):
    write(tmp_path / "texts/a.txt", "x")
    (tmp_path / "texts/b.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to("texts")
    reader = CorpusReader([tmp_path / "link"])
    assert [document.id for document in reader] == ["a.txt", "b.txt"]
    assert reader.skipped == 0


def test_unreadable_path_below_folder_is_named_or_skipped(tmp_path, longest):
    write(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").symlink_to("nowhere.txt")
    (tmp_path / "c.txt").symlink_to("c.txt")
    write(tmp_path / "d.txt.gz", gzip.compress(b"cut" * 100)[:-9])
    write(tmp_path / "e.txt.gz", gzip.compress(b"x" * (longest + 1), 1))
    write(tmp_path / "f.txt", b"fine\nnot \xff fine: " + bytes(range(1, 0x100)))
    write(tmp_path / "g.md", " \n")
    write(tmp_path / "h.txt", "x\n\n\0x\0")
    with pytest.raises(SourceError, match=r"b\.txt: no such file"):
        CorpusReader([tmp_path])
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [document.id for document in reader] == ["a.txt"]
    said = ["b.txt: no such file", "c.txt: cannot be read: ", "d.txt.gz: the gzip data ends"]
    said += ["e.txt.gz: longer than 64 MiB", "f.txt:2: invalid UTF-8: byte 0xff"]
    said.append("h.txt:3: holds a NUL byte")
    assert reader.skipped == len(said)
    for problem, start in zip(reader.problems, said, strict=True):
        assert problem.startswith(f"{tmp_path}/{start}")
    assert (reader.empty, reader.empty_at) == (1, [f"{tmp_path}/g.md"])
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.txt").unlink()
    with pytest.raises(SourceError, match=r"d\.txt\.gz: the gzip data ends"):
        read(tmp_path)


def test_a_file_name_that_is_not_utf8_is_named_or_skipped(tmp_path):
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    write(tmp_path / "a.txt", "x")
    reader = CorpusReader([tmp_path], on_error="skip")
    assert [document.id for document in reader] == ["a.txt"]
    assert "name is not UTF-8" in reader.problems[0]


def test_a_folder_without_documents_is_an_error(tmp_path):
    write(tmp_path / "texts/c.xyz", "x")
    refuses(tmp_path / "texts", r"the folder holds no file of a kind that is read")
    (tmp_path / "texts/a.txt").symlink_to(write(tmp_path / "secret.txt", "x"))
    refuses(tmp_path / "texts", r"a\.txt: a link that leads out of the source")


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


@pytest.mark.parametrize(
    "seeds", [range(400), pytest.param(range(400, 8000), marks=pytest.mark.soak)]
)
def test_odd_patterns_mean_what_they_mean_to_git(repository, seeds):
    (repository / ".gitignore").unlink(missing_ok=True)
    trees = {f"tree{seed}": make_tree(repository / f"tree{seed}", seed) for seed in seeds}
    paths = {os.fsencode(tree) + b"/" + name for tree, names in trees.items() for name in names}
    told = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "-z", "--stdin", "--no-index"],
        cwd=repository,
        input=b"\0".join(sorted(paths)) + b"\0",
        capture_output=True,
        check=True,
    )
    ignored = set(told.stdout.split(b"\0")[:-1])
    assert len(paths) / 5 < len(ignored) < len(paths) / 2
    read = {
        os.fsencode(f"{tree}/{entry.path}")
        for tree in trees
        for entry in files_below(repository / tree, FolderRules(), Counter())
    }
    for tree in trees:
        shutil.rmtree(repository / tree)
    assert read == paths - ignored


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "a/b**/c.txt",
            "/a**/c.txt",
            "a/b**/**/c.txt",
            "a/b***/*.txt",
            "a/b**",
            "a/b**/",
            "b**/c",
        ),
        *("a/?**/c.txt", "a/b**c.txt", "a/**\\/c.txt", "a/b**/x/**", "**/b**/c.txt"),
    ],
)
def test_stars_after_a_literal_mean_what_they_mean_to_git(repository, pattern):
    tree = repository / "stars"
    names = ["a/bc.txt", "a/b/c.txt", "a/bx/c.txt", "a/bx/y/c.txt", "a/b/x/y.txt", "a/bxc.txt"]
    names += ["ac.txt", "ax/c.txt", "a/c.txt", "b/c/d.txt", "bx/y/c.txt"]
    for name in names:
        write(tree / name, "x")
    write(tree / ".gitignore", pattern)
    command = ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", *names]
    told = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    expected = set(names) - set(told.stdout.split())
    read = {entry.path for entry in files_below(tree, FolderRules(), Counter())}
    shutil.rmtree(tree)
    assert read == expected


def test_the_last_ignore_file_of_a_folder_decides_and_each_reason_is_counted(tmp_path):
    expected = ["Makefile", "a.md", "sub/b.txt", "sub/keep/c.txt"]
    for name in (*expected, "x.log", "y.tar.gz", "z.ZIP", ".env", ".git/a.txt", "id_rsa", "a~"):
        write(tmp_path / name, "text")
    write(tmp_path / "tool", b"\x7fELF\x02\0")
    write(tmp_path / "state", '{"a": 1}')
    write(tmp_path / "stamp", "")
    write(tmp_path / "node_modules/m.txt", "text")
    write(tmp_path / "drafts/d.txt", "text")
    write(tmp_path / ".gitignore", "node_modules/\n*.txt\n")
    write(tmp_path / ".retrieverignore", "!*.txt\n")
    (tmp_path / "loop").symlink_to("sub")
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate((64 << 20) + 1)
    reader = CorpusReader(tmp_path, exclude=["drafts/"])
    assert [document.id for document in reader] == expected
    assert reader.files_left_out == Counter(
        {
            ".log": 1,
            ".gz": 1,
            ".zip": 1,
            "possible secrets": 1,
            "backup copies": 1,
            "binary without a suffix": 1,
            "data without a suffix": 1,
            "empty without a suffix": 1,
            "hidden": 2,
            "ignored": 1,
            "excluded": 1,
            "links to folders": 1,
            "larger than 64 MiB": 1,
        }
    )


def test_include_and_exclude_patterns_select_files(tmp_path):
    for name in ("a.md", "b.txt", "sub/c.md", "sub/d.txt", "docs/e.txt"):
        write(tmp_path / name, "text")
    wanted = {"include": ["*.md", "docs/"], "exclude": ["/a.md"]}
    assert [document.id for document in read(tmp_path, **wanted)] == ["docs/e.txt", "sub/c.md"]
    # Of these none can match.
    for pattern in ("", " ", "# a", "!", "/", "a[", "[[:word:]]", "a\\"):
        with pytest.raises(ConfigError, match="expected a pattern"):
            CorpusReader(tmp_path, exclude=[pattern])


def test_ignore_files_that_are_links_or_pipes_are_counted(tmp_path):
    write(tmp_path / "out", "*.txt")
    folder = tmp_path / "notes"
    write(folder / "b.txt", "text")
    (folder / ".gitignore").symlink_to("../out")
    os.mkfifo(folder / ".ignore")
    write(folder / ".retrieverignore", b"\xff*\n!\n[\n")
    reader = CorpusReader(folder)
    assert [document.id for document in reader] == ["b.txt"]
    assert reader.files_left_out == {"ignore files that are not plain": 2}


HARD = "**/*a*a*/**/*a*a*/**/*a*a*z"


@pytest.mark.parametrize(
    "pattern", [HARD, "*a" * 20 + "z", "[!b]*[!b]?*z", "a" * 200, "**/a/" * 30]
)
def test_any_ignore_pattern_matches_in_little_time(tmp_path, pattern):
    deep = tmp_path.joinpath(*["a" * 20] * 40)
    for number in range(5):
        write(deep / f"{'a' * 200}{number}.md", "text")
    (tmp_path / ".gitignore").write_text(f"{pattern}\n" * ((1 << 16) // (len(pattern) + 1)))
    rules = FolderRules((f"{HARD}.md", "*.md"), (pattern, HARD))
    started = time.perf_counter()
    assert len(list(files_below(tmp_path, rules, Counter()))) == 5
    # Half a minute and more where a pattern is tried anew at each character.
    assert time.perf_counter() - started < 15


def test_a_folder_whose_ignore_file_cannot_be_used_is_passed_over(tmp_path):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "sub/b.txt", "text")
    write(tmp_path / "sub/below/c.txt", "text")
    for name in (".gitignore", ".ignore", ".retrieverignore"):
        rules = write(tmp_path / "sub" / name, "#" * (1 << 16))
        assert len(read(tmp_path)) == 3
        write(rules, "#" * ((1 << 16) + 1))
        said = f"sub: the folder is passed over, since its {name} is larger than 64 KiB"
        with pytest.raises(SourceError, match=re.escape(said)):
            CorpusReader(tmp_path)
        reader = CorpusReader(tmp_path, on_error="skip-files")
        assert [document.id for document in reader] == ["a.txt"]
        assert reader.skipped == 1
        assert said in reader.problems[0]
        rules.unlink()
    write(tmp_path / ".gitignore", "#" * ((1 << 16) + 1))
    with pytest.raises(SourceError, match=r"passed over, since its \.gitignore is larger"):
        CorpusReader(tmp_path, on_error="skip")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_whose_ignore_file_cannot_be_read_is_passed_over(tmp_path):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "sub/b.txt", "text")
    write(tmp_path / "sub/.gitignore", "b.txt").chmod(0)
    reader = CorpusReader(tmp_path, on_error="skip-files")
    assert [document.id for document in reader] == ["a.txt"]
    assert "since its .gitignore cannot be read: Permission denied" in reader.problems[0]


def test_message_lists_largest_counts_of_files_left_out():
    counts = {f".s{number}": number for number in range(1, 21)}
    assert left_out_text({".gz": 12, ".html": 1200, "hidden": 12}) == (
        "1,200 .html, 12 .gz, 12 hidden"
    )
    assert left_out_text(counts).startswith("20 .s20, 19 .s19, ")
    assert left_out_text(counts).endswith("9 .s9 and 36 of .s8, .s7, .s6, .s5, .s4, .s3, .s2, .s1")
    counts = {f".s{number}": number for number in range(1, 41)}
    assert left_out_text(counts).endswith(".s10, .s9 and others")
