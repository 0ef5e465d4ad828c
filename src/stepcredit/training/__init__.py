"""Configuration and the training loop."""
