"""The parts of the audit of a run folder, see `dpgen_jax.audit.run_folder`."""
