"""Slow, obvious loops written from the definitions of docs/methods, and the random batches they are compared on."""
