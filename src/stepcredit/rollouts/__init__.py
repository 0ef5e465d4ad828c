"""From environments to rollouts: prompts, responses, collection, branching."""
