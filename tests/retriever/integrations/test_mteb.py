"""The search model of MTEB, on a task whose data is local."""

from __future__ import annotations

import pytest

pytest.importorskip("mteb")

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import SearchProtocol

from retriever import ConfigError, SearchSettings
from retriever.integrations.mteb import IndexSearch

CORPUS = [
    {"id": "a", "title": "Fruit", "text": "apples and pears"},
    {"id": 'quoted "b\\', "title": "", "text": "pears only"},
    {"id": "c", "title": "", "text": "plums and cherries"},
    {"id": "d", "title": "", "text": "a house in the garden"},
]
QUERIES = [{"id": "q1", "text": "pears only"}, {"id": "q2", "text": "house garden"}]
QRELS = {"q1": {'quoted "b\\': 1}, "q2": {"d": 1, "a": 1}}


class LocalTask(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="LocalFruit",
        description="Four documents.",
        reference=None,
        dataset={"path": "local/none", "revision": "1"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
    )

    def load_data(self, **_):
        test = {
            "queries": Dataset.from_list(QUERIES),
            "corpus": Dataset.from_list(CORPUS),
            "relevant_docs": QRELS,
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": test}}
        self.data_loaded = True


@pytest.fixture
def model(tmp_path, fake_encoder):
    made = IndexSearch(tmp_path / "indexes", settings=SearchSettings(mode="bm25"), overlap=4)
    yield made
    made.close()


@pytest.fixture
def indexed(model):
    metadata = LocalTask.metadata
    model.index(
        Dataset.from_list(CORPUS), task_metadata=metadata, hf_split="test", hf_subset="default"
    )
    return model


def test_mteb_task_scores_equal_hand_computed_ndcg(model):
    assert isinstance(model, SearchProtocol)
    result = mteb.evaluate(model, LocalTask(), cache=None, overwrite_strategy="always")
    scores = result[0].scores["test"][0]
    # The first query's document is first. Of the second's, one is first and one is not found:
    # 1 / (1 + 1 / log2(3)).
    assert scores["ndcg_at_10"] == pytest.approx((1 + 1 / 1.63093) / 2, abs=1e-4)
    assert result.model_name == "layer-retriever/default-bm25"


def test_mteb_reranking_task_ranks_only_its_candidates(indexed):
    given = {"q1": ["a", 'quoted "b\\'], "q2": []}
    hits = indexed.search(Dataset.from_list(QUERIES), top_k=10, top_ranked=given)
    assert list(hits["q1"]) == ['quoted "b\\', "a"]
    assert hits["q2"] == {}


def test_mteb_instruction_is_appended_to_query(indexed):
    query = {"id": "q", "text": "garden", "instruction": "plums"}
    assert set(indexed.search(Dataset.from_list([query]), top_k=9)["q"]) == {"c", "d"}


def test_an_unchanged_corpus_is_not_encoded_again(indexed, fake_encoder):
    encoded = fake_encoder.encoded
    indexed.index(
        Dataset.from_list(CORPUS[:3]),
        task_metadata=LocalTask.metadata,
        hf_split="test",
        hf_subset="default",
    )
    assert fake_encoder.encoded == encoded
    assert indexed.search(Dataset.from_list(QUERIES), top_k=9)["q2"] == {}


def test_mteb_search_before_index_is_refused(model):
    with pytest.raises(ConfigError, match="index first"):
        model.search(Dataset.from_list(QUERIES), top_k=1)
