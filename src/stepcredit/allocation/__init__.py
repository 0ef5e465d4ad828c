"""Which tasks to play and which states to branch: mixture fit, Root, Branch, semantic evidence."""
