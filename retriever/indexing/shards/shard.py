"""A shard: the documents of one stretch of a corpus with all that an index needs of them.

It is one safetensors file, which a rename makes appear as a whole. Its tensors:

====================  ====================================================================
``documents``         uint8: JSON Lines of id, title, text and metadata
``hashes``            (documents, 16) uint8: changes with title or text
``passage_counts``    (documents,) int32: number of passages of each document
``spans``             (passages, 2) int64: character offsets in the text
``vectors``           (passages, dimensions) float32
``vocabulary``        uint8: a JSON list of the terms
``term_counts``       (passages,) int32: number of different terms of each passage
``terms``             (n, 2) int32: a place in the vocabulary, and how often the term occurs
====================  ====================================================================

The header's metadata is a JSON object, ``manifest``. Its ``sha256`` covers the rest of it and the
type, the shape and the bytes of every tensor.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import NewDocument, whole_files
from retriever.documents import Document, document_fault
from retriever.errors import DamagedIndexError
from retriever.indexing.ready_documents import AnalyzedTerms, ReadyDocument
from retriever.indexing.shards.plan import FORMAT, PLAN_FILE, Plan

_TENSORS = {
    "documents": ("uint8", 1),
    "hashes": ("uint8", 2),
    "passage_counts": ("int32", 1),
    "spans": ("int64", 2),
    "vectors": ("float32", 2),
    "vocabulary": ("uint8", 1),
    "term_counts": ("int32", 1),
    "terms": ("int32", 2),
}
_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_AGAIN = "run the same `retriever encode` again, which replaces damaged shards"


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What the manifest of a shard says of it.

    Attributes:
        number: counted from 0.
        first, last: places in the source of its first and last document, counted from 1.
        source: SHA-256 of what was read from the source; see `documents_json`.
        documents, passages: how many it holds.
        split, truncated: how many documents became several passages, or lost their end.
        pieces: number of word pieces encoded.
        computed: how the vectors were computed, such as ``float32 by openvino 2026.4.1``.
    """

    number: int
    first: int
    last: int
    source: str
    documents: int
    passages: int
    split: int
    truncated: int
    pieces: int
    computed: list[str]


@dataclass(frozen=True, slots=True)
class ShardContent:
    """What a shard holds, as a writer commits it; see `indexes.protocol.Writer.commit`."""

    documents: Sequence[NewDocument]
    vectors: NDArray[np.float32]
    terms: Sequence[Sequence[str]]


def shard_path(folder: Path, number: int) -> Path:
    """The file of a shard."""
    return folder / f"{number:06}.safetensors"


def shard_numbers(folder: Path) -> set[int]:
    """The numbers of the shards that a folder holds."""
    return {int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()}


def documents_json(documents: Iterable[Document | NewDocument]) -> bytes:
    """Documents as JSON Lines: what is hashed, sent to workers and stored."""
    records = (
        {"id": one.id, "title": one.title, "text": one.text, "metadata": one.metadata}
        for one in documents
    )
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in records)


def read_documents(lines: bytes) -> Iterator[Document]:
    """The documents of `documents_json`."""
    # Not `splitlines`, which takes more characters than line feeds for ends of lines.
    for line in lines.split(b"\n")[:-1]:
        yield Document(**json.loads(line))


def write_shard(folder: Path, plan: Plan, facts: ShardFacts, content: ShardContent) -> None:
    """Write a shard, in place of an earlier one.

    Raises:
        StorageError: the disk is full or cannot be written.
    """
    from safetensors.numpy import save

    vocabulary: dict[str, int] = {}
    pairs, term_counts = array("i"), array("i")
    for terms in content.terms:
        counts = Counter(terms)
        term_counts.append(len(counts))
        for term, count in counts.items():
            pairs.extend((vocabulary.setdefault(term, len(vocabulary)), count))
    documents = content.documents
    hashes = b"".join(one.hash for one in documents)
    tensors: dict[str, NDArray[Any]] = {
        "documents": _bytes(documents_json(documents)),
        "hashes": _bytes(hashes).reshape(len(documents), -1 if hashes else 16),
        "passage_counts": np.array([len(one.spans) for one in documents], np.int32),
        "spans": np.array([*chain(*(one.spans for one in documents))], np.int64).reshape(-1, 2),
        "vectors": np.ascontiguousarray(content.vectors, np.float32),
        "vocabulary": _bytes(json.dumps(list(vocabulary), ensure_ascii=False).encode()),
        "term_counts": np.array(term_counts, np.int32),
        "terms": np.array(pairs, np.int32).reshape(-1, 2),
    }
    manifest = {"format": FORMAT, "plan": plan.common(), "shard": asdict(facts)}
    # One entry, since safetensors writes several in any order.
    signed = json.dumps({**manifest, "sha256": _checksum(manifest, tensors)}, ensure_ascii=False)
    with whole_files(shard_path(folder, facts.number)) as (new,):
        new.write_bytes(save(tensors, {"manifest": signed}))


class Shard:
    """A shard that was read whole, and whose checksum was compared.

    Attributes:
        facts: what the manifest says.

    Args:
        folder: of the shards.
        plan: of the folder.
        number: of the shard.

    Raises:
        DamagedIndexError: the file is missing, altered, or not of this plan.
    """

    def __init__(self, folder: Path, plan: Plan, number: int) -> None:
        from safetensors import SafetensorError, safe_open

        path = shard_path(folder, number)
        try:
            with safe_open(path, framework="numpy") as file:
                said = json.loads((file.metadata() or {})["manifest"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            expected = said.pop("sha256")
        except FileNotFoundError as error:
            raise DamagedIndexError(f"{path}: the file is missing; {_AGAIN}") from error
        # The header is read before its checksum can be compared.
        except (SafetensorError, OSError, *_UNREADABLE) as error:
            reason = " ".join(str(error).split())
            raise DamagedIndexError(f"{path}: not a readable shard ({reason}); {_AGAIN}") from error
        found = _checksum(said, tensors)
        kinds = {name: (one.dtype.name, one.ndim) for name, one in tensors.items()}
        if found != expected or kinds != _TENSORS:
            raise DamagedIndexError(
                f"{path}: its content was altered (expected SHA-256 {expected}, found {found}); "
                f"{_AGAIN}"
            )
        if (said.get("format"), said.get("plan")) != (FORMAT, plan.common()):
            raise DamagedIndexError(
                f"{path}: made with other settings than those of {folder / PLAN_FILE}; {_AGAIN}"
            )
        try:
            self.facts = ShardFacts(**said["shard"])
            self._vocabulary = json.loads(tensors["vocabulary"].tobytes())
            fault = _fault(self.facts, tensors, self._vocabulary, plan.encoder.dimensions)
        except _UNREADABLE as error:
            fault = f"not a readable shard ({' '.join(str(error).split())})"
        if fault is None and self.facts.number != number:
            fault = f"expected shard {number}, found shard {self.facts.number}"
        if fault is not None:
            raise DamagedIndexError(f"{path}: {fault}; {_AGAIN}")
        self._path = path
        self._tensors = tensors
        self._analyzer = plan.make_analyzer().identity

    def documents(self) -> Iterator[ReadyDocument]:
        """The documents with their passages, vectors and terms, in the order of the source.

        Raises:
            DamagedIndexError: a document is none, or has more terms than its text can.
        """
        tensors, pairs = self._tensors, self._tensors["terms"]
        ends = [0, *np.cumsum(tensors["term_counts"], dtype=np.int64).tolist()]
        total = np.concatenate([[0], np.cumsum(pairs[:, 1], dtype=np.int64)])[ends]
        spans = [(start, stop) for start, stop in tensors["spans"].tolist()]
        stop = 0
        documents = read_documents(tensors["documents"].tobytes())
        for number, count in enumerate(tensors["passage_counts"].tolist()):
            try:
                document = next(documents)
                fault = document_fault(document)
            except _UNREADABLE as error:
                fault = " ".join(str(error).split())
            start, stop = stop, stop + count
            if fault is None and (np.diff(total[start : stop + 1]) > _most_terms(document)).any():
                fault = "it has more terms than its text"
            if fault is not None:
                raise DamagedIndexError(f"{self._path}: document {number}: {fault}; {_AGAIN}")
            terms = [
                [*chain(*(repeat(self._vocabulary[one], n) for one, n in pairs[low:high].tolist()))]
                for low, high in pairwise(ends[start : stop + 1])
            ]
            yield ReadyDocument(
                document,
                spans[start:stop],
                tensors["vectors"][start:stop],
                AnalyzedTerms(self._analyzer, terms),
                self.facts.computed,
            )


def _most_terms(document: Document) -> int:
    """How many terms a passage can have: NFKC makes up to 18 characters of one."""
    return 18 * (len(document.title or "") + 1 + len(document.text))


def _fault(
    facts: ShardFacts, tensors: Mapping[str, NDArray[Any]], vocabulary: Any, dimensions: int
) -> str | None:
    """What of a shard does not fit together, though nothing was altered since; None if nothing."""
    documents, passages = facts.documents, facts.passages
    pairs, occurring = tensors["terms"], tensors["term_counts"]
    shapes = {
        "documents": (len(tensors["documents"]),),
        "hashes": (documents, 16),
        "passage_counts": (documents,),
        "spans": (passages, 2),
        "vectors": (passages, dimensions),
        "vocabulary": (len(tensors["vocabulary"]),),
        "term_counts": (passages,),
        "terms": (len(pairs), 2),
    }
    numbers = {**asdict(facts), "source": 0, "computed": 0}
    if not all(type(number) is int for number in numbers.values()):
        return "the manifest: expected numbers"
    if not _are_strings(facts.computed) or not _are_strings(vocabulary):
        return "expected how vectors were computed, and the vocabulary, as lists of strings"
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            return f"{name}: expected the shape {shape}, found {tensors[name].shape}"
    for name, counts, least, total in (
        ("passage_counts", tensors["passage_counts"], 1, passages),
        ("term_counts", occurring, 0, len(pairs)),
    ):
        if (counts < least).any() or counts.sum(dtype=np.int64) != total:
            return f"{name}: expected numbers from {least} on whose sum is {total}"
    lines = np.count_nonzero(tensors["documents"] == ord("\n"))
    if lines != documents:
        return f"documents: expected {documents} lines, found {lines}"
    if len(pairs) and not (
        0 <= pairs[:, 0].min() <= pairs[:, 0].max() < len(vocabulary) and pairs[:, 1].min() >= 1
    ):
        return "terms: expected places in the vocabulary, and numbers from 1 on"
    if not np.isfinite(tensors["vectors"]).all():
        return "vectors: expected finite numbers"
    return None


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _bytes(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def _checksum(manifest: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(manifest).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
