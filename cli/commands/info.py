"""`retriever info`: what an index is and holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.options.shared import index_option, json_option


@click.command("info")
@index_option
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Show what an index holds and which encoder made it."""
    from cli.output.progress import human_bytes
    from retriever.index import Index

    with Index.open(folder) as index:
        info = index.info()
    if as_json:
        click.echo(json.dumps(info, indent=1, ensure_ascii=False))
        return
    encoder, analyzer, long_texts = info["encoder"], info["analyzer"], info["long_texts"]
    structures = info["structures"]
    rows = {
        "index": f"{info['folder']} (format {info['format_version']}, made {info['created']})",
        "documents": f"{info['documents']:,}",
        "passages": f"{info['passages']:,} in {len(info['segments'])} segments, "
        f"{info['deleted_passages']:,} deleted",
        "index type": structures["index_type"]
        + (f", within {human_bytes(memory)}" if (memory := structures["memory_bytes"]) else ""),
        "size": human_bytes(info["bytes"]),
        "encoder": f"{encoder['encoder']} ({encoder['dimensions']} dimensions)",
        "fingerprint": encoder["fingerprint"],
        "analyser": f"{analyzer['language']}"
        + (", stemmed" if analyzer["stemming"] else "")
        + (", without stop words" if analyzer["stop_words"] else ""),
        "long texts": f"{long_texts['on_long']}, overlap {long_texts['overlap']} pieces",
    }
    for name, value in rows.items():
        click.echo(f"{name:<12} {value}")
    if info["segments"]:
        click.echo("\nsegment    passages        size  structure")
    for segment in info["segments"]:
        why = f": {'; '.join(segment['reasons'])}" if segment["reasons"] else ""
        click.echo(
            f"{segment['segment']:>7}  {segment['passages']:>10,}  "
            f"{human_bytes(segment['bytes']):>10}  {segment['structure']}{why}"
        )
        if segment["recall"]:
            found = ", ".join(f"{one['recall']:.4f} ({one['effort']})" for one in segment["recall"])
            click.echo(f"{'':33}recall@10 (effort): {found}")
        for behind in segment["filtered"]:
            found = ", ".join(f"{one['recall']:.4f} ({one['effort']})" for one in behind["recall"])
            click.echo(f"{'':33}where a filter leaves {100 * behind['share']:.3g}%: {found}")
