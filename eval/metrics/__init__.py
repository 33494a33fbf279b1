"""Measures on runs, pools and pairs, and tests of their differences."""
