"""Behavior that needs a separate process: terminals, pipes, closed output and imports."""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios

import pytest

from retriever import Document, Index

HEAVY = [
    *("torch", "faiss", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy"),
    *("scipy", "sklearn", "matplotlib", "pyarrow", "sqlite_utils", "tqdm"),
]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
# Says on stderr when a model is loaded.
TOLD = """
import sys
from retriever.encoders.encoder import Encoder
from_spec = Encoder.from_spec
def told(*arguments, **options):
    print("LOADED", file=sys.stderr, flush=True)
    return from_spec(*arguments, **options)
Encoder.from_spec = told
from cli.main import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that holds an index, whose model other processes load without torch."""
    pytest.importorskip("layer_retriever_minilm")
    folder = tmp_path_factory.mktemp("process")
    with Index.create(folder / ".retriever", "::max-length=40", device="cpu") as index:
        index.add([Document("a", "w1 w2 w3 apples"), Document("b", "w4 w5 pears", "Title")])
        index.add([Document(f"c{i}", f"w{i} stones") for i in range(100)])
        index.add([Document("ключ", "Съешь же ещё 狐 🦊", "Füße")])
    return folder


def command(*arguments, code="from cli.main import main; main()"):
    return [sys.executable, "-c", code, *map(str, arguments)]


def run(folder, *arguments, **options):
    """Run a command with pipes as standard streams; return the finished process."""
    options = {"capture_output": True, "text": True, "check": False, **options}
    return subprocess.run(command(*arguments), cwd=folder, timeout=60, **options)


class Terminal:
    """A process whose chosen streams are one terminal, 100 columns wide."""

    def __init__(self, folder, arguments, *, stdout=None, **environment):
        self._ours, terminal_end = pty.openpty()
        termios.tcsetwinsize(terminal_end, (24, 100))
        unset = {"NO_COLOR", "RETRIEVER_INDEX", "COLUMNS"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=terminal_end,
            stdout=terminal_end if stdout is None else stdout,
            stderr=terminal_end,
            env={**kept, "TERM": "xterm", **environment},
        )
        os.close(terminal_end)
        self.shown = ""
        self._unread = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._ours)

    def until(self, text):
        """Read up to the next `text`; return the output since the last call."""
        while text not in self._unread:
            chunk = self._read()
            assert chunk, f"the end came before {text!r}, after {self._unread!r}"
            self._unread += chunk
        before, match, self._unread = self._unread.partition(text)
        self.shown += before + match
        return before + match

    def rest(self):
        """Return the output up to the end of the process."""
        while chunk := self._read():
            self._unread += chunk
        self.process.wait(60)
        seen, self._unread = self._unread, ""
        self.shown += seen
        return seen

    def type(self, text):
        os.write(self._ours, text.encode())

    def _read(self):
        ready, _, _ = select.select([self._ours], [], [], 60)
        assert ready, "nothing more came"
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:
            # Linux ends a terminal that nobody else holds so.
            return ""
        # Half a character is nothing yet, which is not the end.
        return self._decoder.decode(chunk) or self._read()


SHADOWING = ["cli.py", "eval.py", "indexes.py", "retriever.py", "click.py"]
PROGRAMS = {
    "console script": [os.path.join(os.path.dirname(sys.executable), "retriever")],
    "python -P -m": [sys.executable, "-P", "-m", "cli.main"],
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_modules_of_the_folder_it_runs_in_do_not_shadow_the_command(
    folder, tmp_path, monkeypatch, program
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in SHADOWING:
        (tmp_path / name).write_text("raise SystemExit('shadowed')\n")
    arguments = ["query", "apples", "--mode", "bm25", "--json", "-i", str(folder / ".retriever")]
    done = subprocess.run(
        [*program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["id"] == "a"


def test_words_are_highlighted_at_a_terminal_alone(folder):
    arguments = command("query", "apples", "--mode", "bm25")
    with Terminal(folder, arguments) as terminal:
        assert "\x1b[33m\x1b[1mapples\x1b[0m" in terminal.rest()
        assert terminal.process.returncode == 0
    with Terminal(folder, arguments, NO_COLOR="1") as terminal:
        assert "     w1 w2 w3 apples" in terminal.rest()
        assert "\x1b" not in terminal.shown
    assert "     w1 w2 w3 apples\n" in run(folder, "query", "apples", "--mode", "bm25").stdout


def test_the_prompt_answers_query_after_query_with_one_model(folder):
    """A blank line is no query, and a long query gets one line of warning."""
    with Terminal(folder, command("query", "-k", "1", code=TOLD)) as terminal:
        terminal.until("> ")
        terminal.type("w1 w2 w3\n")
        assert re.search(r"  1  \d\.\d{4}  a", terminal.until("> "))
        terminal.type("   \n")
        assert "  1  " not in ESCAPE.sub("", terminal.until("> "))
        terminal.type("pears\n")
        assert re.search(r"  1  \d\.\d{4}  b", terminal.until("> "))
        terminal.type("w1 " * 60 + "\n")
        warned = ESCAPE.sub("", terminal.until("  1  ") + terminal.until("> "))
        assert "warning: 1 of 1 texts are longer than the window of 40 tokens" in warned
        assert "UserWarning" not in warned
        terminal.type("\x04")
        terminal.rest()
        assert terminal.process.returncode == 0
        assert terminal.shown.count("LOADED") == 1


def test_the_prompt_goes_nowhere_where_hits_go_to_a_file(folder):
    arguments = command("query", "--mode", "bm25", "--json", "-k", "1")
    with Terminal(folder, arguments, stdout=subprocess.PIPE) as terminal:
        terminal.until("Ctrl-D ends.")
        terminal.type("apples\n")
        terminal.type("pears\n")
        terminal.type("\x04")
        out, _ = terminal.process.communicate(timeout=60)
        assert [json.loads(line)["id"] for line in out.decode().splitlines()] == ["a", "b"]


RECORDS = [{"id": str(i), "text": f"w{i % 200} " * (1 + i % 30)} for i in range(3000)]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["index"], r"\.retriever: 3,000 added, [^\n]*\n"),
        (
            ["encode", "--shards", "s", "--shard-size", "300", "--workers", "2"],
            r"s: 10 shards, \d+ of them new; 3,000 [^\n]*\n",
        ),
    ],
)
def test_progress_is_shown_on_stderr_at_a_terminal_and_nowhere_else(
    tmp_path, tiny_models, options, message
):
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    arguments = [*options, "c.jsonl", "--model", str(tiny_models["bert"])]
    with Terminal(tmp_path, command(*arguments), stdout=subprocess.PIPE) as terminal:
        terminal.rest()
        assert re.fullmatch(message, terminal.process.stdout.read().decode())
        assert terminal.process.wait(60) == 0
        rates = r"(\d+)% \|[^|]+\| ([\d,]+) passages, [\d,]+/s, \d+:\d+, "
        output = [(int(a), int(b.replace(",", ""))) for a, b in re.findall(rates, terminal.shown)]
    assert output == sorted(output)
    assert output
    shutil.rmtree(tmp_path / ".retriever", ignore_errors=True)
    quiet = run(tmp_path, *arguments)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert re.fullmatch(message, quiet.stdout)


def test_a_reader_that_leaves_early_is_no_error(folder, tmp_path):
    queries = tmp_path / "q.txt"
    queries.write_text("stones\n" * 5000)
    with subprocess.Popen(
        command("query", "--mode", "bm25", "--queries", queries),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline().startswith(b"== 1: stones")
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(60) == 0
    assert errors == "note: ids are generated from the order of the records: 1, 2, 3, ...\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered", "message"),
    [
        (("query", "stones", "--mode", "bm25"), "", "No space left on device\n"),
        # Not taken for the index.
        (("export", "-"), "1", "<stdout>: the disk is full: "),
    ],
)
def test_output_that_cannot_be_written_is_one_line(folder, arguments, unbuffered, message):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments),
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2
    assert done.stderr.startswith(f"retriever: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_standard_stream_may_be_closed(folder, number):
    arguments = ("export", "-")
    whole = run(folder, *arguments)
    closing = ["sh", "-c", f'exec "$@" {number}{"<" if number == 0 else ">"}&-', "sh"]
    done = subprocess.run(
        [*closing, *command(*arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if number == 1 else whole.stdout)


def test_standard_input_is_a_source_and_a_file_of_queries(folder):
    done = run(folder, "query", "--mode", "bm25", "--queries", "-", "--json", input="apples\npears")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    nothing = run(folder, "query", "--mode", "bm25", stdin=subprocess.DEVNULL)
    assert nothing.returncode == 2
    assert "give TEXT or --queries FILE" in nothing.stderr


def test_text_of_any_script_is_printed_in_any_locale(folder):
    for locale in ("C", "C.UTF-8"):
        environment = {**os.environ, "LC_ALL": locale}
        done = run(folder, "query", "съешь", "--mode", "bm25", env=environment, encoding="utf-8")
        assert (done.returncode, done.stderr) == (0, "")
        assert "ключ  Füße" in done.stdout
        assert "     Съешь же ещё 狐 🦊\n" in done.stdout
