"""What both trainings share: triples, averaged weights, checkpoints."""
