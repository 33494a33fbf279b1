"""`retriever doctor`: find what is wrong with an index, and what repairs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from cli.options import Command, Location, index_option, json_option
from cli.output.index_facts import fact_lines, index_facts, uncounted_text
from cli.output.text import counted, tell

if TYPE_CHECKING:
    from retriever import Index


@click.command("doctor", cls=Command)
@index_option
@json_option
def doctor_command(folder: Location, as_json: bool) -> None:
    """Diagnose an index, and print a remedy for each problem.

    The command does what `info` and `verify` do, loads the encoder and answers a query. It also
    compares the remembered sources with the disk, and checks whether the encoder knows the
    language. It changes nothing. The exit code is 0 without problems, 3 if the index is damaged,
    and 1 for any other problem.
    """
    from retriever.index import Index
    from retriever.search import earlier_terms

    with Index.open(folder) as index:
        mend = "retriever index SOURCE --recreate -i {}"
        problems = [("damage", problem, mend) for problem in index.verify()]
        facts = index_facts(index)
        if not problems:
            problems += _query_findings(index, facts)
            if reason := earlier_terms(index.analyzer.settings):
                # Reindexing comes first: only the new index has the terms of files read later.
                problems.append(("terms", reason, "retriever reindex -i {}"))
            problems += _source_findings(index)
            if number := facts["uncounted_passages"]:
                problems.append(("languages", uncounted_text(number), "retriever compact -i {}"))
    problems += [
        ("remains", f"{path}: {what}", "") for path, what in facts.get("remains", {}).items()
    ]
    place = shlex.quote(str(folder))
    findings = [
        {"kind": kind, "what": what, "mend": mend.replace("{}", place) or None}
        for kind, what, mend in problems
    ]
    lines = [*fact_lines(facts), ""]
    for finding in findings:
        lines.append(f"{finding['kind']}: {finding['what']}")
        lines += [f"  mend it: {finding['mend']}"] if finding["mend"] else []
    lines += [] if findings else [f"{folder}: sound, and nothing is missing"]
    tell(lines, {"findings": findings, "info": facts}, as_json=as_json)
    if findings:
        damaged = any(kind == "damage" for kind, _, _ in problems)
        click.get_current_context().exit(3 if damaged else 1)


# Kind, description, and the command that repairs it, with {} for the index. The command is empty
# where the description names the remedy.
_Finding = tuple[str, str, str]


def _query_findings(index: Index, info: dict[str, Any]) -> Iterator[_Finding]:
    """Yield the reasons why queries fail or have bad answers."""
    from retriever.encoders import missing_settings
    from retriever.encoders.registry import is_url
    from retriever.errors import MissingExtraError, RetrieverError
    from retriever.index.indexing.fit_measurement import multilingual_command
    from retriever.search.fit import LanguageFit

    spec = index.encoder_spec
    # An encoder of the user or behind a URL is not loaded or called.
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
    if (fault := missing_settings(spec)) is not None:
        yield "prompts", fault, ""
    if info["fit"] and (warning := LanguageFit(**info["fit"]).warning):
        yield "language", warning, multilingual_command(str(index.store))


def _source_findings(index: Index) -> Iterator[_Finding]:
    """Yield the differences between the disk and the sources that the index remembers."""
    from retriever.errors import DamagedIndexError
    from retriever.index import SourceMemory
    from retriever.index.sources.changes import find_changes
    from retriever.index.sources.files import passed_over

    try:
        if not index.sources:
            return
        with SourceMemory(index.store) as memory:
            source_changes = [find_changes(memory, source) for source in memory.sources()]
    except DamagedIndexError as error:
        yield "damage", str(error), ""
        return
    for changes in source_changes:
        path = changes.source.path
        if changes.missing:
            what = f"{path} {changes.missing}; what the index has of it stays"
            yield "sources", what, "retriever refresh --prune -i {}"
        elif len(changes.read) > len(changes.outdated) or changes.removed:
            number = len(changes.read) - len(changes.outdated)
            what = f"{path}: {counted(number, 'file')} new or changed, {len(changes.removed)} gone"
            yield "sources", what, "retriever refresh -i {}"
        if changes.outdated:
            what = (
                f"{path}: {counted(len(changes.outdated), 'file')} read by an earlier release, "
                "which may have lost part of the content"
            )
            yield "reader", what, "retriever refresh -i {}"
        for problem in changes.unreadable:
            yield "sources", problem, ""
        for label, count in passed_over(changes.source).items():
            what = f"{path}: {counted(count, f'{label} file')} cannot be read without more packages"
            yield "extra", what, 'pip install "layer-retriever[documents]"'
