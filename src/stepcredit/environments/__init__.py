"""Environments: protocol, catalogue and the benchmarks."""
