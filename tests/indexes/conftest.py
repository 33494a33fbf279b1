"""Puts the samples in this folder on the path of the tests below it."""
