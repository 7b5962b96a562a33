"""Networks, their losses and optimisers.

Two conventions. A public network that generates records is a `flax.linen.Module`, behind
`pair.Generator`. A network of a unit, or one whose gradient is computed record by record, is a
frozen dataclass with `init(key) -> params` and `apply(params, x, labels) -> scores`, written for
one unit and `vmap`ped over units: its parameters are drawn in one or two draws, since a draw for
each takes as long to compile as a training step, and are in a flat dict whose names are those of
checkpoints.
"""
