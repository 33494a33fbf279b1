"""Transformer backbones: loading, batching, hidden states, heads."""
