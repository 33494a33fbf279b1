"""The `retriever` command: its tree of subcommands, error messages and exit codes.

Exit codes: 0 success, 1 failure, 2 usage or bad input, 3 damaged index, 4 too few questions for a
`gate`, 130 interrupted.
A command's module is imported when its own help page or the command itself is asked for, and heavy
libraries when it runs. ``retriever --help`` imports neither.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import click

from cli.output.text import counted, say

Tree: TypeAlias = "Mapping[str, str | Tree]"

# In the order of the help page: the summary of each command, which is the first sentence of its own
# help, or the tree of a group. Each command has a module of its name, see `LazyGroup`.
COMMANDS: Tree = {
    "index": "Add documents to an index, and create it if needed.",
    "query": "Search an index or a folder for TEXT.",
    "search": "Do the same as `retriever query`.",
    "similar": "Find documents that are similar to a document of the index.",
    "get": "Print the text of a document from the index.",
    "refresh": "Update an index after its source files have changed.",
    "calibrate": "Learn the probability that a hit is relevant.",
    "serve": "Serve indexes over HTTP, with a search page.",
    "delete": "Delete documents by id or by filter.",
    "info": "Show the contents and settings of an index.",
    "verify": "Check an index for damage.",
    "doctor": "Diagnose an index, and print a remedy for each problem.",
    "compact": "Merge all segments and free disk space.",
    "reindex": "Rebuild an index from its documents with another encoder.",
    "export": "Write documents to OUT.jsonl, or vectors to OUT.npy.",
    "import": "Add documents with existing vectors, without encoding them.",
    "snapshot": "Copy an index into the new folder DIR, and verify the copy.",
    "encode": "Encode documents into a NumPy file or into shards of an index.",
    "mcp": "Serve indexes to agents over the Model Context Protocol.",
    "cache": "List the indexes that `query --in` made.",
    "eval": {
        "qa": "Compare systems that rank the candidates of questions.",
        "sts": "Correlate cosine similarities with human similarity scores.",
        "transfer": "Train and test a classifier on sentence embeddings.",
        "probe": "Predict sentence properties, such as length, from embeddings.",
        "compare": "Score each RUN (TREC format), and compare it with the baseline.",
        "layers": "Find the best set of hidden states to average (BERT-LC).",
    },
    "train": {
        "reranker": "Train a reranker on embeddings of questions and passages.",
        "cross-encoder": "Fine-tune a cross-encoder on the questions of DATASET.",
        "encoder": "Fine-tune an encoder on DATA, and keep the best epoch.",
        "static": "Make a fast encoder from word vectors, for --model.",
        "meta": "Combine several encoders into one, for --model.",
    },
    "gate": "Check that a new ranking is no worse than the baseline.",
    "tune": "Choose the best settings of encoder, passages, BM25 and fusion.",
    "reproduce": "Print or run the commands of the papers' tables.",
    "inspect": {
        "layers": "Show the mean cosine between the hidden states of a token.",
        "words": "Show which words change most and least between layers.",
        "weights": "Show the weight of each word of TEXT in its SBERT-WK vector.",
        "settings": "List settings with their values, default, meaning and source.",
    },
    "make": {
        "probing": "Make probing sets in SentEval's format from SOURCE.",
        "questions": "Make questions and judgments from the documents of SOURCE.",
    },
}
# Modules whose names are not those of their commands.
_MODULES = {"search": "query", "import": "import_"}
_GROUP_HELP = {
    "eval": "Evaluate rankings and encoders, and choose hidden states.",
    "train": "Train rerankers and encoders, or combine encoders.",
    "inspect": "Look inside a model: its layers, words and SBERT-WK weights.",
    "make": "Make data sets from a corpus.",
}
_START = (
    "retriever index SOURCE   index files or folders, or bring the index up to date",
    'retriever query "..."    search',
    'retriever query "..." --in FOLDER   search a folder or file without making an index first',
    "retriever doctor         what the index holds, and what is missing",
    "retriever --help         all commands",
    "",
)
_INTERRUPTED = 130
_REFUSED = 2


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is needed.

    The command `train encoder` is the function `encoder_command` of `cli.commands.train.encoder`.
    """

    def __init__(self, *args: Any, tree: Tree, package: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._tree = tree
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands, in the order of the tree."""
        return list(self._tree)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; return None if there is none of that name."""
        summary = self._tree.get(cmd_name)
        if summary is None:
            return None
        name = cmd_name.replace("-", "_")
        module_name = f"{self._package}.{_MODULES.get(name, name)}"
        if isinstance(summary, str):
            module = importlib.import_module(module_name)
            command: click.Command = getattr(module, f"{name}_command")
            return command
        help_text = _GROUP_HELP[cmd_name]
        return LazyGroup(cmd_name, tree=summary, package=module_name, help=help_text)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands with their summaries, without importing them."""
        width = formatter.width - 6 - max(map(len, self._tree))
        rows = []
        for name, summary in self._tree.items():
            text = summary if isinstance(summary, str) else _GROUP_HELP[name]
            rows.append((name, click.Command(name, help=text).get_short_help_str(width)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def suggestions(self, name: str) -> list[str]:
        """Return commands to type in place of one that does not exist, the most likely first.

        They are the command of the same meaning, else those of that name in groups below, else
        those with a similar name.
        """
        from difflib import get_close_matches

        from cli.guesses import COMMAND_GUESSES

        if self._tree is COMMANDS and name.lower() in COMMAND_GUESSES:
            return [f"retriever {COMMAND_GUESSES[name.lower()]}"]
        groups = [key for key, value in self._tree.items() if not isinstance(value, str)]
        in_groups = [f"{group} {name}" for group in groups if name in self._tree[group]]
        return in_groups or get_close_matches(name, self._tree)


def _did_you_mean(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(f'`{name}`' for name in names)}?" if names else ""


cli = click.version_option(package_name="layer-retriever", prog_name="retriever")(
    LazyGroup(
        "cli",
        tree=COMMANDS,
        package="cli.commands",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="Search your own files by meaning and by words, offline.\n\n"
        'To search a folder at once, run `retriever query "..." --in FOLDER`. To keep an index in '
        '.retriever, run `retriever index SOURCE`, then `retriever query "..."`. The options of a '
        "command are in `retriever COMMAND --help`.",
    )
)


def main() -> None:
    """Run the command line and exit."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    # OpenBLAS also computes with memory past a short row, and drops the result; NumPy warns.
    warnings.filterwarnings("ignore", ".* encountered in matmul", RuntimeWarning)
    _reopen_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line with `arguments`; return the exit code."""
    try:
        if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
            for line in start_lines():
                say(line, err=False)
            return 0
        code = cli.main(arguments, prog_name="retriever", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        say("retriever: interrupted")
        return _INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of the output is gone (`| head`); click raises SystemExit if it notices first.
        _discard_output()
        return 0
    except Exception as error:
        return _report_error(error)
    return code if isinstance(code, int) else 0


def _report_error(error: Exception) -> int:
    """Print an error that the user can mend, and return the exit code; raise any other error."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return _REFUSED
    if isinstance(error, click.ClickException):
        say(f"retriever: {_usage_message(error)}")
        return error.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        say(f"retriever: {where}{error.strerror or error}")
        _discard_output()
        return _REFUSED
    # Imported only now, so that `--help` stays fast.
    from retriever.errors import RetrieverError

    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "transformers"):
        say(f'retriever: {error.name} is not installed: pip install "layer-retriever[torch]"')
        return _REFUSED
    if not isinstance(error, RetrieverError):
        raise error
    say(f"retriever: {error}")
    return error.exit_code


def start_lines() -> Iterator[str]:
    """Yield the most used commands, and the state of the nearest index, here or above."""
    yield from _START
    named = os.environ.get("RETRIEVER_INDEX")
    here = Path.cwd()
    candidates = (folder / ".retriever" for folder in (here, *here.parents))
    nearest = named or next((path for path in candidates if path.is_dir()), None)
    if nearest is None:
        yield "No index here or above."
        return
    from retriever.errors import RetrieverError
    from retriever.index import Index

    try:
        with Index.open(nearest) as index:
            state = f"{counted(len(index), 'document')}, encoder {index.encoder_spec}"
            yield f"{index.store}: {state}"
    except RetrieverError as error:
        yield str(error)
        return
    if named is None and Path(nearest).parent != here:
        yield f"To use it from here: -i {shlex.quote(str(nearest))}"


def _usage_message(error: click.ClickException) -> str:
    """Return an error of click in one line, with a suggestion and the help page to read."""
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        message = f"No such option {error.option_name!r}{_replacement(error)}"
    elif isinstance(error, click.NoSuchCommand) and context is not None:
        names = cast("LazyGroup", context.command).suggestions(error.command_name)
        message = f"No such command {error.command_name!r}{_did_you_mean(names)}"
    # click lists the choices of an option on lines of their own.
    message = " ".join(message.split()).removesuffix(".")
    if context is None:
        return message
    message = f"{message} (see `{context.command_path} --help`)"
    if isinstance(error, click.NoSuchOption) and context.command.name in ("query", "search"):
        message += "; to search for it, write --raw -- before the query, after all options"
    return message


def _replacement(error: click.NoSuchOption) -> str:
    """Return a suggestion for an unknown option, or nothing.

    It is an option of the same meaning, else a setting of --model, else a similar name.
    """
    from cli.guesses import OPTION_GUESSES, OPTIONS_OF_OTHER_COMMANDS
    from retriever.encoders import encoder_keys

    if error.ctx is None:
        return ""
    command = error.ctx.command
    key = error.option_name.lstrip("-")
    spellings = {spelling for parameter in command.params for spelling in parameter.opts}
    for replacement in OPTION_GUESSES.get(error.option_name, ()):
        if replacement.split()[0] in spellings:
            return _did_you_mean([replacement])
    if error.option_name in OPTIONS_OF_OTHER_COMMANDS:
        return f": use {OPTIONS_OF_OTHER_COMMANDS[error.option_name]}"
    if "--model" in spellings:
        keys = {setting.key for setting in encoder_keys()}
        if form := "NAME" if key == "preset" else _as_setting(key, keys):
            return f": it is part of --model, give it as `--model MODEL::{form}`"
    return _did_you_mean(error.possibilities or ())


def _as_setting(key: str, keys: Collection[str]) -> str:
    """Return the form of an option as a setting with one of `keys`; empty if it is none."""
    if key in keys:
        return f"{key}=VALUE"
    positive = key.removeprefix("no-")
    return f"{positive}=no" if positive in keys else ""


def _reopen_closed_streams() -> None:
    """Open closed standard streams, or the next file that is opened would get their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # The system gives the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _discard_output() -> None:
    """Keep Python from complaining at exit about output that cannot be written."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
