"""Rerankers on frozen vectors: bilinear, concatenation and (u, v, u*v, |u-v|) heads."""
