"""Names from other libraries, each with the right name: data for error messages.

`tests/retriever/test_guesses.py` tries each of them.
"""

from __future__ import annotations

# Names of methods and attributes in other libraries, by class.
ATTRIBUTES = {
    "Index": {
        "upsert": "add, which replaces documents of equal ids",
        "insert": "add",
        "add_documents": "add",
        "add_texts": "add",
        "similar": "more_like",
        "similarity_search": "search",
        "query": "search",
        "batch_search": "search_many",
        "batchsearch": "search_many",
        "peek": "browse",
        "ids": "no list of ids: [document.id for document in index]",
        "optimize": "compact",
        "embed": "encoder.encode",
        "to_pandas": "no table of its documents: pandas.DataFrame(index)",
        "reset": "clear",
        "save": "no need of saving: a change is durable when its call returns",
        "persist": "no need of saving: a change is durable when its call returns",
        "sync": "refresh",
    },
    "Encoder": {
        "embed": "encode",
        "embed_documents": "encode_document",
        "embed_query": "encode_query",
        "encode_passage": "encode_document",
        "encode_queries": "encode_query",
        "encode_corpus": "encode_document",
        "get_sentence_embedding_dimension": "dimensions",
        "get_embedding_dimension": "dimensions",
        "device": "no device to read: Encoder.load(device=...) chooses it",
        "similarity_pairwise": "similarity, of all pairs",
        "dimension": "dimensions",
        "max_seq_length": "spec.max_length",
        "model_name": "spec.model",
        "tokenizer": "tokenize",
    },
    "Hit": {
        "content": "passage, also as text",
        "page_content": "passage, also as text",
        "document": "passage, and the index the whole document: index[hit.id]",
        "distance": "score; higher is better",
        "similarity": "score",
        "doc_id": "id",
    },
}
# Names of keywords in other libraries.
KEYWORDS = {
    "top_k": "k",
    "topk": "k",
    "num_results": "k",
    "max_results": "k",
    "limit": "k",
    "n_results": "k",
    "n": "k",
    "filter": "where",
    "filters": "where",
    "rerank": "reranker",
    "embeddings": "vectors",
}
# Keywords of sentence-transformers' `encode`: values that change nothing, and the remedy for other
# values.
ENCODE_KEYWORDS: dict[str, tuple[tuple[object, ...], str]] = {
    "convert_to_numpy": ((None, True), "use convert_to_tensor=True for tensors"),
    "show_progress_bar": ((None, True, False), "no bar is shown"),
    "precision": ((None, "float32"), "an index chooses its format with index_type='ivf-sq8'"),
    "output_value": ((None, "sentence_embedding"), "use Encoder.hidden_states"),
    "device": ((None,), "use Encoder.load(device=...)"),
    "pool": ((None,), "use `retriever encode --shards DIR --workers N`"),
    "chunk_size": ((None,), "use batch_size"),
    "prompt": ((None,), "use Encoder.load('MODEL::passage-prompt=TEXT') or query-prompt"),
    "truncate_dim": ((None,), "use Encoder.load('MODEL::dimensions=N')"),
}
