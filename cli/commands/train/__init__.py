"""The commands of `retriever train`, one per file."""
