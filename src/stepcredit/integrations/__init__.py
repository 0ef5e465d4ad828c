"""stepcredit inside other stacks: verl, TRL, Gymnasium and more."""
