"""Help pages and completions: completeness, sections and imports."""

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
from tests.cli.conftest import assert_refused, printed_json
from tests.cli.test_cli_process import HEAVY

WIDTH = 80


def context(command, **more):
    """Return the context of a command as it runs, with `-h` for help."""
    root = click.Context(cli, info_name="retriever", **cli.context_settings)
    return click.Context(command, parent=root, **more)


def commands(group=cli, path=()):
    """Yield the full name of each command with the command, groups included."""
    yield " ".join(path), group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            yield from commands(group.get_command(click.Context(group), name), (*path, name))


ALL = dict(commands())
LEAVES = {name: one for name, one in ALL.items() if not isinstance(one, click.Group)}
SECTIONED = {name: one for name, one in LEAVES.items() if isinstance(one, Command)}


@pytest.fixture(scope="module")
def help_pages():
    """Help pages by command and heavy modules imported, from one separate process."""
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


def test_help_and_completion_import_nothing_heavy(help_pages):
    _, heavy = help_pages
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
    """Return the lines of a help page that begin with an option."""
    _, *sections = re.split(r"^\w[\w ]*:$", page, flags=re.MULTILINE)
    lines = "".join(sections).splitlines()
    return [line.strip() for line in lines if re.match(r"  -\S", line)]


def test_a_page_shows_each_option_once_with_all_its_spellings(help_pages):
    pages, _ = help_pages
    for name, command in ALL.items():
        page = pages[name]
        assert page.startswith(f"Usage: retriever {name}".rstrip()), name
        assert max(map(len, page.splitlines())) <= WIDTH, name
        assert command.help, name
        assert len({option.name for option in command.params}) == len(command.params), name
        options = [
            option
            for option in command.get_params(context(command))
            if isinstance(option, click.Option)
        ]
        assert all(option.help for option in options), name
        spellings = [
            spelling for option in options for spelling in (*option.opts, *option.secondary_opts)
        ]
        assert len(set(spellings)) == len(spellings), name
        options = [option for option in options if not option.hidden]
        spellings_shown = [
            tuple(re.findall(r"(?<![\w-])--?[a-z0-9][\w-]*", re.split(r"  | [A-Z\[]", entry)[0]))
            for entry in entries(page)
        ]
        expected = [
            # click shows short spellings first.
            (*sorted(option.opts, key=lambda opt: opt.startswith("--")), *option.secondary_opts)
            for option in options
        ]
        assert sorted(spellings_shown) == sorted(expected), name


def test_sections_come_in_one_order_and_hold_each_option_once(help_pages):
    pages, _ = help_pages
    assert {"query", "index", "delete", "info", "verify", "reindex"} <= set(SECTIONED)
    for name, command in SECTIONED.items():
        headings = re.findall(r"^(\w[\w ]*):$", pages[name], re.MULTILINE)
        assert headings == sorted(headings, key=SECTIONS.index), name
        section_options = [
            option for options in command.sections(context(command)).values() for option in options
        ]
        assert len(section_options) == len(set(section_options)) == len(entries(pages[name])), name


def test_shown_defaults_are_those_of_the_library():
    from indexes.bm25.formulas import BM25Settings
    from retriever.search import FusionSettings, SearchSettings

    options = {option.name: getattr(option, "show_default", None) for option in ALL["query"].params}
    others = {option.name: option.default_text for option in other_settings(ALL["query"]).values()}
    both = {**options, **others}
    defaults = {name: value for name, value in both.items() if value and value is not True}
    search, fusion, bm25 = SearchSettings(), FusionSettings(), BM25Settings()
    assert defaults.pop("fusion") == fusion.method
    assert defaults.pop("alpha").startswith(f"{fusion.weight:g}, or less")
    for name in ("normalization", "rrf_k"):
        assert defaults.pop(name) == f"{getattr(fusion, name)}".removesuffix(".0")
    for name in ("variant", "k1", "b"):
        assert defaults.pop(name) == str(getattr(bm25, name))
    assert defaults.pop("depth") == str(search.depth)
    assert defaults.pop("sort") == search.sort
    assert defaults.pop("recency") == "off"
    assert defaults.pop("date_field") == "date, else modified"
    assert set(defaults) == {"recall", "model", "device"}
    by_name = {option.name: option for option in ALL["query"].params}
    assert (by_name["k"].default, by_name["mode"].default) == (search.k, search.mode)
    dtypes = {
        name: option.show_default
        for name in ("index", "eval qa")
        for option in ALL[name].params
        if option.name == "dtype"
    }
    assert dtypes == {"index": "auto", "eval qa": "float32"}


@dataclass(frozen=True)
class Fruit:
    kind: str = "apple"
    count: int | None = setting(
        None, "Number.", low=1, high=9, default_text="many", section="Input"
    )
    ripe: bool = setting(True, "Ripe.")
    weight: float = setting(0.5, "Weight in kg.", low=0, low_open=True)


@pytest.fixture
def sell():
    """Function that runs a command with settings and returns the settings it received."""
    fruits = []

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
        fruits.append(fruit)

    def call(*arguments):
        command.main(list(arguments), prog_name="sell", standalone_mode=False)
        return fruits[-1]

    call.command = command
    return call


def test_settings_reach_the_command_as_one_value(sell):
    assert sell() == Fruit(weight=0.25)
    fruit = sell("--count", "3", "--set", "ripe=no", "--set", "weight=2", "--kind", "fig")
    assert fruit == Fruit("fig", 3, False, 2.0)
    assert {one.key: one.default_text for one in other_settings(sell.command).values()} == {
        "ripe": "yes",
        "weight": "0.25",
    }
    page = sell.command.get_help(click.Context(sell.command, info_name="sell"))
    assert re.sub(r" +", " ", page.partition("Input:")[2]) == (
        "\n --kind TEXT Kind. [default: apple]\n --count N Number. [default: many; 1<=x<=9]\n\n"
        "Output:\n --json Print JSON instead of text.\n --help Show this message and exit.\n\n"
        "Other settings:\n --set KEY=VALUE Set another setting by its key; repeatable. "
        "--KEY VALUE\n does the same. `retriever inspect settings COMMAND`\n explains the keys. "
        "Keys: ripe, weight."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ripe", "--set ripe: expected KEY=VALUE with one of the keys ripe, weight"),
        ("count=3", "--set count=3: expected KEY=VALUE with one of the keys ripe, weight"),
        ("ripe=maybe", "ripe: expected yes or no, found 'maybe'"),
        ("weight=0", "--set weight: expected above 0, found '0'"),
    ],
)
def test_set_option_refuses_unknown_settings_and_bad_values(sell, text, message):
    with pytest.raises((click.UsageError, ConfigError)) as caught:
        sell("--set", text)
    assert message in str(caught.value)
    with pytest.raises(click.UsageError, match="--set ripe: given twice"):
        sell("--set", "ripe=no", "--set", "ripe=yes")


def test_settings_are_listed_with_their_meaning_and_source(retriever):
    output = retriever("inspect", "settings").out
    listed = {one["key"]: one for one in printed_json(retriever("inspect", "settings", "--json"))}
    assert set(listed) == {key.key for key in encoder_keys()}
    assert (listed["omega"]["values"], listed["omega"]["default"]) == ("0 to 1", "0.5")
    assert "omega: 0 to 1; default: 0.5\n    SBERT-WK: weight of alignment" in output
    assert "(Wang and Kuo 2020, Eq. 9)" in output
    of_query = retriever("inspect", "settings", "query").out
    assert "rrf-k: above 0; default: 60\n    Constant of rrf: rank r" in of_query
    assert_refused(retriever("inspect", "settings", "info"), "takes no --set")
    for words in ("train", "x", "query x"):
        message = f"expected a command, found '{words}'"
        assert_refused(retriever("inspect", "settings", *words.split()), message)


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
    completions = completer.get_completions(words, last)
    assert [(item.type, item.value) for item in completions] == expected
    assert set(BUNDLED) == set(model_folders.BUNDLED)
