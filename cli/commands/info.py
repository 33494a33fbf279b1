"""`retriever info`: what an index is and holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cli.options.declaring import Command
from cli.options.index import Location, index_option
from cli.options.output import json_option
from cli.output.meta import meta_lines, meta_summary
from cli.output.progress import counted, human_bytes
from cli.output.results import say
from cli.output.tables import table

_INDENT = 9 * " "


@click.command("info", cls=Command)
@index_option
@json_option
def command(folder: Location, as_json: bool) -> None:
    """Show what an index holds and how it was made.

    For each segment: its passages, size and search structure, why that structure was chosen, and
    the recall@10 measured at each search effort. For the folder of a meta-embedding: its sources
    and their weights.
    """
    from retriever.encoders.meta.folder import read_folder
    from retriever.encoders.registry import is_meta_folder
    from retriever.index import Index

    if isinstance(folder, Path) and is_meta_folder(folder):
        facts = {"folder": str(folder.absolute()), **read_folder(folder).describe()}
        indent, lines = None, _meta(facts)
    else:
        with Index.open(folder) as index:
            facts = index.info()
        indent, lines = 1, _lines(facts)
    if as_json:
        click.echo(json.dumps(facts, indent=indent, ensure_ascii=False))
        return
    for line in lines:
        say(line, err=False)


def _lines(info: dict[str, Any]) -> Iterator[str]:
    encoder, analyzer, long_texts = info["encoder"], info["analyzer"], info["long_texts"]
    structures, segments = info["structures"], info.get("segments", [])
    memory = structures["memory_bytes"]
    facts = {
        "index": f"{info.get('folder', info['index'])} (format {info['format_version']}, "
        f"created {info['created']})",
        "documents": f"{info['documents']:,}",
        "passages": f"{info['passages']:,}"
        + (
            f" in {counted(len(segments), 'segment')}, {info['waiting_passages']:,} waiting in the "
            f"database, {info['deleted_passages']:,} deleted"
            if "segments" in info
            else ""
        ),
        **info.get("store", {}),
        "index type": structures["index_type"]
        + (f", within {human_bytes(memory)}" if memory else ""),
        "size": human_bytes(info["bytes"]),
        "encoder": f"{encoder['encoder']} ({encoder['dimensions']} dimensions)",
        "fingerprint": encoder["fingerprint"],
        **({"computed": "in " + ", ".join(encoder["computed"])} if encoder["computed"] else {}),
        **({"backend": encoder["backend"]} if encoder["backend"] else {}),
        "analyzer": f"{analyzer['language']}"
        + (", stemmed" if analyzer["stemming"] else "")
        + (", stop words removed" if analyzer["stop_words"] else ""),
        "long texts": f"{long_texts['on_long']}, overlap {long_texts['overlap']} pieces",
    }
    for name, value in facts.items():
        yield f"{name:<12} {value}"
    if encoder["meta"]:
        yield from ("", *meta_lines(encoder["meta"]))
    for path, what in info.get("remains", {}).items():
        yield f"{'beside it':<12} {path}: {what}"
    if not segments:
        return
    rows = [
        [
            str(segment["segment"]),
            f"{segment['passages']:,}",
            human_bytes(segment["bytes"]),
            segment["structure"]
            + (": " if segment["reasons"] else "")
            + "; ".join(segment["reasons"]),
        ]
        for segment in segments
    ]
    header, *lines = table(["segment", "passages", "size", "structure"], rows, left=(3,))
    yield from ("", header)
    for line, segment in zip(lines, segments, strict=True):
        yield line
        if segment["recall"]:
            yield f"{_INDENT}recall@10 (effort): {_recall(segment['recall'])}"


def _meta(facts: dict[str, Any]) -> Iterator[str]:
    yield f"{facts['folder']}: meta-embedding, {meta_summary(facts)}"
    yield from meta_lines(facts)


def _recall(measured: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['recall']:.4f} ({one['effort']})" for one in measured)
