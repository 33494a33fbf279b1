"""`retriever info`: show what an index holds."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from cli.options import Command, Location, index_option, json_option
from cli.output.index_facts import fact_lines, index_facts
from cli.output.text import meta_lines, meta_summary, tell


@click.command("info", cls=Command)
@index_option
@json_option
def info_command(folder: Location, as_json: bool) -> None:
    """Show the contents and settings of an index.

    Each segment has its passages, size and search structure, and the reason for that structure.
    Approximate structures have a recall@10 for each search effort. For the folder of a
    meta-embedding, the command shows its source encoders and their weights.
    """
    from retriever.encoders import is_folder_with, missing_settings
    from retriever.encoders.meta import read_folder
    from retriever.encoders.registry import META_FILE
    from retriever.index import Index

    if isinstance(folder, Path) and is_folder_with(META_FILE, folder):
        facts = {"folder": str(folder.absolute()), **read_folder(folder).describe()}
        summary = f"{facts['folder']}: meta-embedding, {meta_summary(facts)}"
        lines = iter([summary, *meta_lines(facts)])
    else:
        with Index.open(folder) as index:
            facts = index_facts(index)
            fault = missing_settings(index.encoder_spec)
        lines = fact_lines(facts)
        if fault is not None:
            lines = chain(lines, ["", f"warning: {fault}"])
            facts["warnings"] = [fault]
    tell(lines, facts, as_json=as_json)
