"""The parts that several methods share: configuration, training of teachers, critics, DP-SGD."""
