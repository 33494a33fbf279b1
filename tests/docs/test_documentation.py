"""The documentation names every command and option, and its links and examples hold."""

import re
from pathlib import Path

import click
import pytest

from cli.main import cli
from cli.options.shared import model_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def _commands(group=cli, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _sections():
    text = (ROOT / "docs/cli.md").read_text()
    parts = re.split(r"^## `retriever ", text, flags=re.MULTILINE)
    return {
        re.match(r"[a-z -]*[a-z]", part)[0]: re.split(r"^## ", part, flags=re.MULTILINE)[0]
        for part in parts[1:]
    }


def _encoder_section():
    """The section on the options that every command with an encoder has."""
    text = (ROOT / "docs/cli.md").read_text()
    return re.split(r"^## ", text.split("## The encoder\n", 1)[1], flags=re.MULTILINE)[0]


def _encoder_options():
    command = click.command("any")(model_options(lambda **_: None))
    return {option.opts[0] for option in command.params}


def test_the_encoder_options_are_documented_in_their_section():
    section = _encoder_section()
    assert not [option for option in _encoder_options() if f"`{option}`" not in section]
    assert set(re.findall(r"`(--[a-z0-9-]+)", section)) - {"--no-head", "--no-normalize"} == (
        _encoder_options()
    )


def test_a_command_with_an_encoder_refers_to_that_section():
    for name, command in _commands():
        takes = "--pooling" in {flag for option in command.params for flag in option.opts}
        assert takes == ("[encoder](#the-encoder)" in _sections()[name]), name


def test_the_commands_page_has_a_section_for_each_command_and_no_other():
    assert set(_sections()) == {name for name, _ in _commands()}


@pytest.mark.parametrize(("name", "command"), list(_commands()), ids=lambda value: str(value))
def test_every_option_of_a_command_is_documented_in_its_section(name, command):
    section = _sections()[name]
    described = _encoder_section() if "[encoder](#the-encoder)" in section else ""
    options = [
        next((name for name in option.opts if name.startswith("--")), option.opts[0])
        for option in command.params
        # --index is described once, at the top of the page.
        if isinstance(option, click.Option) and option.name != "folder"
    ]
    missing = [option for option in options if f"`{option}`" not in section + described]
    assert not missing


@pytest.mark.parametrize(("name", "command"), list(_commands()), ids=lambda value: str(value))
def test_the_commands_page_names_no_option_that_a_command_lacks(name, command):
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    named = set(re.findall(r"`(--[a-z0-9-]+)", _sections()[name]))
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_example_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "text": "A first text.", "year": 1999}\n')
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
