"""Commands and options of other programs work here or are refused with the right word."""

from __future__ import annotations

import json

import click
import pytest

from cli.guesses import COMMAND_GUESSES, OPTION_GUESSES, OPTIONS_OF_OTHER_COMMANDS
from cli.main import cli
from tests.cli.conftest import GOOD, assert_refused, printed_json, printed_lines
from tests.cli.test_cli_help import LEAVES


@pytest.fixture
def notes(tmp_path, fake_encoder):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("# Fruit\n\nApples are red.\n\n## Green\n\nPears.\n")
    (tmp_path / "notes/b.md").write_text("Pears are green.\n")
    return tmp_path / "notes"


@pytest.mark.parametrize("guess", COMMAND_GUESSES)
def test_command_guesses_are_no_commands_and_advise_existing_ones(guess):
    assert cli.get_command(click.Context(cli), guess) is None
    replacement = COMMAND_GUESSES[guess]
    commands = [name for name in LEAVES if f"{replacement} ".startswith(f"{name} ")]
    assert commands or replacement in ("--help", "--version")
    for word in replacement.split():
        if commands and word.startswith("--"):
            assert word in {
                spelling for option in LEAVES[commands[0]].params for spelling in option.opts
            }


def test_option_guesses_are_no_query_options_and_advise_existing_ones():
    spellings = {
        opt for command in LEAVES.values() for option in command.params for opt in option.opts
    }
    for guess, replacements in OPTION_GUESSES.items():
        for replacement in replacements:
            assert replacement.split()[0] in spellings, guess
    query = {opt for option in LEAVES["query"].params for opt in option.opts}
    assert not query & {*OPTION_GUESSES, *OPTIONS_OF_OTHER_COMMANDS}


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("find apples", "did you mean `retriever query`?"),
        ("status", "did you mean `retriever info`?"),
        ("version", "did you mean `retriever --version`?"),
        ("query x --top-k 3", "did you mean `-k`?"),
        ("query x --limit 3", "did you mean `-k`?"),
        ("query x -n 3", "did you mean `-k`?"),
        ("search x --format json", "did you mean `--json`?"),
        ("query x --semantic", "did you mean `--mode dense`?"),
        ("query x --open", "use `retriever serve --open-files`"),
        ("query x --ext md", "use `retriever index FOLDER --include '*.md'`"),
        ("index x --ext md", "did you mean `--include '*.md'`?"),
    ],
)
def test_unknown_command_or_option_is_refused_with_synonymous_one(retriever, line, advice):
    assert_refused(retriever(*line.split()), advice)


def test_search_command_is_alias_of_query(notes, retriever):
    retriever("index", "notes", "-q")
    arguments = ("apples", "--mode", "bm25", "--json")
    assert retriever("search", *arguments) == retriever("query", *arguments)
    assert "search " in retriever("--help").out


def test_get_prints_a_document_or_the_part_that_a_place_names(notes, retriever):
    retriever("index", "notes", "-q")
    text = "Apples are red.\n\n## Green\n\nPears."
    assert retriever("get", "a.md") == (0, f"{text}\n", "")
    assert retriever("get", "a.md", "--lines", "5-7").out == "## Green\n\nPears.\n"
    assert retriever("get", "a.md", "--lines", "7").out == "Pears.\n"
    assert retriever("get", "a.md:5-").code == 2
    assert retriever("get", "a.md:3").out.strip() == "Apples are red."
    assert retriever("get", "a.md[0:6]").out == "Apples\n"
    assert retriever("get", "a.md, Green").out == "## Green\n\nPears.\n"
    report = printed_json(retriever("get", "a.md[0:6]", "--json"))
    assert list(report["metadata"]) == ["modified"]
    assert report == {
        "id": "a.md",
        "title": "Fruit",
        "text": "Apples",
        "metadata": report["metadata"],
        "start": 0,
        "stop": 6,
        "length": len(text),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.md"], "no document has the id 'nowhere.md'"),
        (["a.md:99"], "a.md: line 99: not in its stored text, which has lines 3 to 7"),
        (["a.md, Blue"], "no page or heading is called 'Blue'"),
        (["a.md", "--lines", "9-8"], "expected lines from 1 on, in ascending order"),
        (["a.md:3", "--lines", "3-4"], "--lines: a.md:3 already names a part"),
        (["a.md", "-i", "x", "--in", "notes"], "give either --in or --index"),
        (["a.md", "--lines", "all"], "expected FIRST-LAST, such as 10-20, found 'all'"),
    ],
)
def test_get_refuses_what_is_not_there(notes, retriever, arguments, message):
    retriever("index", "notes", "-q")
    assert_refused(retriever("get", *arguments), message)


def test_similar_ranks_the_other_documents(fake_encoder, retriever, write_jsonl):
    retriever("index", write_jsonl(*GOOD), "-q")
    assert [hit["id"] for hit in printed_lines(retriever("similar", "a", "--json"))] == ["b"]
    assert printed_lines(retriever("similar", "a", "-k", "1", "--where", "n = 1", "--json")) == []
    assert retriever("similar", "b").out.startswith("  1  ")
    assert_refused(retriever("similar", "nowhere"), "no document has the id 'nowhere'")


def test_setting_may_be_given_as_option_of_its_name(fake_encoder, retriever, write_jsonl):
    retriever("index", write_jsonl(*GOOD), "-q", "--no-stemming", "--language", "english")
    assert printed_json(retriever("info", "--json"))["analyzer"]["stemming"] is False
    arguments = ("query", "apples", "--json", "--fusion", "rrf")
    by_set = retriever(*arguments, "--set", "rrf-k=7")
    assert retriever(*arguments, "--rrf-k", "7") == by_set != retriever(*arguments)
    assert_refused(retriever(*arguments, "--rrf-k", "7", "--set", "rrf-k=7"), "rrf-k: given twice")
    assert_refused(retriever("query", "x", "--rrf-k", "much"), "rrf-k", "found 'much'")


def test_several_sources_are_searched_in_one_index_of_the_cache(notes, retriever, tmp_path):
    arguments = ("query", "apples", "--in", "notes", "--in", "more", "--mode", "bm25", "--json")
    assert_refused(retriever(*arguments), "more: no such file or folder")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.md").write_text("Apples are sweet.\n")
    ids = {hit["id"] for hit in printed_lines(retriever(*arguments))}
    assert ids == {"notes/a.md", "more/c.md"}
    [facts] = printed_lines(retriever("cache", "--json"))
    assert facts["sources"] == [str(notes), str(tmp_path / "more")]
    assert (facts["documents"], facts["problem"]) == (3, None)
    assert "1 index, " in retriever("cache").out
    assert retriever("cache", "--clear").out.endswith(" removed\n")
    assert retriever("cache", "--json").out == ""
    assert list((tmp_path / "cache/folders").iterdir()) == []


def test_get_reads_places_that_query_shows(fake_encoder, retriever, write_jsonl, tmp_path):
    pytest.importorskip("lxml")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/a.html").write_text(
        "<title>T</title><h1>Top</h1><p>Plums are blue.</p><h2>Pears, green</h2><p>Pears grow.</p>"
    )
    (tmp_path / "pages/b.md").write_text("# Kiwis\n\nKiwis are brown.\n")
    retriever("index", "pages", "-q")
    for query, words in (("pears", "Pears grow."), ("kiwis", "Kiwis are brown.")):
        head = retriever("query", query, "--mode", "bm25", "-k", "1").out.splitlines()[0]
        assert words in retriever("get", head.split("  ")[-2 if "  Top" in head else 2]).out or (
            words in retriever("get", head[13:].split("  ")[0]).out
        )


def test_get_and_similar_read_the_index_of_a_folder_in_the_cache(notes, retriever):
    assert "Apples are red." in retriever("get", "a.md:3-7", "--in", "notes").out
    assert retriever("similar", "a.md", "--in", "notes").out.startswith("  1  ")


def test_sources_that_are_the_same_are_read_once_and_in_any_order(notes, retriever, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.md").write_text("Apples are sweet.\n")
    arguments = ("query", "apples", "--mode", "bm25", "--json", "-q")
    once = retriever(*arguments, "--in", "notes", "--in", "./notes/")
    assert [hit["id"] for hit in printed_lines(once)] == ["a.md"]
    retriever(*arguments, "--in", "notes", "--in", "more")
    retriever(*arguments, "--in", "more", "--in", "notes")
    assert len(list((tmp_path / "cache/folders").iterdir())) == 2


def test_cache_clear_keeps_foreign_folders_and_indexes_in_use(notes, retriever, tmp_path):
    from indexes import writer_lock

    folders = tmp_path / "cache/folders"
    retriever("query", "apples", "--in", "notes", "--mode", "bm25", "-q")
    retriever("query", "apples", "--in", "notes/a.md", "--mode", "bm25", "-q")
    used = min(folders.iterdir())
    (folders / "mine.index").mkdir()
    (folders / "mine.index/note.txt").write_text("mine")
    (folders / "link.index").symlink_to(tmp_path / "notes")
    with writer_lock(used):
        done = retriever("cache", "--clear")
    assert done.code == 2
    assert "1 index, " in done.out
    assert [line.split(": ")[1] for line in done.err.splitlines()] == [
        str(folders / name) for name in (used.name, "link.index", "mine.index")
    ]
    assert {path.name for path in folders.iterdir()} == {used.name, "link.index", "mine.index"}
    assert (folders / "mine.index/note.txt").read_text() == "mine"
    report = printed_lines(retriever("cache", "--json"))
    assert [facts["problem"] is None for facts in report] == [
        used == folders / used.name,
        False,
        False,
    ]


def test_cache_lists_unreadable_indexes_with_their_problem(retriever, tmp_path):
    (tmp_path / "cache/folders/old.index").mkdir(parents=True)
    (tmp_path / "cache/folders/old.index/index.sqlite").write_text("damaged")
    [facts] = printed_lines(retriever("cache", "--json"))
    assert facts["problem"] is not None
    assert facts["bytes"] > 0
    assert "old.index" in retriever("cache").out


def test_query_notes_words_that_are_existing_files(notes, retriever):
    arguments = ("query", "apples", "--in", "notes/a.md", "notes/b.md", "--mode", "bm25")
    assert "note: these words belong to the query and name no source: 'notes/b.md'" in (
        retriever(*arguments).err
    )
    assert "these words belong to the query" not in retriever(*arguments[:4], "--mode", "bm25").err
    assert "these words belong to the query" in retriever("query", "apples", "notes/b.md").err
    assert "these words belong to the query" not in retriever("query", "where are notes").err


def test_web_pages_are_not_fetched(fake_encoder, retriever):
    assert_refused(
        retriever("query", "x", "--in", "https://example.org/a"), "web pages are not fetched"
    )
    assert_refused(retriever("index", "https://example.org/a"), "web pages are not fetched")


def test_a_quiet_query_prints_hits_alone(notes, retriever):
    arguments = ("query", "apples", "--in", "notes", "--mode", "bm25", "--json")
    first = retriever(*arguments, "--quiet")
    assert (printed_json(first)["id"], first.err) == ("a.md", "")
    (notes / "c.md").write_text("Plums.\n")
    assert retriever(*arguments, "-q").err == ""
    assert retriever("query", "zebra", "--in", "notes", "--mode", "bm25", "-q") == (0, "", "")


def test_a_search_without_an_index_says_how_to_do_it_in_one_command(retriever, monkeypatch):
    from cli.main import start_lines

    assert any("--in FOLDER" in line for line in start_lines())
    assert json.dumps(list(start_lines()))
