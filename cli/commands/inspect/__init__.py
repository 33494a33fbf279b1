"""The commands of `retriever inspect`, one per file."""
