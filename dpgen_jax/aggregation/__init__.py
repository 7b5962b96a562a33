"""Bounds, noise, schedules and decoders, and the mechanisms that combine them."""
