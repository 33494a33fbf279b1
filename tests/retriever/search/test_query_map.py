"""Searches with a query map equal searches for vectors that are mapped by hand."""

from dataclasses import replace

import numpy as np
import pytest

from retriever import Index, QueryMap, QueryVectors, load_query_map, load_reranker
from retriever.errors import ConfigError, EncoderMismatchError, ModelError
from retriever.rerankers import HeadReranker, TrainedHead
from retriever.rerankers.head import QUERY_MAP
from retriever.rerankers.scorers import InteractionHead
from retriever.training import HeadSettings, HeadTrainingSettings
from tests.retriever.search.test_reranking import QUERIES, random_documents

ALL = 1000

pytestmark = pytest.mark.usefixtures("one_thread")


def saved(folder, spec, trial, interaction="bilinear", head="linear"):
    import torch

    torch.manual_seed(0)
    settings = HeadSettings(interaction, head, initial="random")
    trained = TrainedHead(InteractionHead(settings, spec.dimensions), HeadTrainingSettings(), (), 0)
    HeadReranker.of(spec, trained, {QUERY_MAP: trial}).save(folder)
    return folder


@pytest.fixture
def folder(tmp_path, fake_encoder):
    return saved(tmp_path / "head", fake_encoder.spec, {"better": True})


@pytest.fixture(params=["flat", "hnsw"])
def index(request, tmp_path, fake_encoder):
    with Index.create(tmp_path / "index", index_type=request.param) as index:
        index.add(random_documents(60, 1))
        yield index


def by_hand(folder, encoder):
    matrix = load_query_map(folder).matrix
    vectors = encoder.encode(QUERIES, query=True)
    products = np.array([[np.dot(u, column) for column in matrix.T] for u in vectors])
    products /= np.linalg.norm(products, axis=1, keepdims=True)
    return QueryVectors(products.astype(np.float32), encoder.spec)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_hits_with_query_map_equal_those_of_mapped_vectors(index, folder, fake_encoder, mode):
    ready = by_hand(folder, fake_encoder)
    expected = list(index.search_many(QUERIES, ready=ready, mode=mode, k=7))
    plain = list(index.search_many(QUERIES, mode=mode, k=7))
    index.query_map = load_query_map(folder)
    hits = list(index.search_many(QUERIES, mode=mode, k=7))
    brief = list(index.rank(QUERIES, mode=mode, k=7))
    assert brief == [[(hit.id, hit.score) for hit in one] for one in hits]
    assert [[hit.id for hit in one] for one in hits] == [[h.id for h in one] for one in expected]
    assert hits != plain
    for one, other in zip(hits, expected, strict=True):
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-5)
    (scored, *_) = index.candidates(QUERIES)
    best = max(expected[0], key=lambda hit: hit.dense)
    assert scored.dense.max() == pytest.approx(best.dense, abs=1e-5)


def test_the_whole_index_ranks_as_the_head_ranks_it_and_a_reranker_reads_plain_vectors(
    index, folder
):
    reranker = load_reranker(folder)
    expected = index.search(QUERIES[0], mode="dense", k=ALL, depth=ALL, reranker=reranker)
    index.query_map = load_query_map(folder)
    hits = index.search(QUERIES[0], mode="dense", k=ALL)
    # A reranker scores the passage that was found; of several passages the map may find another.
    single = {document.id for document in index if len(index.spans(document.id)) == 1}
    assert len(single) > 30
    found, wanted = ([hit.id for hit in one if hit.id in single] for one in (hits, expected))
    assert found == wanted
    again = index.search(QUERIES[0], mode="dense", k=ALL, depth=ALL, reranker=reranker)
    first, second = ({h.id: h.score for h in one if h.id in single} for one in (again, expected))
    assert first == second
    assert index.search(QUERIES[0], mode="bm25")


def test_query_map_keeps_vector_lengths_and_zero_vector():
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    vectors[1] = 0
    mapped = QueryMap(np.random.default_rng(1).normal(size=(4, 4)))(vectors)
    np.testing.assert_allclose(*(np.linalg.norm(one, axis=1) for one in (mapped, vectors)), 1e-6)
    np.testing.assert_array_equal(QueryMap(np.eye(4))(vectors[1:2]), vectors[1:2])


def test_another_encoder_is_refused(index, folder, tmp_path, fake_encoder):
    other = saved(
        tmp_path / "other", replace(fake_encoder.spec, weights="1" * 64), {"better": True}
    )
    with pytest.raises(EncoderMismatchError, match="which the query map was trained with"):
        index.query_map = load_query_map(other)
    assert index.query_map is None


@pytest.mark.parametrize(
    ("trial", "kind", "error", "said"),
    [
        ({"better": False}, ("bilinear", "linear"), ConfigError, "use the folder with --rerank"),
        (None, ("bilinear", "linear"), ConfigError, "found no such result of its training"),
        ({"better": True}, ("uv", "mlp"), ConfigError, "bilinear:linear"),
    ],
)
def test_head_without_proven_query_map_is_refused(tmp_path, fake_encoder, trial, kind, error, said):
    folder = saved(tmp_path / "head", fake_encoder.spec, trial, *kind)
    with pytest.raises(error, match=said):
        load_query_map(folder)


def test_a_folder_without_a_reranker_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"reranker\.json, .* found neither"):
        load_query_map(tmp_path)
