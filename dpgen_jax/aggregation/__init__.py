"""Bounds, noise, schedules and decoders, and the mechanisms that are made of them."""
