"""The loop of a run, with the arguments that tests vary laid side by side."""

from dpgen_jax.run import loop


def listener(**methods):
    """Returns a listener with functions in the place of its methods, by their names."""
    made = loop.Listener()
    assert all(hasattr(made, name) for name in methods)
    vars(made).update(methods)
    return made


def train(method, records, state, layout, ledger, bits, *, steps, steps_per_call=0, **methods):
    """Returns the state after `steps` rounds; methods: those of a `loop.Listener`."""
    job = loop.Job(method, layout, ledger, bits, steps_per_call)
    return loop.train(job, records, state, steps, listener(**methods))
