"""What happens between the layers of a model."""
