"""The plan of reading names the rule of each entry that is left out, as Git and the reader do."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from retriever import CorpusReader, Index
from retriever.documents.folder_rules import FolderRules
from retriever.documents.plan import plan_reading
from retriever.errors import ConfigError
from tests.retriever.documents.file_samples import book_pdf
from tests.retriever.documents.source_samples import write

NAMES = ["a.md", "b.md", "c.txt", "sub/a.md", "sub/d.txt", "sub/deep/e.md", "log/f.md", "log/a.txt"]
PATTERNS = ["*.md", "!a.md", "sub/", "/c.txt", "deep", "**/d.txt", "# no", "", "log/*", "!log/f.md"]


def left_out(plan):
    return {(group.reason, group.rule): first for group, (_, first) in plan.left_out.items()}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(20))
def test_the_line_that_ignores_a_file_is_that_of_git(tmp_path, seed):
    chance = random.Random(seed)
    for name in NAMES:
        write(tmp_path / name, "text")
    for folder in ("", "sub/"):
        write(tmp_path / f"{folder}.gitignore", "\n".join(chance.sample(PATTERNS, 4)))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    rules = {
        rule.rpartition(": ")[0]: first
        for (reason, rule), first in left_out(plan_reading([tmp_path], FolderRules())).items()
        if reason == "ignored"
    }
    for rule, first in rules.items():
        command = ["git", "-C", tmp_path, "check-ignore", "-v", "--no-index", first]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        source, line, _ = printed.split(":", 2)
        assert rule == f"{source}:{line}"


def test_a_plan_counts_what_a_reader_reads_and_leaves_out(tmp_path):
    for name in ("a.md", "b.md", "data.json", "old.doc", ".env", "id_rsa", "image.png", "x.tmp"):
        write(tmp_path / name, f"text of {name}")
    write(tmp_path / "book.pdf", book_pdf())
    write(tmp_path / ".ignore", "b.md")
    rules = FolderRules(exclude=("*.tmp",))
    plan = plan_reading([tmp_path], rules)
    reader = CorpusReader(tmp_path, exclude=["*.tmp"])
    list(reader)
    assert plan.files == reader.files.read
    counts = {}
    for group, (files, _) in plan.left_out.items():
        counts[group.reason] = counts.get(group.reason, 0) + files
    assert counts == dict(reader.files_left_out)
    rules_by_reason = {group.reason: group.rule for group in plan.left_out}
    assert rules_by_reason["ignored"] == ".ignore:1: b.md"
    assert rules_by_reason["excluded"] == "--exclude '*.tmp'"
    assert "save it as .docx" in rules_by_reason[".doc"]
    assert "--include '*.json'" in rules_by_reason[".json"]
    assert "keys or passwords" in rules_by_reason["possible secrets"]


def test_missing_packages_are_named_with_their_files(tmp_path, monkeypatch):
    write(tmp_path / "book.pdf", book_pdf())
    write(tmp_path / "a.md", "text")
    monkeypatch.setattr(
        "retriever.documents.plan.find_spec", lambda name: None if name == "pypdfium2" else name
    )
    plan = plan_reading([tmp_path], FolderRules())
    assert plan.missing == {"PDF": 1}
    assert plan.files == {"Markdown": 1}


def test_a_rule_gives_files_a_kind_in_a_folder_alone_and_after_a_refresh(tmp_path, fake_encoder):
    note = tmp_path / "notes/read.nfo"
    write(note, "# Title\n\nwords")
    assert list(CorpusReader(tmp_path / "notes", as_kinds=["markdown=*.txt"], only=())) == []
    for source in (tmp_path / "notes", note):
        [document] = CorpusReader(source, as_kinds=["text=*.nfo", "markdown=read.*"])
        assert (document.title, document.text) == ("Title", "words")
    with Index.create(tmp_path / "my.index") as index:
        reader = CorpusReader(tmp_path / "notes", as_kinds=["markdown=*.nfo"])
        index.add(reader, remember=True)
        write(note, "# Title\n\nother words")
        write(tmp_path / "notes/new.nfo", "# New\n\nmore words")
        index.refresh()
        assert {document.title for document in index} == {"Title", "New"}


@pytest.mark.parametrize("rule", ["text", "foo=*.x", "text=", "=*.x", "text=#"])
def test_a_rule_that_is_none_is_refused(rule):
    with pytest.raises(ConfigError, match="--as: expected KIND=PATTERN"):
        FolderRules(as_kinds=(rule,))
