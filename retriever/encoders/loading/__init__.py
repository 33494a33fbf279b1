"""From an encoder that is asked for to one that runs: the choice, its settings, loading."""
