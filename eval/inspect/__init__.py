"""What a model does between its layers: similar states, uneven words, weights, sensitivity."""
