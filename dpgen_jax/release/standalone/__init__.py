"""The code of an exported generator: it needs this folder, NumPy, and no other package."""
