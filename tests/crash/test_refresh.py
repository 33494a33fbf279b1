"""Killed at any step of a refresh, an index is sound, and the next refresh makes it right."""

import json
import os
import shutil

import pytest

from indexes.folder.verify import verify
from retriever import CorpusReader, Index
from retriever.documents.dates import file_time
from retriever.index.indexing.run import CommitSettings
from tests.conftest import FakeEncoder
from tests.crash.steps import yield_killed_copies


def sources(folder):
    return [folder / "notes", folder / "c.jsonl"]


def write_sources(folder, texts, records):
    """Write the sources: files of a folder by name, and records by id."""
    notes, lines = sources(folder)
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir()
    for name, text in texts.items():
        (notes / f"{name}.txt").write_text(text)
    # Its files are older than two seconds, and some are only touched by the next writing.
    for number, path in enumerate(sorted(notes.iterdir())):
        moment = 10**9 + len(texts) * 100 + number
        os.utime(path, (moment, moment))
    lines.write_text(
        "".join(json.dumps({"id": id_, "text": records[id_]}) + "\n" for id_ in records)
    )


BEFORE = {"a": "one", "b": "two", "c": "three"}, {"x": "four", "y": "five"}
CHANGED = {"a": "one", "b": "another", "new": "six"}, {"y": "five", "z": "seven"}
# What was new is gone again: the index may hold it after the kill.
LATER = {"a": "one", "later": "eight"}, {"x": "nine"}


def refresh(index_folder):
    with Index.open(index_folder, encoder=FakeEncoder()) as index:
        return index.refresh()


def stored_texts(index_folder):
    with Index.open(index_folder, encoder=FakeEncoder()) as index:
        return {document.id: document.text for document in index}


def are_times_those_of_files(index_folder, folder):
    with Index.open(index_folder, encoder=FakeEncoder()) as index:
        times = {document.id: document.metadata.get("modified") for document in index}
    files = {path.name: path.stat().st_mtime_ns for path in sources(folder)[0].iterdir()}
    return all(times[name] == file_time(moment) for name, moment in files.items())


def expected(texts, records):
    return {**{f"{name}.txt": text for name, text in texts.items()}, **records}


@pytest.mark.parametrize("action", ["refresh", "index"])
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_refresh_killed_before_each_step_is_completed_by_the_next(tmp_path, action, every):
    template = tmp_path / "template"
    write_sources(tmp_path, *BEFORE)

    def perform(folder):
        if action == "refresh":
            refresh(folder)
            return
        with Index.create(folder, encoder=FakeEncoder()) as index:
            reader = CorpusReader(sources(tmp_path), on_empty="yield")
            index.add(reader, remember=True, commit=CommitSettings(seconds=0))

    with Index.create(template, encoder=FakeEncoder()) as index:
        if action == "refresh":
            index.add(CorpusReader(sources(tmp_path), on_empty="yield"), remember=True)
    write_sources(tmp_path, *CHANGED)
    copies = yield_killed_copies(template, tmp_path, perform, every)
    assert stored_texts(next(copies)) == expected(*CHANGED)
    for folder in copies:
        assert verify(folder) == []
        resumed = shutil.copytree(folder, folder.with_suffix(".resumed"))
        perform(resumed)
        assert stored_texts(resumed) == expected(*CHANGED)
        assert are_times_those_of_files(resumed, tmp_path)
        write_sources(tmp_path, *LATER)
        with Index.open(folder) as index:
            remembers = bool(index.sources)
        if remembers:
            refresh(folder)
            assert stored_texts(folder) == expected(*LATER)
        else:
            assert stored_texts(folder) == {}
        write_sources(tmp_path, *CHANGED)
