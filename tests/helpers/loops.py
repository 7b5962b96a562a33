"""The loop of a run, with the arguments that tests vary laid side by side."""

from dpgen_jax.run import loop


def train(method, records, state, layout, ledger, bits, *, steps, steps_per_call=0, **hooks):
    """Returns the state after `steps` rounds; hooks: the fields of `loop.Hooks`."""
    job = loop.Job(method, layout, ledger, bits, steps_per_call)
    return loop.train(job, records, state, steps, loop.Hooks(**hooks))
