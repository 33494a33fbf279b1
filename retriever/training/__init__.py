"""What all trainings share: sampling, the loop, averaged weights, checkpoints."""
