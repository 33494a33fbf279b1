"""`retriever verify`: is the index intact?"""

from __future__ import annotations

import json

import click

from cli.options.declaring import Command
from cli.options.index import Location, index_option
from cli.options.output import json_option
from cli.output.results import say


@click.command("verify", cls=Command)
@index_option
@json_option
def command(folder: Location, as_json: bool) -> None:
    """Check that an index is intact.

    Compares every file with its checksum, and documents, passages and segments with each other.
    Prints a line for each problem; the exit code is 3 if there is one.
    """
    from retriever import open_store, remains

    store = open_store(folder)
    problems = store.verify()
    for path, what in ({} if store.folder is None else remains(store.folder)).items():
        say(f"note: {path}: {what}")
    if as_json:
        click.echo(json.dumps({"sound": not problems, "problems": problems}, ensure_ascii=False))
    elif problems:
        for problem in problems:
            say(problem)
    else:
        say(f"{folder}: sound", err=False)
    if problems:
        click.get_current_context().exit(3)
