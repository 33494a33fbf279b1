"""Vectors of a corpus in one NumPy file, with the ids beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from indexes import GrowingArray, whole_files
from retriever.documents import Document
from retriever.documents.passages import passage_text
from retriever.encoders.encoder import Encoder
from retriever.errors import ConfigError, SourceError, StorageError
from retriever.indexing.report import Progress

_WINDOW = 8192


@dataclass(frozen=True, slots=True)
class Written:
    """What `encode_to_file` wrote: rows, the file of their ids, and how many texts were cut."""

    rows: int
    truncated: int
    ids_file: Path


def encode_to_file(
    documents: Iterable[Document],
    encoder: Encoder,
    output: Path,
    *,
    on_long: Literal["truncate", "error"],
    progress: Progress,
    queries: bool = False,
) -> Written:
    """Write one vector per document, as a stream; both files appear complete or not at all.

    Args:
        documents: encoded as title, space, text.
        encoder: gives the vectors.
        output: a .npy file of float32 (documents, dimensions), rows in the order of `documents`.
        on_long: ``truncate`` cuts a text at the window and counts it; ``error`` refuses it.
        progress: receives the progress of encoding.
        queries: whether the documents are queries, which may have another prompt than passages.

    Raises:
        SourceError: what `documents` raises, or a text longer than the window with ``error``.
        StorageError: the disk is full or cannot be written.
        What `check_output` raises.
    """
    check_output(output)
    ids_file = output.with_suffix(".ids.jsonl")
    rows = truncated = 0
    stream = iter(documents)
    with (
        whole_files(ids_file, output) as (new_ids, new),
        GrowingArray(new, np.dtype("<f4"), (encoder.spec.dimensions,)) as vectors,
        new_ids.open("w", encoding="utf-8") as ids,
    ):
        for window in _windows(stream):
            texts = [passage_text(document, None) for document in window]
            pieces = encoder.tokenize(texts, query=queries)
            long = [i for i, row in enumerate(pieces) if len(row) > encoder.spec.max_length]
            if long and on_long == "error":
                raise SourceError(
                    f"document {window[long[0]].id!r}: longer than the encoder's window of "
                    f"{encoder.spec.max_length} word pieces; use --on-long truncate"
                )
            cut = encoder.truncate([texts[i] for i in long], query=queries)
            for i, row in zip(long, cut, strict=True):
                pieces[i] = row
            progress.window(len(window))
            vectors.append(encoder.encode_pieces(pieces, progress.encoded))
            ids.writelines(
                json.dumps(document.id, ensure_ascii=False) + "\n" for document in window
            )
            rows += len(window)
            truncated += len(long)
    return Written(rows, truncated, ids_file)


def check_output(output: Path) -> None:
    """Refuse a name that vectors cannot be written to, before anything is encoded.

    Raises:
        ConfigError: it does not end in .npy.
        StorageError: it is a folder, or in a folder that does not exist.
    """
    if output.suffix != ".npy":
        raise ConfigError(f"{output}: expected a file name that ends in .npy; change --output")
    if not output.parent.is_dir() or output.is_dir():
        raise StorageError(
            f"{output}: expected a file in a folder that exists; make the folder or change --output"
        )


def _windows(documents: Iterator[Document]) -> Iterator[list[Document]]:
    while window := list(islice(documents, _WINDOW)):
        yield window
