"""Facts of an index, as a dictionary and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cli.output.progress import file_lines
from cli.output.text import counted, human_bytes, meta_lines
from retriever.terminal import table

if TYPE_CHECKING:
    from retriever import Index


def index_facts(index: Index) -> dict[str, Any]:
    """Facts of an index, and of the files that it was made of."""
    from retriever.errors import DamagedIndexError
    from retriever.index import remembered_files

    facts = index.info() | {"copies": index.count_copies()}
    # What is remembered of sources may be damaged: `doctor` and `refresh` say so.
    with suppress(DamagedIndexError):
        facts["files"] = remembered_files(index.store).to_json()
    return facts


def fact_lines(info: dict[str, Any]) -> Iterator[str]:
    """Yield the lines in which `info` prints the facts of an index."""
    encoder = info["encoder"]
    analyzer = info["analyzer"]
    long_texts = info["long_texts"]
    structures = info["structures"]
    segments = info.get("segments", [])
    memory = structures["memory_bytes"]
    facts = {
        "index": f"{info.get('folder', info['index'])} (format {info['format_version']}, "
        f"created {info['created']})",
        "documents": f"{info['documents']:,}"
        + (f", {info['copies']:,} of them exact copies of others" if info["copies"] else ""),
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
        "computed": "in " + ", ".join(encoder["computed"]) if encoder["computed"] else "",
        "backend": encoder["backend"],
        "analyzer": f"{analyzer['language']}"
        + (f" ({', '.join(info['languages'])})" if info["languages"] else "")
        + {"icu": ", ICU", "grams": "", "plain": ", division of earlier releases"}[
            analyzer["division"]
        ]
        + (", stemmed" if analyzer["stemming"] else "")
        + (", stop words removed" if analyzer["stop_words"] else "")
        + (", terms of an earlier release" if analyzer["terms"] == "parts" else ""),
        "fit": _fit_line(info["fit"]) if info["fit"].get("words") else "",
        "calibrated": "; ".join(map(_calibrated_line, info["calibration"].values())),
        "long texts": f"{long_texts['on_long']}, overlap {long_texts['overlap']} pieces",
        "context": long_texts["context"],
    }
    yield from (f"{name:<12} {value}" for name, value in facts.items() if value)
    if "files" in info:
        yield from file_lines(info["files"])
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
        measured = [f"{one['recall']:.4f} ({one['effort']})" for one in segment["recall"]]
        if measured:
            yield f"{9 * ' '}recall@10 (effort): {', '.join(measured)}"


def _calibrated_line(learned: dict[str, Any]) -> str:
    questions = f"{learned['questions']:,} {'made' if learned['made'] else 'judged'} questions"
    return f"{learned['mode']} by {questions}, {learned['false_answers']:.1%} false answers"


def _fit_line(fit: dict[str, Any]) -> str:
    found = f"{fit['strange']:.1%} of words unknown or broken into letters"
    if fit["questions"]:
        found += (
            f"; mean reciprocal rank of {fit['questions']} made-up questions: bm25 "
            f"{fit['bm25']:.2f}, dense {fit['dense']:.2f}, hybrid {fit['hybrid']:.2f}"
        )
    found += f"; weight of embeddings {fit['weight']:g}"
    if (other := fit.get("strange_weight")) is not None:
        found += f", of strange queries {other:g}"
    return found


def uncounted_text(passages: int) -> str:
    """Say that languages of some passages include those of deleted ones."""
    return (
        f"an earlier release stored {counted(passages, 'passage')} and counts the languages of "
        "deleted ones too"
    )
