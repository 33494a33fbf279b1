"""Probing sets: SentEval's files, and sets made from a corpus."""
