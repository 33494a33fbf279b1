"""Help pages: complete, in sections, and quick to come; and what is completed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

import click
import pytest
from click.shell_completion import BashComplete

from cli.main import COMMANDS, cli
from cli.options import (
    BUNDLED,
    SECTIONS,
    Command,
    Settings,
    json_option,
    option,
    other_settings,
)
from retriever.encoders import encoder_keys, model_folders
from retriever.errors import ConfigError
from retriever.settings import setting
from tests.cli.conftest import found, refused
from tests.cli.test_cli_process import HEAVY

WIDTH = 80


def context(command, **more):
    """As when the command runs, with `-h` for help."""
    root = click.Context(cli, info_name="retriever", **cli.context_settings)
    return click.Context(command, parent=root, **more)


def commands(group=cli, path=()):
    """The full name and the command of each, groups included."""
    yield " ".join(path), group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            yield from commands(group.get_command(click.Context(group), name), (*path, name))


ALL = dict(commands())
LEAVES = {name: one for name, one in ALL.items() if not isinstance(one, click.Group)}
SECTIONED = {name: one for name, one in LEAVES.items() if isinstance(one, Command)}


@pytest.fixture(scope="module")
def shown():
    """The help page of every command, from one process that asks for nothing else."""
    code = (
        "import contextlib, io, json, sys\n"
        "from cli.main import cli, run\n"
        "pages = {}\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as page:\n"
        "        assert run([*name.split(), '--help']) == 0\n"
        "    pages[name] = page.getvalue()\n"
        "from click.shell_completion import BashComplete\n"
        "completer = BashComplete(cli, {}, 'retriever', '_RETRIEVER_COMPLETE')\n"
        "for words, last in ((['query'], '--'), (['index', '--model'], 'all'), (['eval'], '')):\n"
        "    assert completer.get_completions(words, last), words\n"
        f"print(json.dumps([pages, [m for m in {HEAVY} if m in sys.modules]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(list(ALL))],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": str(WIDTH)},
    )
    return json.loads(done.stdout)


def test_help_and_completion_import_nothing_heavy(shown):
    _, heavy = shown
    assert heavy == []


def test_main_help_imports_no_command():
    code = (
        "import contextlib, io, sys\n"
        "from cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert run(['--help']) == 0\n"
        "assert not [name for name in sys.modules if name.startswith('cli.commands')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_summary_in_tree_begins_help_of_command():
    def summaries(tree, path=()):
        for name, summary in tree.items():
            if isinstance(summary, str):
                yield " ".join((*path, name)), summary
            else:
                yield from summaries(summary, (*path, name))

    trees = dict(summaries(COMMANDS))
    assert trees.keys() == LEAVES.keys()
    assert trees.pop("search") == LEAVES["search"].short_help
    for name, summary in trees.items():
        assert " ".join(LEAVES[name].help.split()).startswith(summary), name
        assert summary.endswith("."), name


def entries(page):
    """The lines of a page that begin the entry of an option."""
    return [line.strip() for line in page.splitlines() if re.match(r"  -\S", line)]


def test_a_page_shows_each_option_once_with_all_its_spellings(shown):
    pages, _ = shown
    for name, command in ALL.items():
        page = pages[name]
        assert page.startswith(f"Usage: retriever {name}".rstrip()), name
        assert max(map(len, page.splitlines())) <= WIDTH, name
        assert command.help, name
        assert len({one.name for one in command.params}) == len(command.params), name
        options = [
            one for one in command.get_params(context(command)) if isinstance(one, click.Option)
        ]
        assert all(one.help for one in options), name
        spellings = [spelling for one in options for spelling in (*one.opts, *one.secondary_opts)]
        assert len(set(spellings)) == len(spellings), name
        options = [one for one in options if not one.hidden]
        found = [
            tuple(re.findall(r"(?<![\w-])--?[a-z0-9][\w-]*", re.split(r"  | [A-Z\[]", entry)[0]))
            for entry in entries(page)
        ]
        expected = [
            # click shows short spellings first.
            (*sorted(one.opts, key=lambda opt: opt.startswith("--")), *one.secondary_opts)
            for one in options
        ]
        assert sorted(found) == sorted(expected), name


def test_sections_come_in_one_order_and_hold_each_option_once(shown):
    pages, _ = shown
    assert {"query", "index", "delete", "info", "verify", "reindex"} <= set(SECTIONED)
    for name, command in SECTIONED.items():
        headings = re.findall(r"^(\w[\w ]*):$", pages[name], re.MULTILINE)
        assert headings == sorted(headings, key=SECTIONS.index), name
        held = [one for options in command.sections(context(command)).values() for one in options]
        assert len(held) == len(set(held)) == len(entries(pages[name])), name


def test_shown_defaults_are_those_of_the_library():
    from indexes.bm25.formulas import BM25Settings
    from retriever.search import FusionSettings, SearchSettings

    options = {one.name: getattr(one, "show_default", None) for one in ALL["query"].params}
    others = {one.name: one.shown for one in other_settings(ALL["query"]).values()}
    both = {**options, **others}
    shown = {name: value for name, value in both.items() if value and value is not True}
    search, fusion, bm25 = SearchSettings(), FusionSettings(), BM25Settings()
    assert shown.pop("fusion") == fusion.method
    assert shown.pop("alpha").startswith(f"{fusion.weight:g}, or less")
    for name in ("normalization", "rrf_k"):
        assert shown.pop(name) == f"{getattr(fusion, name)}".removesuffix(".0")
    for name in ("variant", "k1", "b"):
        assert shown.pop(name) == str(getattr(bm25, name))
    assert shown.pop("depth") == str(search.depth)
    assert set(shown) == {"recall", "model", "device"}
    by_name = {one.name: one for one in ALL["query"].params}
    assert (by_name["k"].default, by_name["mode"].default) == (search.k, search.mode)
    dtypes = {
        name: one.show_default
        for name in ("index", "eval qa")
        for one in ALL[name].params
        if one.name == "dtype"
    }
    assert dtypes == {"index": "auto", "eval qa": "float32"}


@dataclass(frozen=True)
class Fruit:
    kind: str = "apple"
    count: int | None = setting(None, "Number.", low=1, high=9, shown="many", section="Input")
    ripe: bool = setting(True, "Ripe.")
    weight: float = setting(0.5, "Weight in kg.", low=0, low_open=True)


@pytest.fixture
def sell():
    """Runs a command with settings; what it took."""
    taken = []

    @click.command("sell", cls=Command)
    @Settings(
        "fruit",
        Fruit,
        "count",
        options=[option("--kind", default="apple", help="Kind.", section="Input")],
        defaults={"weight": 0.25},
    )
    @json_option
    def command(fruit: Fruit, as_json: bool) -> None:
        taken.append(fruit)

    def call(*arguments):
        command.main(list(arguments), prog_name="sell", standalone_mode=False)
        return taken[-1]

    call.command = command
    return call


def test_settings_reach_the_command_as_one_value(sell):
    assert sell() == Fruit(weight=0.25)
    found = sell("--count", "3", "--set", "ripe=no", "--set", "weight=2", "--kind", "fig")
    assert found == Fruit("fig", 3, False, 2.0)
    assert {one.key: one.shown for one in other_settings(sell.command).values()} == {
        "ripe": "yes",
        "weight": "0.25",
    }
    page = sell.command.get_help(click.Context(sell.command, info_name="sell"))
    assert re.sub(r" +", " ", page.partition("Input:")[2]) == (
        "\n --kind TEXT Kind. [default: apple]\n --count N Number. [default: many; 1<=x<=9]\n\n"
        "Output:\n --json Print JSON.\n --help Show this message and exit.\n\n"
        "Other settings:\n --set KEY=VALUE One of ripe, weight, which `retriever inspect"
        " settings`\n explains; repeatable. --KEY VALUE is the same."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ripe", "--set ripe: expected KEY=VALUE with one of the keys ripe, weight"),
        ("count=3", "--set count=3: expected KEY=VALUE with one of the keys ripe, weight"),
        ("ripe=maybe", "ripe: expected yes or no, found 'maybe'"),
        ("weight=0", "--set weight: expected above 0, found '0'"),
    ],
)
def test_other_settings_are_checked(sell, text, said):
    with pytest.raises((click.UsageError, ConfigError)) as caught:
        sell("--set", text)
    assert said in str(caught.value)
    with pytest.raises(click.UsageError, match="--set ripe: given twice"):
        sell("--set", "ripe=no", "--set", "ripe=yes")


def test_settings_are_listed_with_their_meaning_and_source(retriever):
    shown = retriever("inspect", "settings").out
    listed = {one["key"]: one for one in found(retriever("inspect", "settings", "--json"))}
    assert set(listed) == {one.key for one in encoder_keys()}
    assert (listed["omega"]["values"], listed["omega"]["default"]) == ("0 to 1", "0.5")
    assert "omega: 0 to 1; default: 0.5\n    SBERT-WK: weight of alignment" in shown
    assert "(Wang and Kuo 2020, Eq. 9)" in shown
    of_query = retriever("inspect", "settings", "query").out
    assert "rrf-k: above 0; default: 60\n    Constant of rrf.\n" in of_query
    refused(retriever("inspect", "settings", "info"), "takes no --set")
    for words in ("train", "x", "query x"):
        said = f"expected a command, found '{words}'"
        refused(retriever("inspect", "settings", *words.split()), said)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ins", [("plain", "inspect")]),
        ("inspect wo", [("plain", "words")]),
        ("query --mode b", [("plain", "bm25")]),
        ("index --model all", [("plain", "all-MiniLM-L6-v2")]),
        ("index --model ./my", [("file", "./my")]),
        ("index corp", [("file", "corp")]),
        ("import corp", [("file", "corp")]),
        ("query -i ind", [("file", "ind")]),
        ("query --queries q", [("file", "q")]),
        ("query --set rrf", [("plain", "rrf-k=")]),
    ],
)
def test_commands_values_and_paths_are_completed(line, expected):
    *words, last = line.split(" ")
    completer = BashComplete(cli, {}, "retriever", "_RETRIEVER_COMPLETE")
    found = completer.get_completions(words, last)
    assert [(item.type, item.value) for item in found] == expected
    assert set(BUNDLED) == set(model_folders.BUNDLED)
