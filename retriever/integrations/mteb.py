"""The whole engine as a search model of MTEB: indexing and ranking, beside the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from mteb.models.model_meta import ModelMeta

from indexes.filters import written_value
from retriever.documents.document import Document
from retriever.encoders.settings import EncoderSettings
from retriever.errors import ConfigError
from retriever.index.index import Index
from retriever.search.opened import IndexKeywords
from retriever.search.settings import SearchSettings

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import CorpusDatasetType, QueryDatasetType

    from retriever.encoders.encoder import Encoder
    from retriever.encoders.spec import TextEncoder


class IndexSearch:
    """Indexes the corpus of each task and ranks it for the task's queries (`mteb.SearchProtocol`).

    Each corpus has an index of its own below `folder`. The index is kept, so that unchanged
    documents are not encoded again.

    Args:
        folder: folder of the indexes.
        model: see `Index.create`.
        settings: how to rank; the task determines `k`.
        encoder: see `Index.create`.
        device: see `Index.create`.
        create: further keywords of `Index.create`.
    """

    def __init__(
        self,
        folder: str | Path,
        model: str | EncoderSettings = "",
        settings: SearchSettings | None = None,
        *,
        encoder: Encoder | TextEncoder | None = None,
        device: str | None = None,
        **create: Unpack[IndexKeywords],
    ) -> None:
        self._folder = Path(folder)
        self._model = model
        self._settings = settings or SearchSettings()
        self._encoder = encoder
        self._device = device
        self._create = create
        self._index: Index | None = None

    def index(
        self,
        corpus: CorpusDatasetType,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        **_: Any,
    ) -> None:
        """Create or update the index of a task's corpus, for the next searches."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        name = "-".join((task_metadata.name, hf_subset, hf_split)).replace("/", "_")
        # float32, since MTEB publishes the scores.
        keywords: dict[str, Any] = {"dtype": "float32", **self._create}
        self._index = Index.create(
            self._folder / name, self._model, encoder=self._encoder, device=self._device, **keywords
        )
        self._index.add(_documents(corpus), prune=True)

    def search(
        self,
        queries: QueryDatasetType,
        *,
        top_k: int,
        top_ranked: Mapping[str, list[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Rank the last corpus for queries, or only the documents of `top_ranked` by query."""
        if self._index is None:
            raise ConfigError("search: no corpus was indexed yet: call index first")
        ids = list(queries["id"])
        texts = [
            " ".join(filter(None, (query["text"], query.get("instruction")))) for query in queries
        ]
        if top_ranked is None:
            rankings = self._index.rank(texts, self._settings, k=top_k)
            hits = dict(zip(ids, rankings, strict=True))
        else:
            hits = {}
            for id_, text in zip(ids, texts, strict=True):
                if candidates := ", ".join(map(written_value, top_ranked.get(id_, ()))):
                    where = f"id in ({candidates})"
                    rankings = self._index.rank([text], self._settings, k=top_k, where=where)
                    hits[id_] = next(rankings)
        return {id_: dict(hits.get(id_, ())) for id_ in ids}

    def close(self) -> None:
        """Close the last index."""
        if self._index is not None:
            self._index.close()
            self._index = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The name of the encoder and of the mode of ranking."""
        model = self._model or getattr(self._encoder, "name", "") or "default"
        label = f"{Path(str(model)).name}-{self._settings.mode}".replace("/", "_")
        return ModelMeta.create_empty(
            {
                "name": f"layer-retriever/{label}",
                "revision": version("layer-retriever"),
                "model_type": ["sparse" if self._settings.mode == "bm25" else "dense"],
            }
        )


def _documents(corpus: CorpusDatasetType) -> Iterator[Document]:
    for row in corpus:
        yield Document(row["id"], row.get("text") or "", row.get("title") or None, {})
