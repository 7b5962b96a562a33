"""Measurements of a release: utility, fidelity, and membership attacks; and the report on them.

Everything here runs after training, on a release and on records that the data holder names. Scores
that are computed from real records are not covered by epsilon, and `metrics.json` lists them.
"""
