"""What a model does between its layers: similar states, uneven words and weights."""
