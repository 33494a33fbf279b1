"""Facts of an index, as a dictionary and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cli.output.progress import file_lines
from cli.output.text import counted, human_bytes, meta_lines
from retriever.terminal import table

if TYPE_CHECKING:
    from retriever import Index

# The words for `AnalyzerSettings.division`.
_DIVISIONS = {"icu": ", ICU", "grams": "", "plain": ", division of earlier releases"}


def index_facts(index: Index) -> dict[str, Any]:
    """Return the facts of an index, and of the files that it was made of."""
    from retriever.errors import DamagedIndexError
    from retriever.index import remembered_files

    facts = index.info() | {"copies": index.count_copies()}
    # The memory of the sources may be damaged, which `doctor` and `refresh` report.
    with suppress(DamagedIndexError):
        facts["files"] = remembered_files(index.store).to_json()
    return facts


def fact_lines(info: dict[str, Any]) -> Iterator[str]:
    """Yield the lines in which `info` prints the facts of an index."""
    facts = {
        "index": f"{info.get('folder', info['index'])} (format {info['format_version']}, "
        f"created {info['created']})",
        **_content_facts(info),
        **_encoder_facts(info["encoder"]),
        **_search_facts(info),
    }
    yield from (f"{name:<12} {value}" for name, value in facts.items() if value)
    if "files" in info:
        yield from file_lines(info["files"])
    if info["encoder"]["meta"]:
        yield from ("", *meta_lines(info["encoder"]["meta"]))
    for path, what in info.get("remains", {}).items():
        yield f"{'beside it':<12} {path}: {what}"
    if segments := info.get("segments"):
        yield ""
        yield from _segment_lines(segments)


def _content_facts(info: dict[str, Any]) -> dict[str, str]:
    """Return the counts and sizes of an index, in words."""
    structures = info["structures"]
    memory = structures["memory_bytes"]
    documents = f"{info['documents']:,}"
    if info["copies"]:
        documents += f", {info['copies']:,} of them exact copies of others"
    passages = f"{info['passages']:,}"
    if "segments" in info:
        passages += (
            f" in {counted(len(info['segments']), 'segment')}, {info['waiting_passages']:,} "
            f"waiting in the database, {info['deleted_passages']:,} deleted"
        )
    return {
        "documents": documents,
        "passages": passages,
        **info.get("store", {}),
        "index type": structures["index_type"]
        + (f", within {human_bytes(memory)}" if memory else ""),
        "size": human_bytes(info["bytes"]),
    }


def _encoder_facts(encoder: dict[str, Any]) -> dict[str, str]:
    """Return the encoder of an index, in words."""
    return {
        "encoder": f"{encoder['encoder']} ({encoder['dimensions']} dimensions)",
        "chosen": f"by auto, since {encoder['auto']}" if encoder["auto"] else "",
        "fingerprint": encoder["fingerprint"],
        "computed": "in " + ", ".join(encoder["computed"]) if encoder["computed"] else "",
        "backend": encoder["backend"],
    }


def _search_facts(info: dict[str, Any]) -> dict[str, str]:
    """Return how an index analyzes, weights and divides its texts, in words."""
    long_texts = info["long_texts"]
    return {
        "analyzer": _analyzer_line(info["analyzer"], info["languages"]),
        "fit": _fit_line(info["fit"]) if info["fit"].get("words") else "",
        "calibrated": "; ".join(map(_calibration_line, info["calibration"].values())),
        "long texts": f"{long_texts['on_long']}, overlap {long_texts['overlap']} tokens",
        "context": long_texts["context"],
    }


def _analyzer_line(analyzer: dict[str, Any], languages: Sequence[str]) -> str:
    line = f"{analyzer['language']}" + (f" ({', '.join(languages)})" if languages else "")
    line += _DIVISIONS[analyzer["division"]]
    line += ", stemmed" if analyzer["stemming"] else ""
    line += ", stop words removed" if analyzer["stop_words"] else ""
    return line + (", terms of an earlier release" if analyzer["terms"] == "parts" else "")


def _fit_line(fit: dict[str, Any]) -> str:
    line = f"{fit['strange']:.1%} of words unknown or broken into letters"
    if fit["questions"]:
        line += (
            f"; mean reciprocal rank of {fit['questions']} made-up questions: bm25 "
            f"{fit['bm25']:.2f}, dense {fit['dense']:.2f}, hybrid {fit['hybrid']:.2f}"
        )
    line += f"; weight of embeddings {fit['weight']:g}"
    if (other := fit.get("strange_weight")) is not None:
        line += f", of strange queries {other:g}"
    return line


def _calibration_line(calibration: dict[str, Any]) -> str:
    origin = "made" if calibration["made"] else "judged"
    return (
        f"{calibration['mode']} by {calibration['questions']:,} {origin} questions, "
        f"{calibration['false_answers']:.1%} false answers"
    )


def _segment_lines(segments: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of segments, with the recall of each search structure below its line."""
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
    yield header
    for line, segment in zip(lines, segments, strict=True):
        yield line
        recalls = [
            f"{measurement['recall']:.4f} ({measurement['effort']})"
            for measurement in segment["recall"]
        ]
        if recalls:
            yield f"{9 * ' '}recall@10 (effort): {', '.join(recalls)}"


def uncounted_text(passages: int) -> str:
    """Say that languages of some passages include those of deleted ones."""
    return (
        f"an earlier release stored {counted(passages, 'passage')} and counts the languages of "
        "deleted ones too"
    )
