"""Other vector stores, read for `import`: documents and vectors, nothing encoded or unpickled."""
