"""Evaluation protocols, intervals, fidelity to exact advantages."""
