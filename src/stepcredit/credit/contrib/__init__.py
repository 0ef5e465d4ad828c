"""Contributed methods: tree and diversity variants, reduced to the part that assigns credit.

They are tested like every other method, but their sources leave more open than those of the core catalogue: each page
says what was chosen. Names, options and numbers here may change between minor versions.
"""
