"""Sources of an index: what it remembers of files, and which of them changed."""
