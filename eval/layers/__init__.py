"""BERT-LC's search for the best set of layers."""
