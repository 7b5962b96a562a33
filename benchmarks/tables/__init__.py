"""Generators of tables side by side: the methods of this library and its peers, on many tables."""
