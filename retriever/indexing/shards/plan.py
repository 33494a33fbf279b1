"""The plan of a folder of shards: what all of them have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from indexes import write_lines
from retriever.documents.analyzer import Analyzer, AnalyzerSettings
from retriever.documents.passages import PassageSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, DamagedIndexError, FormatVersionError, SourceError
from retriever.indexing.creation import listed

PLAN_FILE = "plan.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What all shards of a folder have in common.

    Attributes:
        encoder: that makes the vectors.
        probes: vectors of fixed texts, of an encoder behind a URL; see `Encoder.probes`.
        analyzer, stop_list: of the terms.
        passages: how long texts are treated.
        shard_size: maximum number of documents of a shard.
        source_bytes: size of the source; None if it is unknown, as of standard input.
        shards, documents: how many there are; None until all shards are made.
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
        """The plan of a folder.

        Raises:
            SourceError: the folder has none.
            FormatVersionError: a newer release wrote it.
            DamagedIndexError: it was altered.
        """
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
            value["analyzer"] = AnalyzerSettings.from_json(value["analyzer"])
            value["passages"] = PassageSettings(**value["passages"])
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
        """Write it, in place of an earlier one.

        Raises:
            StorageError: the folder cannot be written.
        """
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
            "analyzer": self.analyzer.to_json(),
            "stop_list": self.stop_list,
            "passages": asdict(self.passages),
            "shard_size": self.shard_size,
        }

    def require(self, folder: Path, asked: Mapping[str, object]) -> None:
        """Refuse other settings than those of this plan.

        Args:
            folder: of the shards.
            asked: settings by the names of attributes; None for those that are not asked for.

        Raises:
            ConfigError: one differs.
        """
        for name, value in asked.items():
            own = getattr(self, name)
            if value is not None and not _same(own, value):
                raise ConfigError(
                    f"{folder}: the shards were begun with {name.replace('_', ' ')} {_shown(own)}, "
                    f"but {_shown(value)} was asked for; give the same settings, or choose another "
                    "folder"
                )

    def complete(self, shards: int, documents: int) -> Plan:
        """The plan once all shards are made."""
        return replace(self, shards=shards, documents=documents)

    def make_analyzer(self) -> Analyzer:
        """The analyzer of the terms."""
        return Analyzer(self.analyzer, self.stop_list)


def is_shards(folder: Path) -> bool:
    """Whether a folder holds shards."""
    return (folder / PLAN_FILE).is_file()


def _shown(value: object) -> str:
    return listed(value) if isinstance(value, AnalyzerSettings | PassageSettings) else str(value)


def _same(own: object, asked: object) -> bool:
    if isinstance(own, EncoderSpec) and isinstance(asked, EncoderSpec):
        formats = own.meaning("dtype"), asked.meaning("dtype")
        return own.fingerprint == asked.fingerprint and formats[0] == formats[1]
    return own == asked
