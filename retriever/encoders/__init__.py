"""Text to vectors: models, pooling, batching."""
