"""Privacy accounting on the host: it uses events and integers, never arrays of records or jax."""
