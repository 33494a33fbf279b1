"""Shards: what an index needs of a corpus, encoded before there is one; how one is made and read.

docs/reference/shards.md describes the files. A shard appears complete or not at all, whoever makes
it, and making it again gives the same one.
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes import Committer, NewDocument, StoredVersion
from indexes.files import whole_files, write_lines
from retriever.documents.analyzer import PLAIN, Analyzer, AnalyzerSettings, reconcile_settings
from retriever.documents.document import AnyDocument, Document, as_document, document_fault
from retriever.documents.outline import outline_json, read_outline
from retriever.documents.passages import EARLIER, OnLong, PassageSettings
from retriever.encoders.encoder import Encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, DamagedIndexError, FormatVersionError, SourceError
from retriever.index.indexing.commit_buffer import COMPUTED
from retriever.index.indexing.embedded_documents import AnalyzedTerms, ReadyDocument
from retriever.index.indexing.indexer import Indexer
from retriever.index.indexing.run import CommitSettings, Progress
from retriever.search.opened import describe_settings

PLAN_FILE = "plan.json"
FORMAT = 1
_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_AGAIN = "run the same `retriever encode` again, which replaces damaged shards"
# A shard ends at this many bytes of JSON, so that memory is bounded where documents are long.
_BLOCK_BYTES = 32 * 2**20
# A shard is committed once.
_WHOLE = CommitSettings(passages=2**62, characters=2**62, seconds=math.inf)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that all shards of a folder share; the last two are None while unknown."""

    encoder: EncoderSpec
    probes: list[list[float]]  # vectors of fixed texts, of an encoder behind a URL
    analyzer: AnalyzerSettings
    stop_list: list[str]
    passages: PassageSettings
    shard_size: int
    shards: int | None = None
    documents: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the plan of a folder."""
        path = folder / PLAN_FILE
        try:
            value = json.loads(path.read_text("utf-8"))
            if (stored_format := value.pop("format")) > FORMAT:
                raise FormatVersionError(
                    f"{path}: expected shards of format {FORMAT} or older, found {stored_format}: "
                    "a newer release made them; upgrade layer-retriever"
                )
            value.pop("fingerprint")
            value.pop("source_bytes", None)
            value["encoder"] = EncoderSpec.from_json(value["encoder"])
            value["analyzer"] = AnalyzerSettings(**PLAIN | value["analyzer"])
            value["passages"] = PassageSettings(**EARLIER | value["passages"])
            return cls(**value)
        except FileNotFoundError as error:
            raise SourceError(
                f"{folder}: holds no shards ({PLAN_FILE} is missing); make them with "
                "`retriever encode SOURCE --shards`"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError, ConfigError) as error:
            raise DamagedIndexError(
                f"{path}: not a readable plan ({' '.join(str(error).split())}); encode into "
                "another folder"
            ) from error

    def write(self, folder: Path) -> None:
        """Write it, in place of an earlier one."""
        counts = {name: getattr(self, name) for name in ("probes", "shards", "documents")}
        value = {"format": FORMAT, **self.common(), **counts}
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        write_lines(folder / PLAN_FILE, [text], "the plan")

    def common(self) -> dict[str, Any]:
        """Return the settings that decide the content of a shard, as JSON values."""
        return {
            "encoder": self.encoder.to_json(),
            "fingerprint": self.encoder.fingerprint,
            "analyzer": self.analyzer.to_json(),
            "stop_list": self.stop_list,
            "passages": self.passages.to_json(),
            "shard_size": self.shard_size,
        }

    def require(self, folder: Path, requested: Mapping[str, object]) -> None:
        """Refuse other settings, by the names of attributes, than those of this plan."""
        for name, value in requested.items():
            own = getattr(self, name)
            is_same = value in (None, own)
            if isinstance(value, EncoderSpec):
                same_format = own.settings.dtype == value.settings.dtype
                is_same = own.fingerprint == value.fingerprint and same_format
            elif isinstance(value, AnalyzerSettings):
                is_same = own == reconcile_settings(value, own)
            if not is_same:
                raise ConfigError(
                    f"{folder}: the shards were begun with {name.replace('_', ' ')} "
                    f"{_describe_setting(own)}, but {_describe_setting(value)} was asked for; "
                    "give the same settings, or choose another folder"
                )


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """The facts of a shard, as its manifest has them."""

    number: int
    first: int  # places in the source, counted from 1
    last: int
    source: str  # the SHA-256 of what was read from there, as `documents_json`
    documents: int
    passages: int
    split: int
    truncated: int
    pieces: int
    computed: list[str]


def shard_path(folder: Path, number: int) -> Path:
    """Return the file of a shard."""
    return folder / f"{number:06}.safetensors"


def documents_json(documents: Iterable[Document | NewDocument]) -> bytes:
    """Return documents as JSON Lines, which are hashed, sent to workers and stored."""
    lines = []
    for document in documents:
        record = {
            "id": document.id,
            "title": document.title,
            "text": document.text,
            "metadata": document.metadata,
        }
        if document.outline:
            outline = document.outline
            record["outline"] = outline if isinstance(outline, str) else outline_json(outline)
        lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


def read_documents(lines: bytes) -> Iterator[Document]:
    """Yield the documents of `documents_json`."""
    # Not `splitlines`, which takes more characters than line feeds for ends of lines.
    for line in lines.split(b"\n")[:-1]:
        record = json.loads(line)
        yield Document(**{**record, "outline": read_outline(record.get("outline", ""))})


def write_shard(
    folder: Path,
    plan: Plan,
    facts: ShardFacts,
    documents: Sequence[NewDocument],
    vectors: NDArray[np.float32],
    terms: Sequence[Sequence[str]],
) -> None:
    """Write a shard, in place of an earlier one; there are vectors and terms for each passage."""
    from safetensors.numpy import save

    vocabulary: dict[str, int] = {}
    pairs = array("i")
    term_counts = array("i")
    for tokens in terms:
        counts = Counter(tokens)
        term_counts.append(len(counts))
        for term, count in counts.items():
            pairs.extend((vocabulary.setdefault(term, len(vocabulary)), count))
    hashes = b"".join(document.hash for document in documents)
    spans = [span for document in documents for span in document.spans]
    tensors: dict[str, NDArray[Any]] = {
        "documents": _bytes(documents_json(documents)),
        "hashes": _bytes(hashes).reshape(len(documents), -1 if hashes else 16),
        "passage_counts": np.array([len(document.spans) for document in documents], np.int32),
        "spans": np.array(spans, np.int64).reshape(-1, 2),
        "vectors": np.ascontiguousarray(vectors, np.float32),
        "vocabulary": _bytes(json.dumps(list(vocabulary), ensure_ascii=False).encode()),
        "term_counts": np.array(term_counts, np.int32),
        "terms": np.array(pairs, np.int32).reshape(-1, 2),
    }
    manifest = {"format": FORMAT, "plan": plan.common(), "shard": asdict(facts)}
    # One entry, since safetensors writes several in any order.
    signed = json.dumps({**manifest, "sha256": _checksum(manifest, tensors)}, ensure_ascii=False)
    with whole_files(shard_path(folder, facts.number)) as (new,):
        new.write_bytes(save(tensors, {"manifest": signed}))


def read_shard(folder: Path, plan: Plan, number: int) -> tuple[ShardFacts, dict[str, NDArray[Any]]]:
    """Return the facts and the tensors of a shard, after their checksum was compared."""
    from safetensors import SafetensorError, safe_open

    path = shard_path(folder, number)
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = json.loads((file.metadata() or {})["manifest"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        expected = manifest.pop("sha256")
    except FileNotFoundError as error:
        raise DamagedIndexError(f"{path}: the file is missing; {_AGAIN}") from error
    # The header is read before its checksum can be compared.
    except (SafetensorError, OSError, *_UNREADABLE) as error:
        reason = " ".join(str(error).split())
        raise DamagedIndexError(f"{path}: not a readable shard ({reason}); {_AGAIN}") from error
    checksum = _checksum(manifest, tensors)
    if checksum != expected:
        raise DamagedIndexError(
            f"{path}: its content was altered (expected SHA-256 {expected}, found {checksum}); "
            f"{_AGAIN}"
        )
    if (manifest["format"], manifest["plan"]) != (FORMAT, plan.common()):
        raise DamagedIndexError(
            f"{path}: made with other settings than {folder / PLAN_FILE} has; {_AGAIN}"
        )
    facts = ShardFacts(**manifest["shard"])
    if facts.number != number:
        raise DamagedIndexError(
            f"{path}: expected shard {number}, found shard {facts.number}; {_AGAIN}"
        )
    return facts, tensors


def _documents(
    facts: ShardFacts, tensors: Mapping[str, NDArray[Any]], analyzer: str
) -> Iterator[ReadyDocument]:
    """Yield the documents with their passages, vectors and terms, in the order of the source."""
    pairs = tensors["terms"]
    vocabulary = json.loads(tensors["vocabulary"].tobytes())
    ends = [0, *np.cumsum(tensors["term_counts"], dtype=np.int64).tolist()]
    spans = [(start, stop) for start, stop in tensors["spans"].tolist()]
    stop = 0
    counts = tensors["passage_counts"].tolist()
    documents = read_documents(tensors["documents"].tobytes())
    for document, count in zip(documents, counts, strict=True):
        start = stop
        stop = stop + count
        terms = [
            [*chain(*(repeat(vocabulary[term], n) for term, n in pairs[low:high].tolist()))]
            for low, high in pairwise(ends[start : stop + 1])
        ]
        yield ReadyDocument(
            document,
            spans[start:stop],
            tensors["vectors"][start:stop],
            AnalyzedTerms(analyzer, terms),
            facts.computed,
        )


def read_shards(folder: str | Path) -> Iterator[ReadyDocument]:
    """Yield the documents of shards with passages, vectors and terms, as `Index.add` takes them.

    They are in the order of the source. One shard is in memory at a time; it is compared with its
    checksum before its first document is yielded.

    Args:
        folder: a folder of `encode_shards`.

    Raises:
        SourceError: the folder holds no shards, or some are not made yet.
        DamagedIndexError: a shard is missing or altered; the documents before it are yielded.
    """
    folder = Path(folder)
    plan = Plan.read(folder)
    if plan.shards is None:
        raise SourceError(
            f"{folder}: not all shards are made; run the same `retriever encode` again, which "
            "makes the rest"
        )
    analyzer = Analyzer(plan.analyzer, plan.stop_list).identity
    for number in range(plan.shards):
        yield from _documents(*read_shard(folder, plan, number), analyzer)


def is_shards(folder: Path) -> bool:
    """Whether a folder holds shards."""
    return (folder / PLAN_FILE).is_file()


def _describe_setting(value: object) -> object:
    """Return a setting as a message names it."""
    if isinstance(value, AnalyzerSettings | PassageSettings):
        return describe_settings(value)
    return value


def _bytes(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def _checksum(manifest: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(manifest).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Block:
    """The documents of one shard."""

    number: int
    first: int  # the place of the first one in the source, counted from 1
    documents: int
    lines: bytes  # as `documents_json`
    digest: str  # the SHA-256 of these
    bytes_read: int  # bytes of the source that were read when the block was complete


def blocks(source: Iterable[AnyDocument], shard_size: int) -> Iterator[Block]:
    """Cut a stream of documents into the blocks of shards, one of them in memory at a time."""
    number = 0
    first = 1
    lines: list[bytes] = []
    size = 0

    def block() -> Block:
        content = b"".join(lines)
        digest = hashlib.sha256(content).hexdigest()
        return Block(number, first, len(lines), content, digest, getattr(source, "bytes_read", 0))

    for record in source:
        document = as_document(record)
        fault = document_fault(document)
        if fault is not None:
            raise SourceError(f"document {document.id!r}: {fault}")
        lines.append(documents_json([document]))
        size += len(lines[-1])
        if len(lines) == shard_size or size >= _BLOCK_BYTES:
            yield block()
            number += 1
            first += len(lines)
            lines = []
            size = 0
    if lines:
        yield block()


@dataclass(frozen=True, slots=True)
class ShardJob:
    """The settings of a process that makes shards; see `encode_shards`."""

    folder: Path
    plan: Plan
    on_long: OnLong
    device: str | None = None
    download: bool = False

    def load(self) -> Encoder:
        """The encoder of the plan, loaded once in a process."""
        return _loaded(self.plan.encoder, self.device, self.download)

    def read_existing(self, block: Block) -> ShardFacts | None:
        """Return the facts of a sound shard that exists already; None if there is none."""
        path = shard_path(self.folder, block.number)
        if not path.exists():
            return None
        facts, _ = read_shard(self.folder, self.plan, block.number)
        if facts.source != block.digest:
            raise SourceError(
                f"{path}: was made from other documents than the source has now, from document "
                f"{block.first:,} on; encode the changed source into another folder"
            )
        return facts

    def make(self, block: Block, encoder: Encoder, progress: Progress) -> ShardFacts:
        """Make a shard, unless it is there: the scheduler may repeat what a dead process did."""
        with suppress(DamagedIndexError):
            facts = self.read_existing(block)
            if facts is not None:
                return facts
        collected = _Collected(encoder.spec.dimensions)
        indexer = Indexer(
            collected,
            lambda: encoder,
            Analyzer(self.plan.analyzer, self.plan.stop_list),
            self.plan.passages,
            spec=self.plan.encoder,
            on_long=self.on_long,
            commit=_WHOLE,
            progress=progress,
        )
        indexer.add(read_documents(block.lines))
        facts = ShardFacts(
            number=block.number,
            first=block.first,
            last=block.first + block.documents - 1,
            source=block.digest,
            documents=len(collected.documents),
            passages=len(collected.vectors),
            split=indexer.report.split,
            truncated=indexer.report.truncated,
            pieces=indexer.report.pieces,
            computed=collected.recorded.get(COMPUTED, []),
        )
        write_shard(
            self.folder,
            self.plan,
            facts,
            collected.documents,
            collected.vectors,
            collected.terms,
        )
        return facts


@lru_cache(maxsize=1)
def _loaded(spec: EncoderSpec, device: str | None, download: bool) -> Encoder:
    return Encoder.from_spec(spec, device=device, download=download, requested_model=spec.model)


class _Collected(Committer):
    """Keeps the one commit of a shard, so that shards are cut like an index."""

    def __init__(self, dimensions: int) -> None:
        self.documents: Sequence[NewDocument] = []
        self.vectors = np.empty((0, dimensions), np.float32)
        self.terms: Sequence[Sequence[str]] = []
        self.recorded: dict[str, Any] = {}

    def setting(self, key: str, default: Any = None) -> Any:
        return self.recorded.get(key, default)

    def record(self, key: str, value: Any) -> None:
        self.recorded[key] = value

    def stored_versions(self, ids: Sequence[str]) -> dict[str, StoredVersion]:
        return {}

    def mark_seen(self, ids: Sequence[str]) -> None:
        pass

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        self.documents = documents
        self.vectors = vectors
        self.terms = list(tokens)
        return False

    def delete(self, ids: Iterable[str]) -> int:
        return 0
