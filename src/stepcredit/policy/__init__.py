"""Policies: linear and transformer; generation, losses, update, supervised start, checkpoints."""
