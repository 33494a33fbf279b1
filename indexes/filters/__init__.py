"""Metadata filters: grammar, SQL, columns, and which passages they allow."""
