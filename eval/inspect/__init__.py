"""Inspection of a model's layers: similarity of states, variance and weights of words."""
