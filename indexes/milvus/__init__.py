"""The store that is a Milvus server, or a file of Milvus Lite: a collection with a row a passage.

`indexes.milvus.collection` says what a row holds.
"""

from indexes.milvus.store import MilvusStore as MilvusStore
