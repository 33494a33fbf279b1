"""The store that is a Milvus server, or a file of Milvus Lite; see `indexes.milvus.collection`."""
