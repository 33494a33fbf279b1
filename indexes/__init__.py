"""Where it is kept: document store, segments, vectors, postings, commit and verification."""
