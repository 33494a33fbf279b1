"""Fine-tuning an encoder: settings, objectives, examples, and the folder it makes."""
