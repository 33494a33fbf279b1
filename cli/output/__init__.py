"""Tables, hits, progress and JSON."""
