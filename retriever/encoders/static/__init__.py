"""Encoders without a forward pass: averages of word vectors, SIF, uSIF, p-means."""
