"""The documentation says what the commands say, and its links, examples and sessions hold."""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest
import yaml

from cli.main import cli
from eval import Pipeline

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks/README.md",
]
MAKER = runpy.run_path(str(ROOT / "docs/make_cli.py"))


def test_the_commands_page_names_every_command_and_option():
    page = MAKER["reference"]()
    sections = dict(re.findall(r"^## `(.*)`\n((?:(?!## ).*\n)*)", page, re.MULTILINE))
    encoder = page.partition("## Encoder options\n")[2].partition("\n## ")[0]
    for name, command, _ in MAKER["commands"]():
        section = sections.pop(name)
        if "[encoder options](#encoder-options)" in section:
            section += encoder
        for option in command.params:
            # The keys of --set are options too, which no page lists.
            if isinstance(option, click.Option) and not option.hidden:
                for flag in (*option.opts, *option.secondary_opts):
                    assert re.search(rf"`[^`]*(?<![\w-]){flag}(?![\w-])[^`]*`", section), (
                        name,
                        flag,
                    )
    assert not sections


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_are_understood(page, monkeypatch, tmp_path):
    assert page.name != "commands.md" or len(examples(page.read_text())) > 30
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/tuned.toml").write_text(Pipeline().toml())
    # They name data sets that are not here.
    monkeypatch.setattr("cli.evaluation_options.data_set", lambda path: path)
    for line in examples(page.read_text()):
        context, command = None, cli
        rest = shlex.split(line.partition(" | ")[0], comments=True)[1:]
        try:
            while isinstance(command, click.Group):
                context = command.make_context(command.name, list(rest), parent=context)
                name, command, rest = command.resolve_command(context, rest)
            command.make_context(name, list(rest), parent=context)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


def examples(page):
    """The commands in blocks of code that can be run as they are: usage lines are left out."""
    blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace("\\\n", " ")
    lines = re.findall(r"^ *(retriever \S.*)$", text, re.MULTILINE)
    return [line for line in lines if "[" not in line]


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors that GitHub gives the headings of a page."""
    found = Counter()
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        # Of equal headings the later ones get a number.
        yield f"{slug}-{found[slug]}" if found[slug] else slug
        found[slug] += 1


def broken_links(text, folder):
    """The links of a page in a folder that lead nowhere: to no file, or to no heading."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (folder / name).resolve()
        found = target.exists() and target.is_relative_to(ROOT)
        if found and anchor:
            found = anchor in anchors(target.read_text() if name else text)
        if not found:
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_and_files_that_are_named_exist(page):
    text = page.read_text()
    assert not list(broken_links(text, page.parent))
    named = re.findall(r"`((?:cli|eval|retriever|indexes|tests|docs|benchmarks)/[\w./-]+)`", text)
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("maker", ["make_cli.py", "make_python.py"])
def test_links_of_a_made_page_lead_to_files_and_headings(maker):
    page = runpy.run_path(str(ROOT / "docs" / maker))["reference"]()
    assert not list(broken_links(page, ROOT / "docs"))


def test_places_in_shown_output_are_where_the_text_stands():
    lines = (ROOT / "docs/index-format.md").read_text().splitlines()
    readme = (ROOT / "README.md").read_text()
    places = re.findall(r"index-format\.md:(\d+)-\d+", readme)
    assert len(set(places)) == 1
    assert lines[int(places[0]) - 1] == "## Recovery"
    assert "## Recovery | what happened | what is done |" in readme
    commands = (ROOT / "docs/commands.md").read_text()
    shown = re.search(
        r"retriever get index-format\.md:(\d+)-(\d+) .*\n```\n```\n([^`]*)```", commands
    )
    first, last = int(shown[1]), int(shown[2])
    assert shown[3].splitlines() == lines[first - 1 : last]


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target not in reached and target.exists():
                waiting.append(target)
    assert set(PAGES) <= reached


def test_the_site_has_every_page():
    maker = runpy.run_path(str(ROOT / "docs/make_site.py"))
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = [name for _, name in maker["entries"](nav) if name]
    written = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(named) == sorted([*written, *maker["ELSEWHERE"].values()])


def test_the_index_of_benchmarks_names_every_script():
    folder = ROOT / "benchmarks"
    text = (folder / "README.md").read_text()
    scripts = [str(path.relative_to(folder)) for path in folder.rglob("*.py")]
    helpers = {"scale/synthetic.py"}
    assert not [name for name in scripts if f"`{name}`" not in text and name not in helpers]


def test_the_example_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "text": "A first text.", "year": 1999}\n')
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})


def test_the_example_of_moving_an_index_runs(tmp_path, monkeypatch):
    pytest.importorskip("layer_retriever_minilm")
    from retriever import Index

    monkeypatch.chdir(tmp_path)
    with Index.create("my.index") as index:
        index.add(["A text."])
    last = (ROOT / "docs/moving.md").read_text().partition("\n## From Python\n")[2]
    (example,) = re.findall(r"```python\n(.*?)```", last, re.DOTALL)
    namespace = {}
    exec(compile(example, "moving.md", "exec"), namespace)
    assert str(namespace["index"].encoder_spec.settings.layers) == "0,6"
    namespace["index"].close()


@pytest.fixture
def shell(tmp_path):
    """Runs the commands of a page, `retriever serve` until the test ends and on `shell.port`."""
    pytest.importorskip("layer_retriever_minilm")
    pytest.importorskip("fastapi")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    caches = dict.fromkeys(("XDG_CACHE_HOME", "RETRIEVER_CACHE"), str(tmp_path / "cache"))
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": path, **caches}, "text": True}
    services = []

    def run(asked):
        if asked[:2] != ["retriever", "serve"]:
            return subprocess.run(asked, capture_output=True, **options)
        asked = [*asked, "--port", run.port]
        services.append(subprocess.Popen(asked, stdout=subprocess.PIPE, **options))
        return subprocess.CompletedProcess(asked, 0, services[0].stdout.readline(), "")

    # Other programs may use the port of the page.
    with socket.create_server(("127.0.0.1", 0)) as free:
        run.port = str(free.getsockname()[1])
    yield run
    for service in services:
        service.terminate()
        service.communicate(timeout=60)


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.mark.soak
@needs_curl
@pytest.mark.parametrize("page", ["serving.md", "encoders.md"])
def test_the_session_with_the_service_answers_what_the_page_says(page, shell, tmp_path):
    (session,) = re.findall(
        r"^```console\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    corpus, *steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    (tmp_path / "ships.jsonl").write_text(corpus[1])
    for command, expected in steps:
        asked = shlex.split(command.replace("8765", shell.port).removesuffix(" &"))
        assert asked[0] in ("retriever", "curl")
        done = shell(asked)
        assert done.returncode == 0, done.stderr
        assert done.stdout.replace(shell.port, "8765").strip() == expected.strip(), command


@pytest.mark.soak
@needs_curl
def test_the_tutorials_run(shell, tmp_path, postgres_url):
    (tmp_path / "notes").mkdir()
    for page in sorted((ROOT / "docs").glob("*.md"))[::2]:
        sections = re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)
        for number, section in enumerate(sections):
            (tmp_path / "notes" / f"{page.stem}-{number}.md").write_text(section)
    text = (ROOT / "docs/tutorials.md").read_text().replace("--minutes 30", "--minutes 2")
    text = text.replace("8765", shell.port).replace(
        "postgresql:///search?index=notes", postgres_url
    )
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) > 15
    for asked in commands:
        if "--config" in asked and not (tmp_path / "tuned/tuned.toml").exists():
            # `tune` said to keep the defaults.
            place = asked.index("--config")
            asked[place : place + 2] = []
        done = shell(asked)
        # The candidate is the baseline; there may be too few questions to tell.
        assert done.returncode in ((0, 4) if asked[1] == "gate" else (0,)), done.stderr
        assert done.stdout or "--run" in asked or asked[1] in ("index", "refresh"), asked


def session(page, heading):
    """The Python of a section and what it prints, by the page."""
    _, section = re.split(
        rf"^##+ {heading}$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE
    )
    found = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return found[1], found[2]


@pytest.mark.parametrize(
    ("page", "heading", "needed"),
    [
        ("mcp.md", "A session", "mcp"),
        ("integrations.md", "LangChain", "langchain_core"),
        ("integrations.md", "A vector store of LangChain", "langchain_core"),
        ("integrations.md", "LlamaIndex", "llama_index.core"),
        ("integrations.md", "A vector store of LlamaIndex", "llama_index.core"),
        ("integrations.md", "Haystack", "haystack"),
        ("integrations.md", "A document store of Haystack", "haystack"),
        ("moving.md", "A session with Chroma", "chromadb"),
        ("moving.md", "A session with FAISS", "faiss"),
        ("gate.md", "In continuous integration", "eval"),
    ],
)
def test_a_session_prints_what_the_page_says(
    page, heading, needed, tmp_path, monkeypatch, fake_encoder
):
    pytest.importorskip(needed)
    code, expected = session(page, heading)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    assert printed.getvalue() == expected
