"""Which model a person asks for, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from retriever.encoders.encoder import Encoder
from retriever.encoders.models import DEFAULT_MODEL, find_model
from retriever.encoders.spec import EncoderSpec
from retriever.errors import EncoderMismatchError


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model an index is to use, and how to load it.

    Attributes:
        name: a folder, bundled name or hub id; None takes the index's own, or the default.
        max_length: window in word pieces; None takes the index's own, or the model's.
        device: a torch device; None takes a GPU where there is one.
        download: allow the network for a hub id that is not in the cache.
    """

    name: str | None = None
    max_length: int | None = None
    device: str | None = None
    download: bool = False

    def load(self) -> Encoder:
        """Load it for a new index; raises what `Encoder.load` raises."""
        return Encoder.load(
            self.name or DEFAULT_MODEL,
            max_length=self.max_length,
            device=self.device,
            download=self.download,
        )

    def weights(self) -> str:
        """The identity of the model's files; raises what `find_model` raises."""
        return find_model(self.name or DEFAULT_MODEL, download=self.download).weights

    def check(self, spec: EncoderSpec, folder: Path) -> None:
        """Refuse a model that is not the one an index was made with.

        Raises:
            EncoderMismatchError: naming both.
        """
        wanted = []
        if self.name is not None:
            weights = self.weights()
            if weights != spec.weights:
                wanted.append(f"{self.name} with weights {weights[:12]}")
        if self.max_length not in (None, spec.max_length):
            wanted.append(f"a window of {self.max_length} pieces")
        if wanted:
            raise EncoderMismatchError(
                f"{folder}: the index was made with {spec.model} with weights {spec.weights[:12]} "
                f"and a window of {spec.max_length} pieces, but {' and '.join(wanted)} was asked "
                "for; leave the option out, or make the index again with --recreate"
            )
