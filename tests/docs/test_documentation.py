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
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks/README.md",
]
MAKER = runpy.run_path(str(ROOT / "docs/make_cli.py"))


def test_the_page_of_each_command_names_its_options():
    pages = MAKER["pages"]()
    encoder = pages["commands.md"].partition("## Encoder options\n")[2].partition("\n## ")[0]
    for name, command, _ in MAKER["commands"]():
        page = pages[MAKER["command_page"](name)]
        if "(../commands.md#encoder-options)" in page:
            page += encoder
        for option in command.params:
            # The keys of --set are options too, which no page lists.
            if isinstance(option, click.Option) and not option.hidden:
                for flag in (*option.opts, *option.secondary_opts):
                    assert re.search(rf"`[^`]*(?<![\w-]){flag}(?![\w-])[^`]*`", page), (name, flag)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_command_parses(page, monkeypatch, tmp_path):
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
    """List the commands in blocks of code, without usage lines."""
    blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    text = "".join(blocks).replace("\\\n", " ")
    lines = re.findall(r"^ *(retriever \S.*)$", text, re.MULTILINE)
    return [line for line in lines if "[" not in line]


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """Yield the anchors that GitHub gives the headings of a page."""
    slug_counts = Counter()
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        # Of equal headings the later ones get a number.
        yield f"{slug}-{slug_counts[slug]}" if slug_counts[slug] else slug
        slug_counts[slug] += 1


def broken_links(text, folder):
    """Yield the links of a page in `folder` that lead to no file or no heading."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (folder / name).resolve()
        target_exists = target.exists() and target.is_relative_to(ROOT)
        if target_exists and anchor:
            target_exists = anchor in anchors(target.read_text() if name else text)
        if not target_exists:
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_of_each_page_exist(page):
    text = page.read_text()
    assert not list(broken_links(text, page.parent))
    named = re.findall(r"`((?:cli|eval|retriever|indexes|tests|docs|benchmarks)/[\w./-]+)`", text)
    assert not [path for path in named if not (ROOT / path).exists()]


def test_links_of_the_python_page_lead_to_files_and_headings():
    page = runpy.run_path(str(ROOT / "docs/make_python.py"))["reference"]()
    assert not list(broken_links(page, ROOT / "docs/reference"))


def test_links_of_the_pages_of_commands_lead_to_files_and_headings():
    reference = ROOT / "docs/reference"
    pages = {reference / path: text for path, text in MAKER["pages"]().items()}
    assert len(pages) > 35
    for path, text in pages.items():
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", without_code(text)):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            target_text = pages.get(target) or target.read_text()
            assert not anchor or anchor in anchors(target_text), (path.name, link)


def test_line_numbers_in_printed_output_match_the_page():
    lines = (ROOT / "docs/reference/index-format.md").read_text().splitlines()
    readme = (ROOT / "README.md").read_text()
    places = re.findall(r"index-format\.md:(\d+)-\d+", readme)
    assert len(set(places)) == 1
    assert lines[int(places[0]) - 1] == "## Recovery"
    assert "## Recovery | what happened | what is done |" in readme
    commands = (ROOT / "docs/reference/commands.md").read_text()
    session = re.search(
        r"retriever get reference/index-format\.md:(\d+)-(\d+) .*\n```\n```\n([^`]*)```", commands
    )
    first, last = int(session[1]), int(session[2])
    assert session[3].splitlines() == lines[first - 1 : last]


def test_every_page_can_be_reached_from_the_readme():
    linked_pages, pending = set(), [ROOT / "README.md"]
    while pending:
        page = pending.pop()
        linked_pages.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target not in linked_pages and target.exists():
                pending.append(target)
    assert set(PAGES) <= linked_pages


def test_the_site_has_every_page():
    maker = runpy.run_path(str(ROOT / "docs/make_site.py"))
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = [name for _, name in maker["entries"](nav) if name]
    docs = ROOT / "docs"
    written = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    assert sorted(named) == sorted([*written, *maker["ELSEWHERE"].values()])


def test_the_pictures_are_those_of_the_script():
    maker = runpy.run_path(str(ROOT / "docs/make_pictures.py"))
    for name, picture in maker["PICTURES"].items():
        assert (ROOT / f"docs/images/{name}.svg").read_text() == maker["draw"](picture)


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


def test_the_python_example_of_moving_an_index_runs(tmp_path, monkeypatch):
    pytest.importorskip("layer_retriever_minilm")
    from retriever import Index

    monkeypatch.chdir(tmp_path)
    with Index.create("my.index") as index:
        index.add(["A text."])
    last = (ROOT / "docs/how-to/move.md").read_text().partition("\n## From Python\n")[2]
    (example,) = re.findall(r"```python\n(.*?)```", last, re.DOTALL)
    namespace = {}
    exec(compile(example, "move.md", "exec"), namespace)
    assert str(namespace["index"].encoder_spec.settings.layers) == "0,6"
    namespace["index"].close()


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a command of a page.

    `retriever serve` runs on `shell.port` until the test ends.
    """
    pytest.importorskip("layer_retriever_minilm")
    pytest.importorskip("fastapi")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    caches = dict.fromkeys(("XDG_CACHE_HOME", "RETRIEVER_CACHE"), str(tmp_path / "cache"))
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": path, **caches}, "text": True}
    services = []

    def run(command):
        if command[:2] != ["retriever", "serve"]:
            return subprocess.run(command, capture_output=True, **options)
        command = [*command, "--port", run.port]
        services.append(subprocess.Popen(command, stdout=subprocess.PIPE, **options))
        return subprocess.CompletedProcess(command, 0, services[0].stdout.readline(), "")

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
@pytest.mark.parametrize("page", ["reference/http.md", "reference/encoders.md"])
def test_the_session_with_the_service_answers_what_the_page_says(page, shell, tmp_path):
    (session,) = re.findall(
        r"^```console\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    corpus, *steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    (tmp_path / "ships.jsonl").write_text(corpus[1])
    for command, expected in steps:
        arguments = shlex.split(command.replace("8765", shell.port).removesuffix(" &"))
        assert arguments[0] in ("retriever", "curl")
        done = shell(arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.replace(shell.port, "8765").strip() == expected.strip(), command


@pytest.mark.soak
@needs_curl
def test_the_tutorials_run(shell, tmp_path, postgres_url):
    (tmp_path / "notes").mkdir()
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        sections = re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)
        for number, section in enumerate(sections):
            (tmp_path / "notes" / f"{page.stem}-{number}.md").write_text(section)
    pages = ("search-a-folder", "choose-an-encoder", "train-a-reranker", "serve")
    text = "".join((ROOT / f"docs/tutorials/{page}.md").read_text() for page in pages)
    text = text.replace("--minutes 30", "--minutes 2").replace("8765", shell.port)
    text = text.replace("postgresql:///search?index=notes", postgres_url)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines]
    assert len(commands) > 15
    for command in commands:
        if "--config" in command and not (tmp_path / "tuned/tuned.toml").exists():
            # `tune` said to keep the defaults.
            place = command.index("--config")
            command[place : place + 2] = []
        done = shell(command)
        # The gate may find any verdict on a changed weight.
        assert done.returncode in ((0, 1, 4) if "--alpha" in command else (0,)), done.stderr
        assert done.stdout or "--run" in command or command[1] in ("index", "refresh"), command


def session(page, heading):
    """Return the Python code of a section and the output that the page shows for it."""
    _, section = re.split(
        rf"^##+ {heading}$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE
    )
    blocks = re.search(
        r"^```python\n(.*?)^```\n\n```\n(.*?)^```", section, re.DOTALL | re.MULTILINE
    )
    return blocks[1], blocks[2]


@pytest.mark.parametrize(
    ("page", "heading", "needed"),
    [
        ("reference/mcp.md", "A session", "mcp"),
        ("how-to/langchain.md", "A retriever", "langchain_core"),
        ("how-to/langchain.md", "A vector store", "langchain_core"),
        ("how-to/llama-index.md", "A retriever", "llama_index.core"),
        ("how-to/llama-index.md", "A vector store", "llama_index.core"),
        ("how-to/haystack.md", "A retriever", "haystack"),
        ("how-to/haystack.md", "A document store", "haystack"),
        ("how-to/move-from.md", "A session with Chroma", "chromadb"),
        ("how-to/move-from.md", "A session with FAISS", "faiss"),
        ("how-to/gate.md", "In Python", "eval"),
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
