"""Tiny runs of all methods, and a program that runs them and can be killed at any moment of it."""
