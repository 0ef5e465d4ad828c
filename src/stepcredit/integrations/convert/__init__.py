"""Logs of other training stacks as rollout files, and credit written back into them."""
