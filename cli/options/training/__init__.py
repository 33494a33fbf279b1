"""How models are trained: their optimization, their triples, and the trainings of `eval qa`."""
