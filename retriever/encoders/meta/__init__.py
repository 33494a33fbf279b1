"""Meta-embeddings: several encoders as one."""
