"""`retriever verify`: check that an index is intact."""

from __future__ import annotations

import json
from contextlib import closing

import click

from cli.options import Command, Location, index_option, json_option
from cli.output.index_facts import uncounted_text
from cli.output.text import say


@click.command("verify", cls=Command)
@index_option
@json_option
def verify_command(folder: Location, as_json: bool) -> None:
    """Check an index for damage.

    The command compares every file with its checksum, and documents, passages and segments with
    each other. It prints a line for each problem; then the exit code is 3.
    """
    from retriever import open_store, remains
    from retriever.search.opened import uncounted_passages, verify_index

    store = open_store(folder)
    problems = verify_index(store)
    if not problems:
        with closing(store.reader()) as reader, reader.view() as view:
            number = uncounted_passages(view)
        if number:
            say(f"note: {folder}: {uncounted_text(number)}; `retriever compact` counts them again")
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
