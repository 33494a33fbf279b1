"""Encoders behind a URL, in the form of OpenAI's embeddings."""
