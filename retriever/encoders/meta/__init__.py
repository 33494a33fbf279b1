"""Several encoders as one: a linear map of each source's words, then pooling."""
