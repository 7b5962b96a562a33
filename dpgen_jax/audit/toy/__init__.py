"""A method of a few operations, whose units are adversaries, and the attacks on runs of it."""
