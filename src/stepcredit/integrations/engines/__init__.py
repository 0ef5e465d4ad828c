"""What every training engine needs: turns as plain rows, tokens of turns, policies behind an engine, environments."""
