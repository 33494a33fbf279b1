"""Other writers, full disks, missing permission and damage: one line on stderr, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import traceback
import warnings
from pathlib import Path

import pytest

from indexes.files import aside_of
from indexes.folder.lock import writer_lock
from tests.cli.error_cases import GOOD, NEW, refused

pytestmark = pytest.mark.usefixtures("in_a_folder")


def test_another_writer_is_named(retriever, standing):
    with writer_lock(Path(".retriever")):
        for command in (["index", "good.jsonl"], ["index", "good.jsonl", "--recreate"]):
            refused(retriever(*command), f"process {os.getpid()}", "wait until it has finished")
        refused(retriever("delete", "a"), "another writer")
        assert retriever("query", "apples", "--mode", "bm25").code == 0
        assert retriever("verify").code == 0


@pytest.mark.parametrize("place", ["save_array", "fsync_tree"])
def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(
    retriever, standing, write_jsonl, monkeypatch, place
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    source = write_jsonl({"id": "new", "text": "New."})
    with monkeypatch.context() as patch:
        patch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
        patch.setattr(f"indexes.folder.segment.{place}", full)
        refused(retriever("index", source), "the disk is full", "run the same command again")
        refused(retriever("index", source, "--recreate"), "the disk is full")
    assert retriever("index", source).code == 0


def as_an_ordinary_user(retriever, *arguments):
    """Run the command line in a copy of this process that is not the superuser."""
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        # Python warns of forking with threads about; the child does next to nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        outcome = (-1, "", "")
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            outcome = retriever(*arguments)
        except BaseException:
            outcome = (-1, "", traceback.format_exc())
        finally:
            os.write(sender, json.dumps(outcome).encode())
            os._exit(0)
    os.close(sender)
    with open(receiver) as file:
        code, out, err = json.load(file)
    os.waitpid(child, 0)
    return type(retriever("--version"))(code, out, err)


def test_files_and_folders_without_permission_are_refused(retriever, standing, shared_folder):
    source, folder = shared_folder / "c.jsonl", shared_folder / "index"
    source.write_bytes(NEW)
    source.chmod(0o644)
    assert retriever("index", source, "-i", folder).code == 0
    secret = shared_folder / "secret.jsonl"
    secret.write_bytes(NEW)
    secret.chmod(0)
    anyone = shared_folder / "anyone"
    anyone.mkdir()
    anyone.chmod(0o777)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    shared_folder.chmod(0o555)
    try:
        # Once as the superuser, so that everything is imported that may be.
        retriever("delete", "nobody", "-i", folder)
        retriever("query", "--queries", source, "-i", folder)
        for command, part in (
            (["index", secret, "-i", anyone / "i"], "secret.jsonl: cannot be read: Permission den"),
            (["query", "--queries", secret, "-i", folder], "secret.jsonl: cannot be read"),
            (["index", source, "-i", folder], "permission denied"),
            (["index", source, "-i", folder, "--recreate"], "permission denied"),
            (["index", source, "-i", shared_folder / "other"], "permission denied"),
            (["delete", "new", "-i", folder], "permission denied"),
            (["encode", source, "-o", shared_folder / "v.npy"], "permission denied"),
            (
                ["query", "--queries", source, "-i", folder, "--run", shared_folder / "run"],
                "cannot write the run (Permission denied)",
            ),
        ):
            refused(as_an_ordinary_user(retriever, *command), part)
        found = as_an_ordinary_user(retriever, "query", "text", "-i", folder, "--json")
        assert json.loads(found.out)["id"] == "new"
        assert as_an_ordinary_user(retriever, "verify", "-i", folder).code == 0
    finally:
        for path in [shared_folder, folder, *folder.rglob("*")]:
            path.chmod(0o755)


def test_where_reading_is_refused_the_message_says_so(retriever, standing, shared_folder):
    source, folder = shared_folder / "c.jsonl", shared_folder / "index"
    source.write_bytes(NEW)
    assert retriever("index", source, "-i", folder).code == 0
    for path in [folder, source, *folder.rglob("*")]:
        path.chmod(0o755)
    # Once as the superuser, so that everything is imported that may be.
    retriever("query", "text", "-i", folder, "--mode", "bm25")
    for unreadable, part in (
        (folder / "index.sqlite", "index.sqlite: permission denied: make the file readable"),
        (folder, f"permission denied: make the folder {folder} readable"),
    ):
        unreadable.chmod(0)
        for command in (["query", "text", "-i", folder, "--mode", "bm25"], ["index", source]):
            refused(as_an_ordinary_user(retriever, *command, "-i", folder), part)
        unreadable.chmod(0o755)


@pytest.mark.parametrize("damage", ["missing", "short", "altered", "database"])
def test_a_damaged_index_exits_with_three_and_names_the_file(
    retriever, write_jsonl, monkeypatch, damage
):
    monkeypatch.setattr("indexes.folder.writer.PENDING_LIMIT", 0)
    retriever("index", write_jsonl(*GOOD))
    [path] = Path(".retriever").glob("segments/*/vectors.npy")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(content[:-4])
    elif damage == "altered":
        path.write_bytes(content[:-4] + b"\0\0\x80\x7f")
    else:
        path = Path(".retriever/index.sqlite")
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_000)
    done = retriever("verify")
    assert done.code == 3
    assert str(path) in done.err
    assert done.out == ""
    if damage != "altered":
        refused(retriever("query", "apples"), str(path), code=3)
    if damage == "missing":
        problems = json.loads(retriever("verify", "--json").out)
        assert not problems["sound"]
        assert str(path) in problems["problems"][0]
    # Indexing again is the remedy that the message names.
    assert retriever("index", write_jsonl(*GOOD), "--recreate").code == 0
    assert retriever("verify").code == 0


def test_what_a_replacement_left_is_named_and_removed(retriever, standing):
    """As a crash inside of the removal of the replaced folder leaves it."""
    folder = Path(".retriever")
    aside = aside_of(folder)
    shutil.copytree(folder, aside)
    (aside / "index.sqlite").unlink()
    said = f"{aside}: left by a replacement; `retriever compact` removes it"
    assert said in retriever("info").out
    assert said in retriever("verify").err
    assert retriever("query", "apples", "--mode", "bm25").code == 0
    assert aside.is_dir()
    assert retriever("compact").code == 0
    assert not aside.exists()


def test_opening_recovers_a_replacement_cut_short_between_its_renames(retriever, standing):
    folder = Path(".retriever")
    folder.rename(aside_of(folder))
    assert retriever("query", "apples", "--mode", "bm25").code == 0
    assert folder.is_dir()
