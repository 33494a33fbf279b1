"""Architectures of transformers, each in a module with a function `read`."""
