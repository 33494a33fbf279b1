"""The indexes that a service offers, by the names given at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retriever.index import Index
from retriever.search.reranking import Reranker
from retriever.service.faults import ServiceError
from retriever.service.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class Catalog:
    """The indexes of a service, its reranker and its settings.

    Attributes:
        indexes: by name; the first one is the default.
        settings: what is allowed.
        reranker: None if there is none.
    """

    indexes: Mapping[str, Index]
    settings: ServiceSettings
    reranker: Reranker | None = None

    @property
    def default(self) -> str:
        """The name of the index of requests that name none."""
        return next(iter(self.indexes))

    def index(self, name: str | None) -> Index:
        """An index by name; None for the first.

        Raises:
            ServiceError: there is none of that name.
        """
        found = self.indexes.get(self.default if name is None else name)
        if found is None:
            raise ServiceError(
                404, f"there is no index {name!r:.80} (indexes: {', '.join(self.indexes)})"
            )
        return found

    def of_model(self, name: str) -> Index:
        """The index of that name, or the first one with that encoder; empty for the first.

        Raises:
            ServiceError: there is none.
        """
        if not name or name in self.indexes:
            return self.index(name or None)
        for index in self.indexes.values():
            if name in (str(index.encoder_spec), index.encoder_spec.model):
                return index
        known = [*self.indexes, *(str(one.encoder_spec) for one in self.indexes.values())]
        raise ServiceError(404, f"there is no model {name!r:.80} (models: {', '.join(known)})")

    def check_text(self, what: str, text: str) -> None:
        """Refuse a text that is too long.

        Raises:
            ServiceError: it is.
        """
        if len(text) > self.settings.max_text:
            raise ServiceError(
                413,
                f"{what}: expected at most {self.settings.max_text:,} characters, found "
                f"{len(text):,}",
            )

    def check_number(self, what: str, number: int, most: int) -> None:
        """Refuse a number that is too large.

        Raises:
            ServiceError: it is.
        """
        if number > most:
            raise ServiceError(400, f"{what}: expected at most {most:,}, found {number:,}")
