"""Indexing: changes of documents, the queue of the encoder, and commits."""
