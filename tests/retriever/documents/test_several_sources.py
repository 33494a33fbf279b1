"""Several sources in one run: whose ids they get, and that no id is given twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retriever import CorpusReader, SourceError
from tests.retriever.documents.source_samples import write


def folder(path: Path, *names: str) -> Path:
    for name in names:
        write(path / name, f"text of {name} in {path.name}")
    return path


def lines(path: Path, *ids: str) -> Path:
    records = ({"id": id_, "text": f"text of {id_}"} for id_ in ids)
    return write(path, "".join(json.dumps(one) + "\n" for one in records))


def test_ids_of_several_folders_begin_with_the_folders_names(tmp_path, monkeypatch):
    first = folder(tmp_path / "p1", "README.md", "a/b.txt")
    second = folder(tmp_path / "p2", "README.md")
    reader = CorpusReader([first, str(second)])
    read = {document.id: document.text for document in reader}
    assert read == {
        "p1/README.md": "text of README.md in p1",
        "p1/a/b.txt": "text of a/b.txt in p1",
        "p2/README.md": "text of README.md in p2",
    }
    assert reader.generated_ids == "ids are the names of the folders with the paths below them"
    # However the folders are written.
    monkeypatch.chdir(first)
    assert [one.id for one in CorpusReader([".", "../p2/"])] == list(read)


def test_two_folders_of_one_name_are_refused(tmp_path):
    first, second = folder(tmp_path / "1" / "notes", "a.txt"), folder(tmp_path / "2/notes", "b.txt")
    for sources in ([first, second], [first, f"{first}/"]):
        with pytest.raises(SourceError, match=r"/notes/?: has the same name as .*/1/notes, and of"):
            CorpusReader(sources)


def test_an_id_in_two_files_is_an_error_that_names_both(tmp_path):
    first = lines(tmp_path / "a.jsonl", "x", "y")
    second = lines(tmp_path / "b.jsonl", "z", "y")
    with pytest.raises(SourceError) as caught:
        list(CorpusReader([first, second]))
    assert str(caught.value).startswith(f"{second}:2: the id 'y' was given before, at {first}:2; ")
    reader = CorpusReader([first, second], on_error="skip")
    assert [document.id for document in reader] == ["x", "y", "z"]
    assert reader.skipped == 1
    # Each time that it is read.
    assert len(list(reader)) == 3


def test_ids_of_one_folder_are_the_paths_below_it_whatever_else_is_given(tmp_path):
    below = folder(tmp_path / "p1", "README.md")
    file = lines(tmp_path / "a.jsonl", "a", "README.md")
    with pytest.raises(SourceError, match=r"a\.jsonl:2: .* given before, at .*/p1/README\.md; "):
        list(CorpusReader([below, file]))
    reader = CorpusReader([below, file], on_error="skip")
    assert [one.id for one in reader] == ["README.md", "a"]


def test_empty_records_with_an_id_are_yielded_if_asked_for(tmp_path):
    path = write(tmp_path / "c.jsonl", '{"id": "a", "text": " "}\n{"id": "b", "text": "x"}\n')
    reader = CorpusReader([path], on_empty="yield")
    assert [(one.id, one.is_empty) for one in reader] == [("a", True), ("b", False)]
    assert reader.empty_at == [f"{path}:1"]
    reader = CorpusReader([write(path, '{"text": ""}\n{"text": "x"}\n')], on_empty="yield")
    assert [one.text for one in reader] == ["x"]
    assert reader.empty_at == [f"{path}:1"]
