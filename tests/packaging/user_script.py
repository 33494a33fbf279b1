"""What a user of the whole API writes; `mypy --strict` must accept it. It is never run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from eval import (
    Comparison,
    Evaluation,
    LayerSearchResult,
    LayerSearchSettings,
    QASettings,
    STSSettings,
    compare,
    evaluate,
    rank_systems,
    read_pairs,
    read_qrels,
    read_run,
    score_sts,
    search_layers,
)
from retriever import (
    Analyzer,
    AnalyzerSettings,
    BM25Settings,
    BM25Variant,
    CommitSettings,
    CorpusReader,
    DamagedIndexError,
    Document,
    EncodedShards,
    Encoder,
    EncoderSettings,
    EncoderSpec,
    Excerpt,
    Facet,
    Facets,
    FacetValue,
    Fields,
    FieldSummary,
    FilterError,
    FusionSettings,
    Hit,
    Hits,
    Index,
    IndexingReport,
    IndexLockedError,
    Mark,
    MetaSettings,
    Mode,
    PassageSettings,
    Place,
    QueryMap,
    QueryVectors,
    ReadyDocument,
    RefreshReport,
    RetrieverError,
    SearchSettings,
    Store,
    StructureSettings,
    TextEncoder,
    TextForm,
    UnsupSettings,
    encode_shards,
    export_jsonl,
    export_npy,
    fit_meta,
    import_documents,
    load_query_map,
    load_reranker,
    open_store,
    parse_encoder,
    point_at,
    read_shards,
    recreated,
    reindexed,
    remains,
    snapshot_index,
    verify,
)


class Remote:
    """An encoder of one's own."""

    name = "remote"
    dimensions = 8

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), self.dimensions), np.float32)


def combine(texts: Sequence[str]) -> Encoder:
    settings = MetaSettings("unsup", pooling="mean", training=UnsupSettings(weights=False))
    sources: list[str | Encoder] = ["all-MiniLM-L6-v2", Encoder.load("sif")]
    return fit_meta(texts, sources, "both", settings, dev=read_pairs([Path("dev.tsv")]))


def make(folder: str) -> None:
    index = Index.create(
        folder, model="all-MiniLM-L6-v2::lc:0,6", language="german", on_long="truncate"
    )
    assert_type(index, Index)
    report = index.add(
        ["a text", {"id": "42", "text": "…", "year": 2020}, Document("43", "a text", title="t")],
        vectors=None,
        commit=CommitSettings(passages=1000),
    )
    assert_type(report, IndexingReport)
    hits = index.search("a question", k=5, mode="hybrid", where="year >= 2000", alpha=0.7)
    assert_type(hits, Hits)
    for hit in hits:
        assert_type(hit.score, float)
        assert_type(hit.bm25_rank, int | None)
        assert_type(hit.place, Place | None)
        excerpt = index.excerpt(hit, before=2)
        assert_type(excerpt, Excerpt)
    assert_type(index["42"], Document)
    assert_type(index["42"].outline, tuple[Mark, ...])
    assert_type(index.refresh(), RefreshReport)
    for document in index:
        assert_type(document.metadata["year"] == 2020, bool)
    index.update("42", metadata={"year": 2021, "tags": ["a"]})
    assert_type(index.delete(["42"]), int)
    index.rebuild(StructureSettings("ivf"))
    assert_type(index.plan(StructureSettings()).memory_bytes, int)
    assert_type(index.reindex(model="all-MiniLM-L6-v2"), IndexingReport | None)
    assert_type(index.info(), dict[str, Any])
    assert_type(index.verify(), list[str])
    counts = index.facets(["lang"], "a question", where="year >= 2000")
    assert_type(counts, Facets)
    assert_type(counts.fields["lang"], Facet)
    assert_type(counts.fields["lang"].values[0], FacetValue)
    assert_type(index.fields(), list[FieldSummary])
    assert_type(index.more_like("42", k=3, mode="dense"), Hits)
    assert_type(index.encoder_spec, EncoderSpec)
    assert_type(index.analyzer, Analyzer)
    assert_type(index.passages, PassageSettings)
    assert_type(index.structures, StructureSettings)
    index.close()


def search(folder: Path) -> Iterator[list[Hit]]:
    variant: BM25Variant = "okapi"
    settings = SearchSettings(
        mode="bm25", fusion=FusionSettings("rrf"), bm25=BM25Settings(variant, k1=1.5)
    )
    loaded = Encoder.load(EncoderSettings(model="all-MiniLM-L6-v2", pooling="cls"))
    assert_type(loaded.encode(["a text"]), NDArray[np.float32])
    with Index.open(folder, encoder=loaded, lock_timeout=5.0) as index:
        index.search("a text", settings, reranker=load_reranker("reranker"))
        yield from index.search_many(["one", "two"], settings, k=3)
        index.query_map = load_query_map("reranker")
        assert_type(index.query_map, QueryMap)
        ready = QueryVectors(loaded.encode(["one"], query=True), loaded.spec)
        yield from index.search_many(["one"], ready=ready)
    own: TextEncoder = Remote()
    with Index.create(folder, encoder=own, analyzer=AnalyzerSettings("german")) as index:
        index.add(["a text"], vectors=np.ones((1, 8), np.float32))
        document = ReadyDocument(Document("1", "a"), [(0, 1)], np.ones((1, 8), np.float32))
        index.add([document, *read_shards("shards", [0])])


def move(folder: Path) -> None:
    try:
        reader = CorpusReader(["corpus.jsonl"], Fields(text="body"), on_error="skip")
        with recreated(folder, parse_encoder("::lc:0,6"), overlap=24) as new:
            new.add(reader, prune=True)
        export_jsonl(folder, Path("out.jsonl"), vectors=True)
        export_npy(folder, Path("out.npy"))
        import_documents("other", "out.jsonl")
        shards = encode_shards(
            CorpusReader("t.csv", form=TextForm("cp1252", ";", header=False)),
            "shards",
            workers=2,
            ray="auto",
        )
        assert_type(shards, EncodedShards)
        import_documents("other", "shards", shards=range(shards.shards))
        snapshot_index(folder, "copy")
        store: Store = open_store(folder)
        assert_type(store.size(), int)
        mode: Mode = "dense"
        with Index.open(store) as index:
            assert_type(index.search("a text", mode=mode), Hits)
        assert_type(reindexed(folder, index_type="hnsw"), IndexingReport | None)
        assert_type(verify(folder), list[str])
        assert_type(remains(folder), dict[Path, str])
    except FilterError as error:
        assert_type(error.position, int | None)
        point_at("year >", error.position or 0)
    except (DamagedIndexError, IndexLockedError) as error:
        assert_type(error.exit_code, int)
    except RetrieverError:
        raise


def measure(folder: Path) -> None:
    ranked = rank_systems("wikiqa", ["bm25", "cosine"], QASettings(measures=("AP", "nDCG@10")))
    assert_type(ranked.write(folder), list[Path])
    similarity = score_sts(["stsb"], ["all-MiniLM-L6-v2", "::lc:0,6"], STSSettings())
    assert_type(similarity.text(), str)
    assert_type(search_layers("dev.tsv", LayerSearchSettings(max_layers=4)), LayerSearchResult)
    run, qrels = read_run("out.run"), read_qrels("qrels.tsv")
    assert_type(evaluate(run, qrels, ["RR"]), Evaluation)
    assert_type(compare({"ours": run, "theirs": "their.run"}, qrels, ["AP"]), Comparison)
