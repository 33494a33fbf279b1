"""`retriever reproduce`: every command exists, and a finished step is not run again."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import pytest

from cli.main import cli
from eval import papers
from eval.papers import Experiment, experiments
from tests.cli.conftest import assert_refused
from tests.eval.sentences.sentence_samples import write_sts


@pytest.mark.parametrize("table", experiments(), ids=lambda table: f"{table.paper} {table.name}")
def test_steps_of_every_table_are_valid_commands(table, tmp_path, monkeypatch):
    # They name data sets that are not here.
    monkeypatch.setattr("cli.evaluation_options.data_set", lambda path: path)
    folders = []
    for folder, arguments, gathered in table.steps(tmp_path, "m", tmp_path / "out"):
        command = cli
        rest = list(arguments)
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), rest.pop(0))
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A command keeps the help option of the first context that it sees.
        root = click.Context(cli, **cli.context_settings)
        command.make_context("step", list(rest), parent=root).close()
        folders.append(folder)
        # What a step reads of other steps is made before.
        paths = [part.split("::")[0].removeprefix("cosine@") for part in gathered or rest]
        output_paths = [Path(path) for path in paths if path.startswith(str(tmp_path / "out"))]
        assert all({part, part.parent} & set(folders) for part in output_paths)
        assert not {"{", "}"} & set("".join(arguments + gathered))
    assert len(set(folders)) == len(folders) > 0
    columns = {len(re.split(" {2,}", line)) for line in table.published if "  " in line}
    assert len(columns) == bool(table.published)


def test_without_an_output_folder_commands_are_printed(retriever, monkeypatch):
    monkeypatch.delenv("RETRIEVER_DATA", raising=False)
    done = retriever("reproduce", "sbert-wk", "table-7", "--data", "D", "--model", "M")
    assert done.code == 0
    assert "table-7: Ablation\n  mean Pearson × 100 of STS12 to STS16 and STS-B\n" in done.err
    assert "\n  SBERT-WK               74.21\n" in done.err
    first = done.out.splitlines()[0]
    assert first.startswith("retriever eval sts D/sts12 -e ::last -e ::sbert-wk::wk-words=uniform")
    assert first.endswith("--model M --output OUTPUT/sbert-wk/table-7/sts12")
    outputs = [retriever("reproduce", "bert-lc", name).out for name in ("table-1", "table-4")]
    assert outputs[0] == outputs[1] != ""
    quoted = retriever("reproduce", "bert-lc", "table-1", "--model", "two words").out
    assert "--model 'two words' --output" in quoted
    # What gathers reports is the command that runs what is left when the others have run.
    output = retriever("reproduce", "ma", "table-2", "--data", "D", "--model", "M").out
    assert (
        output.splitlines()[-1]
        == "retriever reproduce ma table-2 --data D --model M --output OUTPUT"
    )
    unknown = retriever("reproduce", "bert-lc", "table-9")
    assert_refused(unknown, "bert-lc: table-1, table-4, table-2")
    nowhere = retriever("reproduce", "ma", "--output", "out")
    assert_refused(nowhere, "--data: expected the folder of the data sets, found none")


def test_steps_run_once_and_a_failure_ends_the_run(retriever, tiny_models, tmp_path, monkeypatch):
    monkeypatch.delenv("RETRIEVER_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["retriever"])
    (tmp_path / "data").mkdir()
    write_sts(tmp_path / "data" / "pairs")
    steps = (
        ("first", False, "eval sts {data}/pairs -e ::last --set resamples=100"),
        ("all", True, "{output}/first"),
        ("broken", False, "eval sts {data}/absent"),
        ("never", False, "eval sts {data}/pairs -e ::last --set resamples=100"),
    )
    made_up = Experiment("ma", "table-1", "Made", steps)
    monkeypatch.setattr(papers, "_experiments", lambda paper: [made_up] if paper == "ma" else [])
    arguments = (
        "reproduce", "--data", tmp_path / "data", "--output", tmp_path / "out",
        "--model", tiny_models["bert"],
    )  # fmt: skip
    done = retriever(*arguments)
    assert (done.code, "absent" in done.err) == (2, True)
    folder_names = {path.parent.name for path in (tmp_path / "out").rglob("report.json")}
    assert folder_names == {"first", "all"}
    assert "semantic similarity: pairs" in done.out
    report = json.loads((tmp_path / "out/ma/table-1/all/report.json").read_text())
    assert report["command"].startswith("retriever reproduce ma table-1 --data")
    again = retriever(*arguments)
    assert again.err.count("exists, skipped") == 2
    relative = ["out" if one == tmp_path / "out" else one for one in arguments]
    assert "first: exists, skipped" in retriever(*relative).err
    other = retriever(*arguments[:-1], tiny_models["roberta"])
    assert (other.code, "expected the report of `retriever eval sts" in other.err) == (2, True)
    (tmp_path / "out/ma/table-1/first/report.json").write_text("{")
    damaged = retriever(*arguments)
    assert (damaged.code, "first/report.json: cannot be read" in damaged.err) == (2, True)
