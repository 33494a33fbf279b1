"""Shards made on Ray, in a cluster of processes of this machine."""

from __future__ import annotations

import os

import pytest

from retriever import encode_shards, read_shards
from retriever.errors import SourceError
from tests.retriever.index.collection_samples import random_documents

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
pytest.importorskip("ray", reason='Ray is missing: pip install "layer-retriever[ray]"')

pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster():
    """A head without processors and two nodes with one each."""
    from ray.cluster_utils import Cluster

    size = {"object_store_memory": 100_000_000}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **size}
    )
    made.killable = [made.add_node(num_cpus=1, **size) for _ in range(2)]
    yield made
    made.shutdown()


def test_a_node_that_is_killed_loses_and_repeats_no_text(tmp_path, model, cluster):
    documents = random_documents(20_000)

    class Killing:
        shards = 0

        def encoded(self, passages, pieces):
            pass

        def finished(self, reached):
            self.shards += 1
            if self.shards == 8:
                cluster.remove_node(cluster.killable[0], allow_graceful=False)

    done = encode_shards(
        documents, tmp_path / "ray", model, shard_size=500, ray=cluster.address, progress=Killing()
    )
    assert (done.shards, done.made, done.documents) == (40, 40, 20_000)
    assert [document.document for document in read_shards(tmp_path / "ray")] == documents
    encode_shards(documents, tmp_path / "here", model, shard_size=500)
    for path in (tmp_path / "here").glob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "ray" / path.name).read_bytes()


def test_error_on_ray_node_equals_error_of_single_process(tmp_path, model):
    documents = random_documents(50)
    with pytest.raises(SourceError, match="longer than the encoder's window of 12 tokens"):
        encode_shards(documents, tmp_path / "s", model, shard_size=10, on_long="error", ray="local")
    done = encode_shards(documents, tmp_path / "s", workers=2)
    assert done.shards == 5
