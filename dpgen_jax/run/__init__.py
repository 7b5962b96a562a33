"""A run: its stages, its loop and its folder."""
