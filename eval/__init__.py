"""What is good: metrics and run files."""
