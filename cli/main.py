"""The `retriever` command: finds the subcommand, prints errors, sets the exit code.

Exit codes: 0 success, 1 failure, 2 usage or bad input, 3 damaged index, 130 interrupted.
Subcommands are imported when they run, so that ``retriever --help`` stays quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

import click

from cli.lazy import LazyGroup
from cli.output.progress import long_builds_told
from retriever.errors import RetrieverError

_INTERRUPTED = 130
_REFUSED = 2


@click.group(
    cls=LazyGroup,
    modules={
        "index": "cli.commands.index",
        "add": "cli.commands.add",
        "query": "cli.commands.query",
        "delete": "cli.commands.delete",
        "compact": "cli.commands.maintain.compact",
        "rebuild": "cli.commands.maintain.rebuild",
        "info": "cli.commands.info",
        "verify": "cli.commands.verify",
        "encode": "cli.commands.encode",
        "export": "cli.commands.move.export",
        "import": "cli.commands.move.imports",
        "snapshot": "cli.commands.move.snapshot",
        "reindex": "cli.commands.maintain.reindex",
        "eval": "cli.commands.eval.group",
        "train": "cli.commands.train.group",
        "fit": "cli.commands.train.fit",
        "tune": "cli.commands.tune.group",
        "inspect": "cli.commands.inspect.group",
        "make": "cli.commands.make.group",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="layer-retriever", prog_name="retriever")
def cli() -> None:
    """Search your own text: `retriever index SOURCE`, then `retriever query "..."`."""


def main() -> None:
    """Run the command line and exit."""
    warnings.formatwarning = _one_line
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line with `arguments`; returns the exit code."""
    try:
        with long_builds_told():
            code = cli.main(arguments, prog_name="retriever", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except RetrieverError as error:
        click.echo(f"retriever: {error}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("retriever: interrupted", err=True)
        return _INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader of our output has gone (`| head`); click exits where it notices first.
        _discard_output()
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"retriever: {where}{error.strerror or error}", err=True)
        _discard_output()
        return _REFUSED
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Let nothing be written to a standard stream that is closed, nor its number name a file."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: this one.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _discard_output() -> None:
    """Keep Python from complaining at exit about output that cannot be written."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {message}\n"


if __name__ == "__main__":
    main()
