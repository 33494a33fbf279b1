"""Runs and relevance judgments (qrels) in the text formats of TREC and BEIR.

A run has lines `query Q0 document rank score tag`, qrels have `query 0 document grade`. BEIR's
qrels have a header `query-id corpus-id score` and one separator, tabs or spaces, in all lines.
Files are UTF-8 and may be gzipped.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from eval.datasets.files import fault, numbered_lines, put_new, quoted
from retriever.errors import BadInputError
from retriever.files import write_lines

_BEIR_HEADER = ["query-id", "corpus-id", "score"]
_QRELS_COLUMNS = "query 0 document grade"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Read query to document to score, in the order of the file; ranks and the tag are ignored.

    Raises:
        SourceError: the file cannot be read, or a line does not have six columns, or has a score
            that is not a finite number or a document that its query has already; names file and
            line.
    """
    run: dict[str, dict[str, float]] = {}
    for where, line in numbered_lines(Path(path)):
        columns = line.split()
        _check_columns(where, line, columns, "query Q0 document rank score tag")
        query, _, document, _, score, _ = columns
        if not _REAL.fullmatch(score) or not math.isfinite(float(score)):
            raise fault(where, "a finite number as score", quoted(score))
        row = run.setdefault(query, {})
        put_new(row, where, document, float(score), f"document of query {query}")
    return run


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Read query to document to grade, in the order of the file, in TREC's or BEIR's format.

    Raises:
        SourceError: the file cannot be read, or a line has the wrong number of columns, a grade
            that is not an integer, or a document that its query has already; names file and line.
    """
    qrels: dict[str, dict[str, int]] = {}
    beir = tabs = False
    for number, (where, line) in enumerate(numbered_lines(Path(path))):
        if number == 0 and line.split() == _BEIR_HEADER:
            beir = True
            tabs = "\t" in line
            continue
        # Identifiers in BEIR's tab-separated files may hold spaces.
        columns = line.split("\t") if tabs else line.split()
        _check_columns(where, line, columns, "query document grade" if beir else _QRELS_COLUMNS)
        query, document, grade = columns if beir else (columns[0], *columns[2:])
        if not _INTEGER.fullmatch(grade.strip()):
            raise fault(where, "an integer as grade", quoted(grade))
        row = qrels.setdefault(query, {})
        put_new(row, where, document, int(grade), f"document of query {query}")
    return qrels


def write_run(
    path_or_file: str | os.PathLike[str] | TextIO,
    run: Mapping[str, Sequence[tuple[str, float]]],
    tag: str,
) -> None:
    """Write ranked lists of (document, score), queries in the order given, ranks from 1.

    Scores are written with enough digits to read back as the same floats. Documents with equal
    scores are written by descending id, whatever their order here, since tools that evaluate the
    file rank them so. A path is written whole or not at all.

    Raises:
        BadInputError: an identifier or the tag is empty or has white space, a document is twice
            in a list, a score is not finite or greater than the score before it.
        StorageError: the file cannot be written.
    """
    check_run(run)
    lines = run_lines(run, tag)
    if isinstance(path_or_file, str | os.PathLike):
        write_lines(Path(path_or_file), lines, "the run")
    else:
        path_or_file.writelines(lines)


def check_run(run: Mapping[str, Sequence[tuple[str, float]]]) -> None:
    """Refuse ranked lists that a run file cannot hold."""
    for query, ranked in run.items():
        _check_word(query, "query id")
        if query.startswith("\ufeff"):
            # At the start of the file it would be read as the mark of the encoding.
            raise BadInputError(
                f"expected as query id text without a byte order mark before it, found {query!r}; "
                "rename it"
            )
        before = math.inf
        seen = set[str]()
        for document, score in ranked:
            _check_word(document, f"document id (query {query})")
            if document in seen:
                raise BadInputError(
                    f"query {query}: document {document} is in the ranking twice; keep one"
                )
            if not math.isfinite(score) or score > before:
                expected = f"a finite score of at most {before!r} after the one ranked before"
                actual = f"{float(score)!r} for document {document}"
                raise BadInputError(f"query {query}: expected {expected}, found {actual}; sort it")
            seen.add(document)
            before = float(score)


def run_lines(run: Mapping[str, Sequence[tuple[str, float]]], tag: str) -> Iterator[str]:
    """Yield the lines of a run file for lists that `check_run` accepts."""
    _check_word(tag, "run tag")
    for query, ranked in run.items():
        order = sorted(((float(score), document) for document, score in ranked), reverse=True)
        for rank, (score, document) in enumerate(order, 1):
            yield f"{query} Q0 {document} {rank} {score!r} {tag}\n"


def _check_word(word: str, name: str) -> None:
    unreadable = any("\ud800" <= character <= "\udfff" or character == "\0" for character in word)
    if word.split() != [word] or unreadable:
        expected = "UTF-8 text that is not empty and has neither white space nor NUL"
        remedy = "a run file separates its columns by white space, so rename it"
        raise BadInputError(f"expected as {name} {expected}, found {word!r}; {remedy}")


def _check_columns(where: str, line: str, columns: list[str], names: str) -> None:
    if len(columns) == len(names.split()) and all(columns):
        return
    remedy = "correct the line"
    if names == _QRELS_COLUMNS and len(columns) == 3:
        remedy = "three columns need a first line 'query-id corpus-id score'"
    expected = f"{len(names.split())} columns '{names}'"
    raise fault(where, expected, f"{len(columns)}: {quoted(line)}", remedy)
