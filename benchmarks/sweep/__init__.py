"""Sweeps over a method's configuration; `python -m benchmarks.sweep` runs one."""
