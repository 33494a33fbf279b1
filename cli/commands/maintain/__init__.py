"""Commands that reshape an index."""
