"""Commands that move an index or its content."""
