"""The commands of `retriever eval`, one per file."""
