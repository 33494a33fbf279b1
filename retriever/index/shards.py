"""Shards: what an index needs of a corpus, encoded before there is one, by any number of processes.

docs/moving.md describes the files. A shard appears complete or not at all, whoever makes it, and
making it again gives the same one.
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
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes import NewDocument, whole_files, write_lines
from retriever.documents import Document
from retriever.documents.analyzer import PLAIN, Analyzer, AnalyzerSettings, as_held
from retriever.documents.outline import outline_json, read_outline
from retriever.documents.passages import PassageSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, DamagedIndexError, FormatVersionError, SourceError
from retriever.index.opened import listed
from retriever.index.ready import AnalyzedTerms, ReadyDocument

PLAN_FILE = "plan.json"
FORMAT = 1
_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_AGAIN = "run the same `retriever encode` again, which replaces damaged shards"


@dataclass(frozen=True, slots=True)
class Plan:
    """What all shards of a folder have in common; the last three are None while they are unknown.

    `probes` are vectors of fixed texts, of an encoder behind a URL.
    """

    encoder: EncoderSpec
    probes: list[list[float]]
    analyzer: AnalyzerSettings
    stop_list: list[str]
    passages: PassageSettings
    shard_size: int
    source_bytes: int | None
    shards: int | None = None
    documents: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The plan of a folder."""
        path = folder / PLAN_FILE
        try:
            value = json.loads(path.read_text("utf-8"))
            if (found := value.pop("format")) > FORMAT:
                raise FormatVersionError(
                    f"{path}: expected shards of format {FORMAT} or older, found {found}: a newer "
                    "release made them; upgrade layer-retriever"
                )
            value.pop("fingerprint")
            value["encoder"] = EncoderSpec.from_json(value["encoder"])
            value["analyzer"] = AnalyzerSettings(**PLAIN | value["analyzer"])
            value["passages"] = PassageSettings.from_json(value["passages"])
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
        counts = {
            name: getattr(self, name) for name in ("probes", "source_bytes", "shards", "documents")
        }
        value = {"format": FORMAT, **self.common(), **counts}
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        write_lines(folder / PLAN_FILE, [text], "the plan")

    def common(self) -> dict[str, Any]:
        """What decides the content of a shard, as JSON values; each shard repeats it."""
        return {
            "encoder": self.encoder.to_json(),
            "fingerprint": self.encoder.fingerprint,
            "analyzer": asdict(self.analyzer),
            "stop_list": self.stop_list,
            "passages": self.passages.to_json(),
            "shard_size": self.shard_size,
        }

    def require(self, folder: Path, asked: Mapping[str, object]) -> None:
        """Refuse other settings, by the names of attributes, than those of this plan."""
        for name, value in asked.items():
            own = getattr(self, name)
            if value is not None and not _same(own, value):
                raise ConfigError(
                    f"{folder}: the shards were begun with {name.replace('_', ' ')} {_shown(own)}, "
                    f"but {_shown(value)} was asked for; give the same settings, or choose another "
                    "folder"
                )

    def make_analyzer(self) -> Analyzer:
        """The analyzer of the terms."""
        return Analyzer(self.analyzer, self.stop_list)


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What the manifest of a shard says of it."""

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
    """The file of a shard."""
    return folder / f"{number:06}.safetensors"


def shard_numbers(folder: Path) -> set[int]:
    """The numbers of the shards that a folder holds."""
    return {int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()}


def documents_json(documents: Iterable[Document | NewDocument]) -> bytes:
    """Documents as JSON Lines: what is hashed, sent to workers and stored."""
    lines = []
    for one in documents:
        record = {"id": one.id, "title": one.title, "text": one.text, "metadata": one.metadata}
        if one.outline:
            given = one.outline
            record["outline"] = given if isinstance(given, str) else outline_json(given)
        lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


def read_documents(lines: bytes) -> Iterator[Document]:
    """The documents of `documents_json`."""
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
    pairs, term_counts = array("i"), array("i")
    for tokens in terms:
        counts = Counter(tokens)
        term_counts.append(len(counts))
        for term, count in counts.items():
            pairs.extend((vocabulary.setdefault(term, len(vocabulary)), count))
    hashes = b"".join(one.hash for one in documents)
    tensors: dict[str, NDArray[Any]] = {
        "documents": _bytes(documents_json(documents)),
        "hashes": _bytes(hashes).reshape(len(documents), -1 if hashes else 16),
        "passage_counts": np.array([len(one.spans) for one in documents], np.int32),
        "spans": np.array([*chain(*(one.spans for one in documents))], np.int64).reshape(-1, 2),
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
    """What a shard's manifest says, and its tensors, after their checksum was compared."""
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
    if found != expected:
        raise DamagedIndexError(
            f"{path}: its content was altered (expected SHA-256 {expected}, found {found}); "
            f"{_AGAIN}"
        )
    if (said["format"], said["plan"]) != (FORMAT, plan.common()):
        raise DamagedIndexError(
            f"{path}: made with other settings than those of {folder / PLAN_FILE}; {_AGAIN}"
        )
    facts = ShardFacts(**said["shard"])
    if facts.number != number:
        raise DamagedIndexError(
            f"{path}: expected shard {number}, found shard {facts.number}; {_AGAIN}"
        )
    return facts, tensors


def _documents(
    facts: ShardFacts, tensors: Mapping[str, NDArray[Any]], analyzer: str
) -> Iterator[ReadyDocument]:
    """The documents with their passages, vectors and terms, in the order of the source."""
    pairs, vocabulary = tensors["terms"], json.loads(tensors["vocabulary"].tobytes())
    ends = [0, *np.cumsum(tensors["term_counts"], dtype=np.int64).tolist()]
    spans = [(start, stop) for start, stop in tensors["spans"].tolist()]
    stop = 0
    counts = tensors["passage_counts"].tolist()
    documents = read_documents(tensors["documents"].tobytes())
    for document, count in zip(documents, counts, strict=True):
        start, stop = stop, stop + count
        terms = [
            [*chain(*(repeat(vocabulary[one], n) for one, n in pairs[low:high].tolist()))]
            for low, high in pairwise(ends[start : stop + 1])
        ]
        yield ReadyDocument(
            document,
            spans[start:stop],
            tensors["vectors"][start:stop],
            AnalyzedTerms(analyzer, terms),
            facts.computed,
        )


def read_shards(
    folder: str | Path, numbers: Iterable[int] | None = None
) -> Iterator[ReadyDocument]:
    """The documents of shards with their passages, vectors and terms, as `Index.add` takes them.

    One shard is in memory at a time; it is compared with its checksum before its first document is
    given.

    Args:
        folder: that `encode_shards` made.
        numbers: of the shards, counted from 0, in the order in which they are read; None for all,
            in the order of the source.

    Raises:
        SourceError: the folder holds no shards, or `numbers` is None and some are not made yet.
        ConfigError: there is no shard of that number.
        DamagedIndexError: a shard is missing or altered; the documents before it are given.
    """
    folder = Path(folder)
    plan = Plan.read(folder)
    if numbers is None:
        if plan.shards is None:
            raise SourceError(
                f"{folder}: not all shards are made; run the same `retriever encode` again, which "
                "makes the rest, or name those to read"
            )
        numbers = range(plan.shards)
    analyzer = plan.make_analyzer().identity
    for number in numbers:
        if number < 0 or (plan.shards is not None and number >= plan.shards):
            last = "" if plan.shards is None else f" to {plan.shards - 1}"
            raise ConfigError(f"{folder}: expected shards from 0{last}, found {number}")
        yield from _documents(*read_shard(folder, plan, number), analyzer)


def is_shards(folder: Path) -> bool:
    """Whether a folder holds shards."""
    return (folder / PLAN_FILE).is_file()


def _shown(value: object) -> str:
    return listed(value) if isinstance(value, AnalyzerSettings | PassageSettings) else str(value)


def _same(own: object, asked: object) -> bool:
    if isinstance(own, EncoderSpec) and isinstance(asked, EncoderSpec):
        formats = {one.settings.dtype for one in (own, asked)}
        return own.fingerprint == asked.fingerprint and len(formats) == 1
    if isinstance(own, AnalyzerSettings) and isinstance(asked, AnalyzerSettings):
        return own == as_held(asked, own)
    return own == asked


def _bytes(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def _checksum(manifest: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(manifest).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
