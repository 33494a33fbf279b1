"""Documents and vectors in and out: export, import, other stores, shards."""
