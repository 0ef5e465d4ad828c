"""Episode, Turn, Turns, Credit, errors and rollout files; imports nothing else of ours."""
