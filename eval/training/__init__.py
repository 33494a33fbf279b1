"""Fine-tuning encoders on data sets, files of pairs and corpora."""
