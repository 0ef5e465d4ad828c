"""Environments of others as suites of ours, and ours as theirs; every package is imported when it is used."""
