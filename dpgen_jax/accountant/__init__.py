"""Host-only privacy accounting: sees events and integers, never an array of records, never jax."""
