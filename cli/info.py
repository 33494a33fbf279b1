"""`retriever info`: what an index is and holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.options import index_option, json_option


@click.command("info")
@index_option
@json_option
def command(folder: Path, as_json: bool) -> None:
    """Show what an index holds and which encoder made it."""
    from cli.progress import human_bytes
    from retriever.index import Index

    with Index.open(folder) as index:
        info = index.info()
    if as_json:
        click.echo(json.dumps(info, indent=1, ensure_ascii=False))
        return
    encoder, analyzer, long_texts = info["encoder"], info["analyzer"], info["long_texts"]
    rows = {
        "index": f"{info['folder']} (format {info['format_version']}, made {info['created']})",
        "documents": f"{info['documents']:,}",
        "passages": f"{info['passages']:,} in {len(info['segments'])} segments, "
        f"{info['deleted_passages']:,} deleted",
        "structure": ", ".join(
            f"{segment['structure']} of {segment['passages']:,}" + _recall(segment)
            for segment in info["segments"]
        )
        or "none yet",
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
    for segment in info["segments"]:
        if segment["recall"]:
            click.echo(f"{'why':<12} {'; '.join(segment['reasons'])}")


def _recall(segment: dict[str, Any]) -> str:
    measured = segment["recall"]
    return f" (recall@10 up to {max(one['recall'] for one in measured):.4f})" if measured else ""
