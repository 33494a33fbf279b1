"""What is done to an index: `delete`, `info`, `verify`, `doctor`, `compact` and `reindex`."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import (
    OWN,
    Command,
    EncoderOptions,
    Location,
    encoder_options,
    index_option,
    json_option,
    option,
    pointing,
    quiet_option,
    where_option,
)
from cli.output.progress import DocumentsRead, EncodingProgress, Stages, file_lines
from cli.output.text import counted, human_bytes, meta_lines, meta_summary, say, tell
from cli.source_options import (
    IndexOptions,
    index_options,
)
from retriever.terminal import table

if TYPE_CHECKING:
    from retriever import Index, StructureSettings


@click.command("delete", cls=Command)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@index_option
@where_option
@option(
    "--erase",
    is_flag=True,
    help="Leave no byte of deleted documents in any file of the index, which is rewritten.",
    section="Index",
)
@json_option
def delete_command(
    ids: tuple[str, ...], folder: Location, where: str | None, erase: bool, as_json: bool
) -> None:
    """Delete documents by id or by filter.

    Deleted documents disappear from all answers at once. If the index does not hold one of the
    ids, the others are deleted, the id is named on stderr, and the exit code is 2.
    """
    from retriever.index import Index

    if bool(ids) == (where is not None):
        raise click.UsageError("give either ids or --where")
    with Stages() as stage, Index.open(folder) as index, pointing(where):
        missing = sorted({id_ for id_ in ids if id_ not in index})
        if where is None:
            deleted = index.delete(ids, erase=erase, stage=stage)
        else:
            deleted = index.delete_where(where, erase=erase, stage=stage)
    summary = f"{folder}: {counted(deleted, 'document')} {'erased' if erase else 'deleted'}"
    tell(summary, {"deleted": deleted, "missing": missing}, as_json=as_json)
    if missing:
        names = ", ".join(map(repr, missing[:10])) + (", ..." if len(missing) > 10 else "")
        say(f"retriever: {folder}: the index holds no document {names}")
        click.get_current_context().exit(2)


@click.command("info", cls=Command)
@index_option
@json_option
def info_command(folder: Location, as_json: bool) -> None:
    """Show what an index holds and how it was made.

    For each segment: its passages, size and search structure, why that structure was chosen, and
    the recall@10 measured at each search effort. For the folder of a meta-embedding: its sources
    and their weights.
    """
    from retriever.encoders import is_folder_with, missing_prompts
    from retriever.encoders.meta import read_folder
    from retriever.encoders.registry import META_FILE
    from retriever.index import Index

    if isinstance(folder, Path) and is_folder_with(META_FILE, folder):
        facts = {"folder": str(folder.absolute()), **read_folder(folder).describe()}
        summary = f"{facts['folder']}: meta-embedding, {meta_summary(facts)}"
        lines = iter([summary, *meta_lines(facts)])
    else:
        with Index.open(folder) as index:
            facts = _facts(index)
            fault = missing_prompts(index.encoder_spec)
        lines = _lines(facts)
        if fault is not None:
            lines = chain(lines, ["", f"warning: {fault}"])
            facts["warnings"] = [fault]
    tell(lines, facts, as_json=as_json)


def _facts(index: Index) -> dict[str, Any]:
    """Facts of an index, and of the files that it was made of."""
    from retriever.errors import DamagedIndexError
    from retriever.index import remembered_files

    facts = index.info() | {"copies": index.count_copies()}
    # What is remembered of sources may be damaged: `doctor` and `refresh` say so.
    with suppress(DamagedIndexError):
        facts["files"] = remembered_files(index.store).to_json()
    return facts


def _lines(info: dict[str, Any]) -> Iterator[str]:
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


@click.command("verify", cls=Command)
@index_option
@json_option
def verify_command(folder: Location, as_json: bool) -> None:
    """Check that an index is intact.

    Compares every file with its checksum, and documents, passages and segments with each other.
    Prints a line for each problem; the exit code is 3 if there is one.
    """
    from retriever import open_store, remains
    from retriever.index.opened import uncounted_passages, verify_index

    store = open_store(folder)
    problems = verify_index(store)
    if not problems:
        with closing(store.reader()) as reader, reader.view() as view:
            number = uncounted_passages(view)
        if number:
            say(f"note: {folder}: {_uncounted(number)}; `retriever compact` counts them again")
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


def _uncounted(passages: int) -> str:
    return (
        f"an earlier release stored {counted(passages, 'passage')} and counts the languages of "
        "deleted ones too"
    )


@click.command("doctor", cls=Command)
@index_option
@json_option
def doctor_command(folder: Location, as_json: bool) -> None:
    """Show what an index holds, and what is wrong or missing, with what mends each.

    Does what `info` and `verify` do, loads the encoder, answers a query, compares the remembered
    sources with the disk, and says whether the encoder knows the language. Changes nothing. The
    exit code is 0 if all is well, 3 if the index is damaged, and 1 if anything else is found.
    """
    from retriever.index import Index
    from retriever.index.opened import earlier_terms

    with Index.open(folder) as index:
        mend = "retriever index SOURCE --recreate -i {}"
        problems = [("damage", problem, mend) for problem in index.verify()]
        facts = _facts(index)
        if not problems:
            problems += _of_queries(index, facts)
            if reason := earlier_terms(index.analyzer.settings):
                # Files that are read afterwards bring what only the new index has.
                problems.append(("terms", reason, "retriever reindex -i {}"))
            problems += _of_sources(index)
            if number := facts["uncounted_passages"]:
                problems.append(("languages", _uncounted(number), "retriever compact -i {}"))
    problems += [
        ("remains", f"{path}: {what}", "") for path, what in facts.get("remains", {}).items()
    ]
    place = shlex.quote(str(folder))
    findings = [
        {"kind": kind, "what": what, "mend": mend.replace("{}", place) or None}
        for kind, what, mend in problems
    ]
    lines = [*_lines(facts), ""]
    for finding in findings:
        lines.append(f"{finding['kind']}: {finding['what']}")
        lines += [f"  mend it: {finding['mend']}"] if finding["mend"] else []
    lines += [] if findings else [f"{folder}: sound, and nothing is missing"]
    tell(lines, {"findings": findings, "info": facts}, as_json=as_json)
    if findings:
        damaged = any(kind == "damage" for kind, _, _ in problems)
        click.get_current_context().exit(3 if damaged else 1)


# Its kind, what it is, and the command that mends it, with {} for the index; none where the
# second says all there is to do.
_Finding = tuple[str, str, str]


def _of_queries(index: Index, info: dict[str, Any]) -> Iterator[_Finding]:
    """What keeps queries from being answered, or from being answered well."""
    from retriever.encoders import missing_prompts
    from retriever.encoders.registry import is_url
    from retriever.errors import MissingExtraError, RetrieverError
    from retriever.index.fit import MULTILINGUAL, Fit

    spec = index.encoder_spec
    # Others are not ours to load or to call.
    if not (spec.is_given or is_url(spec.model)):
        try:
            index.search("a query", k=1)
        except MissingExtraError as error:
            _, install, package = str(error).partition("pip install ")
            yield "extra", str(error), install + package
        except ModuleNotFoundError as error:
            mend = 'pip install "layer-retriever[torch]"'
            yield "extra", f"{error.name} is not installed", mend
        except RetrieverError as error:
            yield "model", str(error), "retriever reindex -i {} --model MODEL"
    if (fault := missing_prompts(spec)) is not None:
        yield "prompts", fault, ""
    if info["fit"] and (warning := Fit(**info["fit"]).warning):
        mend = f"retriever reindex -i {{}} --model {MULTILINGUAL} --download"
        yield "language", warning, mend


def _of_sources(index: Index) -> Iterator[_Finding]:
    """How the sources that the index remembers differ from the disk."""
    from retriever.errors import DamagedIndexError
    from retriever.index import SourceMemory
    from retriever.index.sources import passed_over

    try:
        if not index.sources:
            return
        with SourceMemory(index.store) as memory:
            changes = [memory.changes(source) for source in memory.sources()]
    except DamagedIndexError as error:
        yield "damage", str(error), ""
        return
    for one in changes:
        path = one.source.path
        if one.missing:
            what = f"{path} {one.missing}; what the index has of it stays"
            yield "sources", what, "retriever refresh --prune -i {}"
        elif len(one.read) > len(one.outdated) or one.gone:
            number = len(one.read) - len(one.outdated)
            what = f"{path}: {counted(number, 'file')} new or changed, {len(one.gone)} gone"
            yield "sources", what, "retriever refresh -i {}"
        if one.outdated:
            what = (
                f"{path}: {counted(len(one.outdated), 'file')} read by an earlier release, which "
                "may have lost part of the content"
            )
            yield "reader", what, "retriever refresh -i {}"
        for problem in one.unreadable:
            yield "sources", problem, ""
        for label, count in passed_over(one.source).items():
            what = f"{path}: {counted(count, f'{label} file')} cannot be read without more packages"
            yield "extra", what, 'pip install "layer-retriever[documents]"'


@click.command("compact", cls=Command)
@index_option
@index_options("index_type", "memory")
@json_option
def compact_command(folder: Location, asked: IndexOptions, as_json: bool) -> None:
    """Merge all segments and free disk space.

    Makes the index as small and fast as possible, whatever it costs; a run that adds documents
    merges only what is worth its cost. Deleted passages are removed from the disk. Answers stay the
    same, and searches continue during the merge. The disk temporarily needs room for a second copy.

    With --index-type or `--set memory=SIZE`, builds this search structure from the stored vectors;
    nothing is encoded. The memory that the build takes is printed first, and at the end the
    recall@10 of the new structure against exact search at each search effort.
    """
    from retriever.index import Index

    settings = asked.parts().structures
    if settings is not None:
        _rebuild(folder, settings, as_json=as_json)
        return
    with Index.open(folder) as index:
        before = index.info()
        with Stages() as stage:
            merged = index.compact(stage=stage)
        after = index.info()
    # SQLite deletes its log when the last connection is closed.
    bytes_after = index.store.size()
    dropped = before["deleted_passages"] - after["deleted_passages"]
    facts = {
        "merged_segments": merged,
        "dropped_passages": dropped,
        "bytes_before": before["bytes"],
        "bytes": bytes_after,
    }
    part = "segment" if index.store.folder else "part"
    summary = (
        f"{folder}: {counted(merged, part)} merged, {counted(dropped, 'deleted passage')} "
        f"removed, {human_bytes(before['bytes'])} before, {human_bytes(bytes_after)} now"
    )
    tell(summary, facts, as_json=as_json)


def _rebuild(folder: Location, settings: StructureSettings, *, as_json: bool) -> None:
    from retriever.index import Index

    with Index.open(folder) as index, Stages() as stage:
        index.rebuild(settings, stage=stage)
        facts = index.info()
    part = "segments" if "segments" in facts else "store"
    lines = [f"{name:<12} {value}" for name, value in facts.get("store", {}).items()]
    for segment in facts.get("segments", ()):
        passages = counted(segment["passages"], "passage")
        lines.append(f"{folder}: {passages}, {segment['structure']}")
        lines += [
            f"  effort {one['effort']:<6} recall@10 {one['recall']:.4f}"
            for one in segment["recall"]
        ]
    tell(lines, {"index_type": settings.index_type, part: facts[part]}, as_json=as_json)


@click.command("reindex", cls=Command)
@index_option
@encoder_options(OWN, "layers pooling dtype", own=OWN)
@index_options(
    "on_long context language",
    "index_type overlap stemming stop_words memory",
    dict.fromkeys(IndexOptions.__dataclass_fields__, OWN),
)
@quiet_option
@json_option
def reindex_command(
    folder: Location,
    encoder: EncoderOptions,
    asked: IndexOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Rebuild an index from its own documents, with another encoder.

    The old index serves searches until the new one is complete and replaces it. Settings that you
    do not give stay as they are; with --model, those of the encoder are that model's own. An
    interrupted run resumes when you run the same command again.
    """
    from retriever.index import Index, IndexingReport, reindexed
    from retriever.index.sources import memory_path

    if asked.on_long == "error":
        raise click.UsageError("--on-long error: texts are in the index; use split or truncate")
    started = time.monotonic()
    chosen = encoder.keywords()
    with Index.open(folder) as index:
        documents = DocumentsRead(index.info()["documents"])
        lacks_labels = not index.passages.labels and memory_path(index.store).exists()
    report = IndexingReport()
    with EncodingProgress(documents, quiet=quiet) as progress:
        try:
            done = reindexed(
                folder,
                **chosen,
                **asked.keywords(),
                progress=progress,
                report=report,
                read=documents.count,
            )
        except KeyboardInterrupt:
            say(
                f"{folder}: the old index keeps serving; "
                f"{counted(report.added, 'document')} of this run committed to the new one, what "
                "was being encoded is lost; run the same command again to resume"
            )
            raise
    seconds = round(time.monotonic() - started, 3)
    if report.truncated:
        say(f"warning: {counted(report.truncated, 'document')} truncated to the encoder's window")
    if lacks_labels and done is not None and not quiet:
        place = shlex.quote(str(folder))
        say(f"note: `retriever refresh -i {place}` brings the names and keywords of the files")
    facts = {
        "changed": done is not None,
        "documents": documents.bytes_read,
        "passages": report.passages,
        "resumed": report.unchanged,
        "split": report.split,
        "truncated": report.truncated,
        "seconds": seconds,
    }
    resumed = f", {counted(report.unchanged, 'document')} from the interrupted run"
    summary = (
        f"{folder}: nothing changes, the index has this encoder and these settings"
        if done is None
        else f"{folder}: {counted(documents.bytes_read, 'document')}, "
        f"{counted(report.passages, 'passage')} encoded"
        + (resumed if report.unchanged else "")
        + f" in {seconds:.1f} s"
    )
    tell(summary, facts, as_json=as_json, quiet=quiet)
