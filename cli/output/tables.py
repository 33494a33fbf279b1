"""Facts of meta-embeddings for a terminal, and what tables are made with."""

from __future__ import annotations

from typing import Any

from retriever.terminal import table


def meta_summary(facts: dict[str, Any]) -> str:
    """One line on what `MetaParts.describe` returns."""
    pooling = f", {facts['pooling']} pooling" if facts["pooling"] else ""
    return (
        f"{facts['method']} of {len(facts['sources'])} encoders, {facts['level']} level"
        f"{pooling}, {facts['dimensions']} dimensions"
    )


def meta_lines(facts: dict[str, Any]) -> list[str]:
    """The sources as a table."""
    rows = [
        [one["encoder"], str(one["dimensions"]), f"{one['weight']:.3f}", one["fingerprint"]]
        for one in facts["sources"]
    ]
    return table(["source", "dimensions", "weight", "fingerprint"], rows)
