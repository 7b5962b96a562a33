"""Damaged input for every reader of the package, and a process that may die of it."""
