"""`retriever verify`: is the index whole?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import index_option, json_option


@click.command("verify")
@index_option
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Check every file's checksum, and that documents, passages and segments agree.

    Prints a line for each problem and exits with code 3 if there is one.
    """
    from indexes.verify import verify

    problems = verify(folder)
    if as_json:
        click.echo(json.dumps({"sound": not problems, "problems": problems}, ensure_ascii=False))
    elif problems:
        for problem in problems:
            click.echo(problem, err=True)
    else:
        click.echo(f"{folder}: sound")
    if problems:
        click.get_current_context().exit(3)
