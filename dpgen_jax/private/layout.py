"""How units lie on devices."""

from __future__ import annotations

import dataclasses

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dpgen_jax.core.types import PyTree, UserError

AXIS = "units"
"""The name of the mesh axis that units lie along."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How units lie on devices. It changes speed and memory, never a vote sum or an epsilon.

    Units are padded to a multiple of chunk x devices x cohorts; padded units cast zero votes. Row r
    of a device has one unit of every cohort, so those that a round queries lie at equal distances.
    Where units are sampled for every round, what is laid out are the places of a sampled batch, and
    every device has the records of all units.

    Attributes:
        n_units: U.
        chunk: Units that are queried at once.
        devices: The devices.
        parallel: "shard_map", or "pmap": the same per-device function under `jax.pmap`.
        n_cohorts: Of the mechanism's schedule.
        sampled: Whether units are sampled into places.

    Raises:
        UserError: A field is outside its range.
    """

    n_units: int
    chunk: int
    devices: tuple[jax.Device, ...]
    parallel: str = "shard_map"
    n_cohorts: int = 1
    sampled: bool = False

    def __post_init__(self) -> None:
        if self.parallel not in ("shard_map", "pmap"):
            raise UserError(f"parallel is {self.parallel!r}; use 'shard_map' or 'pmap'")
        if self.chunk < 1 or not self.devices:
            raise UserError(f"chunk {self.chunk} on {len(self.devices)} devices; at least 1 each")

    @property
    def padded(self) -> int:
        """The number of units with padding."""
        multiple = self.chunk * len(self.devices) * self.n_cohorts
        return -(-self.n_units // multiple) * multiple

    @property
    def mesh(self) -> jax.sharding.Mesh:
        """The mesh of the devices, with one axis."""
        return jax.make_mesh((len(self.devices),), (AXIS,), axis_types=(AxisType.Auto,),
                             devices=self.devices)

    @property
    def by_unit(self) -> NamedSharding:
        """The sharding of arrays whose leading axis is the unit axis."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def fold(self, tree: PyTree) -> PyTree:
        """Returns a tree of [U, ...] leaves in the form that the per-device function takes.

        `pmap` wants [devices, U / devices, ...]; `shard_map` takes them as they are.

        Args:
            tree: Leaves [U, ...]; it is used up.
        """
        if self.parallel == "shard_map":
            return tree
        shape = (len(self.devices), self.padded // len(self.devices))
        fold = jax.jit(lambda t: jax.tree.map(lambda a: a.reshape(shape + a.shape[1:]), t),
                       out_shardings=self.by_unit, donate_argnums=0)
        return fold(tree)

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of arrays that every device has as a whole."""
        return NamedSharding(self.mesh, PartitionSpec())
