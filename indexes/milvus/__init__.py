"""The store that is a Milvus server, or a file of Milvus Lite.

Rows are never changed where a reader could see it. A document is one row or more of the collection
of documents, each passage one row of that of passages, and what a commit adds to the number of
passages that hold a term is one row of that of terms. A row says with which commit it came and with
which it goes (`indexes.milvus.collections`). A commit is one row more in the collection of states,
which names the commit's number and all statistics (`indexes.milvus.state`): readers that have read
it see every row of that commit, and others none.
"""

from indexes.milvus.store import MilvusStore as MilvusStore
