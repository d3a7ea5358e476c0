"""A pool for programs that schedule on Ray themselves: placement group, bundles and devices of each role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from roost.engine.backend import Position
from roost.engine.cluster import Cluster
from roost.errors import ClusterError, PlacementError, counted
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.resources import ACCELERATOR
from roost.placement.placement import Device

ROLES = ("actor", "critic", "rollout")

if TYPE_CHECKING:
    from roost.engine.pool import Pool


class RoleGroup:
    """The accelerators of one role. Unpacks as `(placement group, bundle of each position, device of each)`.

    Each position is a bundle of one accelerator and one CPU, so an actor that asks for a fraction in the bundle of
    position i sits on position i, whatever starts first. `options(i)` holds the options that say so to Ray.
    """

    def __init__(self, pool: Pool, role: str) -> None:
        self.pool, self.role = pool, role
        self.positions = pool.role(role)

    @property
    def placement_group(self) -> Any:
        return self.positions[0].bundle[0] if self.positions else None

    @property
    def bundles(self) -> list[int]:
        return [position.bundle[1] for position in self.positions]

    @property
    def devices(self) -> list[int | str]:
        """The measured devices: numbers, or names if a device's name is not a number."""
        return [int(one.name) if one.name.isdecimal() else one.name for one in self.positions]

    @property
    def shares(self) -> list[float]:
        """The role's share of each of its accelerators; 0 where none of its components runs."""
        devices = [Device(one.node, ACCELERATOR, "", one.device) for one in self.positions]
        charges = [self.pool.plan.charges.get(device, {}) for device in devices]
        return [
            sum(charge for name, charge in here.items() if name.partition(".")[0] == self.role)
            for here in charges
        ]

    @property
    def nodes(self) -> list[int]:
        return [position.node for position in self.positions]

    def options(self, first: int, count: int = 1) -> dict[str, Any]:
        """Options for a Ray actor on `count` positions from `first` on, which must be on one node.

        The actor is charged the role's share of the first position.
        """
        from ray.util.scheduling_strategies import (
            PlacementGroupSchedulingStrategy,  # not before Ray is wanted
        )

        held = self.pool.role(self.role)  # raises after the release: an actor in that group would never start
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (first, count))
        chosen = held[first : first + count] if whole and first >= 0 else ()
        if not chosen or len(chosen) < count or len({one.node for one in chosen}) > 1:
            raise self._refused(first, count, chosen)
        group, bundle = chosen[0].bundle
        share = self.shares[first]
        kind = accelerator_kind(self.pool.cluster.nodes[chosen[0].node].accelerators.type)
        resources = (
            {"num_gpus": share} if kind.ray_resource == "GPU" else {"resources": {kind.ray_resource: share}}
        )
        several: dict[str, Any] = {}
        if count > 1:  # Ray shows an actor only the accelerator of its bundle
            variables = kind.visible([one.name for one in chosen])
            variables[f"RAY_EXPERIMENTAL_NOSET_{kind.visible_variable}"] = "1"
            several = {"runtime_env": {"env_vars": variables}}
        return {
            "num_cpus": share,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=bundle, placement_group_capture_child_tasks=True
            ),
            **resources,
            **several,
        }

    def _refused(self, first: Any, count: Any, chosen: Sequence[Position]) -> PlacementError:
        nodes = sorted({one.node for one in chosen})
        span = f"they are on nodes {nodes[0]} and {nodes[-1]}" if len(nodes) > 1 else ""
        return PlacementError(
            code="RP102",
            what=f"no actor can have {count!r} position{'s' * (count != 1)} from {first!r} on"[:200],
            why=span or f"there are {len(self.positions)}, counted from 0",
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.placement_group, self.bundles, self.devices))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return (self.placement_group, self.bundles, self.devices)[index]

    def __repr__(self) -> str:
        return f"<{counted(len(self.positions), 'position')} on nodes {sorted(set(self.nodes))}>"


class PlacementGroups(dict[str, RoleGroup | None]):
    """The roles of a pool by name, and the pool and cluster they belong to. A role that does not exist is None."""

    def __init__(self, pool: Pool, owns_cluster: bool) -> None:
        slices = pool.layout.slices()
        super().__init__({role: RoleGroup(pool, role) if role in slices else None for role in ROLES})
        self.pool, self.plan = pool, pool.plan
        self._owns_cluster = owns_cluster

    @property
    def cluster(self) -> Cluster:
        return self.pool.cluster

    def release(self) -> None:
        """Give back the accelerators, and end the cluster if `create_placement_groups` made it."""
        self.pool.release()
        if self._owns_cluster:
            self.cluster.shutdown()


def create_placement_groups(
    args: Any, cluster: Cluster | None = None, timeout: float = 300.0
) -> PlacementGroups:
    """Reserve the accelerators that the flags ask for, and assign them to roles.

    `args` is the result of `argparse`, or a `Layout`. The default cluster is the one this process has open, or a new
    one over all nodes of the Ray that `Cluster` would connect to.
    """
    if cluster is not None and not isinstance(cluster, Cluster):
        raise ClusterError(
            code="RE103", what=f"{cluster!r} is not a cluster"[:200], remedy="pass a roost.Cluster"
        )
    open_already = cluster or Cluster.opened()
    made = open_already or Cluster(cluster_cfg={}, timeout=timeout)
    try:
        if not made.node_infos:
            what = "an inline cluster has no placement groups"
            raise ClusterError(code="RE103", what=what, remedy="use a live cluster")
        return PlacementGroups(made.pool(args, timeout, apart=True), owns_cluster=open_already is None)
    except BaseException:
        if open_already is None:
            made.shutdown()
        raise
