"""ALFWorld's household: our own engine of its rules, an expert, a generator of games."""
