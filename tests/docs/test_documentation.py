"""The documentation says what the commands say, and its links and examples hold."""

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKER = runpy.run_path(str(ROOT / "docs/make_cli.py"))


def test_the_commands_page_is_what_the_commands_and_its_source_make():
    assert (ROOT / "docs/cli.md").read_text() == MAKER["reference"](), "run `make docs`"


def test_the_commands_page_names_every_command_and_option():
    page = (ROOT / "docs/cli.md").read_text()
    sections = dict(re.findall(r"^## `(.*)`\n((?:(?!## ).*\n)*)", page, re.MULTILINE))
    encoder = page.partition("## Encoder options\n")[2].partition("\n## ")[0]
    for name, command, _ in MAKER["commands"]():
        section = sections.pop(name)
        if "[encoder options](#encoder-options)" in section:
            section += encoder
        for option in command.params:
            if isinstance(option, click.Option):
                for flag in (*option.opts, *option.secondary_opts):
                    assert re.search(rf"`[^`]*(?<![\w-]){flag}(?![\w-])[^`]*`", section), (
                        name,
                        flag,
                    )
    assert not sections


def test_the_commands_page_has_examples_that_are_understood():
    page = (ROOT / "docs/cli.md").read_text()
    lines = re.findall(r"^retriever .*$", page, re.MULTILINE)
    examples = [line for line in lines if "[OPTIONS]" not in line]
    assert len(examples) > 30
    for line in examples:
        context, command = None, cli
        rest = shlex.split(line.partition(" | ")[0])[1:]
        try:
            while isinstance(command, click.Group):
                context = command.make_context(command.name, list(rest), parent=context)
                name, command, rest = command.resolve_command(context, rest)
            command.make_context(name, list(rest), parent=context)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_example_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "text": "A first text.", "year": 1999}\n')
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
