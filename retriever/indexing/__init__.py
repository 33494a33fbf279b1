"""From documents to an index: passages, batches, import, export and reindexing."""
