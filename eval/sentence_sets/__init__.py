"""Data sets of sentences: similarity, transfer and probing, their forms and their makers."""
