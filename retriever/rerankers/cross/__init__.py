"""Cross-encoders, fine-tuned in domain."""
