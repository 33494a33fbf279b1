"""`retriever reproduce`: every command exists, and a finished step is not run again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from cli.main import COMMANDS
from eval import papers
from eval.papers import Experiment, experiments
from tests.eval.sentences.sentence_samples import write_sts


@pytest.mark.parametrize("one", experiments(), ids=lambda one: f"{one.paper} {one.name}")
def test_every_command_and_option_exists(one, tmp_path, monkeypatch):
    # They name data sets that are not here.
    monkeypatch.setattr("cli.options.evaluation.data_set", lambda path: path)
    folders = []
    for folder, arguments in one.commands(tmp_path, "m", tmp_path / "out"):
        tree = COMMANDS
        rest = list(arguments)
        while not isinstance(tree, str):
            tree = tree[rest.pop(0)]
        command = importlib.import_module(tree).command
        folder.parent.mkdir(parents=True, exist_ok=True)
        command.make_context("step", rest).close()
        folders.append(folder)
        # What a step reads of other steps is made before.
        made = [Path(part) for part in rest if part.startswith(str(tmp_path / "out"))]
        assert all({part, part.parent} & set(folders) for part in made)
    assert len(set(folders)) == len(folders) > 0


def test_without_an_output_folder_commands_are_printed(retriever):
    done = retriever("reproduce", "sbert-wk", "table-7", "--data", "D", "--model", "M")
    assert done.code == 0
    first = done.out.splitlines()[0]
    assert first.startswith("retriever eval sts D/sts12 -e ::last -e ::sbert-wk::wk-words=uniform")
    assert first.endswith("--model M --output OUTPUT/sbert-wk/table-7/sts12")
    same = [retriever("reproduce", "bert-lc", name).out for name in ("table-1", "table-4")]
    assert same[0] == same[1] != ""
    quoted = retriever("reproduce", "bert-lc", "table-1", "--model", "two words").out
    assert "--model 'two words' --output" in quoted
    unknown = retriever("reproduce", "bert-lc", "table-9")
    assert unknown.code == 2
    assert "bert-lc: table-1, table-4, table-2" in unknown.err


def test_steps_run_once_and_a_failure_ends_the_run(retriever, tiny_models, tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["retriever"])
    (tmp_path / "data").mkdir()
    write_sts(tmp_path / "data" / "pairs")
    steps = (
        ("first", "eval sts {data}/pairs -e ::last --resamples 100"),
        ("all", "eval categories {output}/first"),
        ("broken", "eval sts {data}/absent"),
        ("never", "eval sts {data}/pairs -e ::last --resamples 100"),
    )
    monkeypatch.setattr(papers, "_ALL", (Experiment("ma", "table-1", "Made", steps),))
    asked = (
        "reproduce", "--data", tmp_path / "data", "--output", tmp_path / "out",
        "--model", tiny_models["bert"],
    )  # fmt: skip
    done = retriever(*asked)
    assert done.code == 2
    assert "absent" in done.err
    made = {path.parent.name for path in (tmp_path / "out").rglob("report.json")}
    assert made == {"first", "all"}
    again = retriever(*asked)
    assert again.err.count("exists, skipped") == 2
    monkeypatch.chdir(tmp_path)
    relative = ["out" if one == tmp_path / "out" else one for one in asked]
    assert "first: exists, skipped" in retriever(*relative).err
    other = retriever(*asked[:-1], tiny_models["roberta"])
    assert other.code == 2
    assert "first/report.json: expected the report of `retriever eval sts" in other.err
    (tmp_path / "out/ma/table-1/first/report.json").write_text("{")
    damaged = retriever(*asked)
    assert damaged.code == 2
    assert "first/report.json: cannot be read" in damaged.err
