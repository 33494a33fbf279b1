"""The commands of `retriever make`, one per file."""
