"""Folders of models on this machine: where they are, what they say, and those made here."""
