"""A script of a user of the whole API; `mypy --strict` must accept it. It is never run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import retriever
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


class Remote:
    """An encoder that the user wrote."""

    name = "remote"
    dimensions = 8

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), self.dimensions), np.float32)


def combine(texts: Sequence[str]) -> retriever.Encoder:
    settings = retriever.MetaSettings(
        "unsup", pooling="mean", training=retriever.UnsupSettings(weights=False)
    )
    sources: list[str | retriever.Encoder] = ["all-MiniLM-L6-v2", retriever.Encoder.load("sif")]
    return retriever.fit_meta(texts, sources, "both", settings, dev=read_pairs([Path("dev.tsv")]))


def make(folder: str) -> None:
    index = retriever.Index.create(
        folder, model="all-MiniLM-L6-v2::lc:0,6", language="german", on_long="truncate"
    )
    assert_type(index, retriever.Index)
    report = index.add(
        [
            "a text",
            {"id": "42", "text": "…", "year": 2020},
            retriever.Document("43", "a text", title="t"),
        ],
        vectors=None,
        commit=retriever.CommitSettings(passages=1000),
    )
    assert_type(report, retriever.IndexingReport)
    hits = index.search("a question", k=5, mode="hybrid", where="year >= 2000", alpha=0.7)
    assert_type(hits, retriever.Hits)
    for hit in hits:
        assert_type(hit.score, float)
        assert_type(hit.bm25_rank, int | None)
        assert_type(hit.place, retriever.Place | None)
        excerpt = index.excerpt(hit, before=2)
        assert_type(excerpt, retriever.Excerpt)
    assert_type(index["42"], retriever.Document)
    assert_type(index["42"].outline, tuple[retriever.Mark, ...])
    assert_type(index.refresh(), retriever.RefreshReport)
    for document in index:
        assert_type(document.metadata["year"] == 2020, bool)
    index.update("42", metadata={"year": 2021, "tags": ["a"]})
    assert_type(index.delete(["42"]), int)
    index.rebuild(retriever.StructureSettings("ivf"))
    assert_type(index.plan(retriever.StructureSettings()).memory_bytes, int)
    assert_type(index.reindex(model="all-MiniLM-L6-v2"), retriever.IndexingReport | None)
    assert_type(index.info(), dict[str, Any])
    assert_type(index.verify(), list[str])
    counts = index.facets(["lang"], "a question", where="year >= 2000")
    assert_type(counts, retriever.Facets)
    assert_type(counts.fields["lang"], retriever.Facet)
    assert_type(counts.fields["lang"].values[0], retriever.FacetValue)
    assert_type(index.fields(), list[retriever.FieldSummary])
    assert_type(index.more_like("42", k=3, mode="dense"), retriever.Hits)
    assert_type(index.encoder_spec, retriever.EncoderSpec)
    assert_type(index.analyzer, retriever.Analyzer)
    assert_type(index.passages, retriever.PassageSettings)
    assert_type(index.structures, retriever.StructureSettings)
    index.close()


def search(folder: Path) -> Iterator[list[retriever.Hit]]:
    variant: retriever.BM25Variant = "okapi"
    settings = retriever.SearchSettings(
        mode="bm25",
        fusion=retriever.FusionSettings("rrf"),
        bm25=retriever.BM25Settings(variant, k1=1.5),
    )
    loaded = retriever.Encoder.load(
        retriever.EncoderSettings(model="all-MiniLM-L6-v2", pooling="cls")
    )
    assert_type(loaded.encode(["a text"]), NDArray[np.float32])
    with retriever.Index.open(folder, encoder=loaded, lock_timeout=5.0) as index:
        index.search("a text", settings, reranker=retriever.load_reranker("reranker"))
        yield from index.search_many(["one", "two"], settings, k=3)
        assert_type(next(index.rank(["one"])), list[tuple[str, float]])
        index.query_map = retriever.load_query_map("reranker")
        assert_type(index.query_map, retriever.QueryMap)
        index.synonyms = retriever.load_synonyms("synonyms.txt")
        index.synonyms = retriever.Synonyms([["car", "automobile"]])
        assert_type(index.expansions("Koeln"), list[retriever.Expansion])
        ready = retriever.QueryVectors(loaded.encode(["one"], query=True), loaded.spec)
        yield from index.search_many(["one"], ready=ready)
    own: retriever.TextEncoder = Remote()
    with retriever.Index.create(
        folder, encoder=own, analyzer=retriever.AnalyzerSettings("german")
    ) as index:
        index.add(["a text"], vectors=np.ones((1, 8), np.float32))
        document = retriever.ReadyDocument(
            retriever.Document("1", "a"), [(0, 1)], np.ones((1, 8), np.float32)
        )
        index.add([document, *retriever.read_shards("shards")])


def move(folder: Path) -> None:
    try:
        reader = retriever.CorpusReader(
            ["corpus.jsonl"], retriever.Fields(text="body"), on_error="skip"
        )
        with retriever.recreated(folder, retriever.parse_encoder("::lc:0,6"), overlap=24) as new:
            new.add(reader, prune=True)
        retriever.export_jsonl(folder, Path("out.jsonl"), vectors=True)
        retriever.export_npy(folder, Path("out.npy"))
        retriever.import_documents("other", "out.jsonl")
        shards = retriever.encode_shards(
            retriever.CorpusReader("t.csv", form=retriever.TextForm("cp1252", ";", header=False)),
            "shards",
            workers=2,
            ray="auto",
        )
        assert_type(shards, retriever.EncodedShards)
        retriever.import_documents("other", "shards")
        retriever.snapshot_index(folder, "copy")
        store: retriever.Store = retriever.open_store(folder)
        assert_type(store.size(), int)
        mode: retriever.Mode = "dense"
        with retriever.Index.open(store) as index:
            assert_type(index.search("a text", mode=mode), retriever.Hits)
        assert_type(retriever.reindexed(folder, index_type="hnsw"), retriever.IndexingReport | None)
        assert_type(retriever.verify(folder), list[str])
        assert_type(retriever.remains(folder), dict[Path, str])
    except retriever.FilterError as error:
        assert_type(error.position, int | None)
        retriever.point_at("year >", error.position or 0)
    except (retriever.DamagedIndexError, retriever.IndexLockedError) as error:
        assert_type(error.exit_code, int)
    except retriever.RetrieverError:
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


def misspell(index: retriever.Index, encoder: retriever.Encoder, hit: retriever.Hit) -> None:
    """A type checker sees typos: an ignored error that does not occur is itself an error."""
    index.serach("a question")  # type: ignore[attr-defined]
    encoder.encod(["a text"])  # type: ignore[attr-defined]
    assert hit.scor  # type: ignore[attr-defined]
