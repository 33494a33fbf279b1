"""From hidden states to one vector: choice of layers, pooling, SBERT-WK."""
