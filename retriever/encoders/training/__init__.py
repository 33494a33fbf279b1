"""Fine-tuning an encoder: settings, objectives, adapters, examples, and the folder it makes."""
