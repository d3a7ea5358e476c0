"""The cluster a program runs on: live on Ray, or inline in one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roost.config.document import Document, load
from roost.config.plain import resolved
from roost.config.schema import OLDER_KEYS, ClusterConfig, validate
from roost.engine.locks.device_lock import DeviceLock, Locks, check_number, check_on, lock_on
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.ports.port_lease import PortLease
from roost.errors import ClusterError, ConfigurationError, Finding, error_for, render
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.inventory.ordering import NodeInfo

if TYPE_CHECKING:
    from roost.engine.group import LaunchOrder, WorkerGroup
    from roost.engine.pool import Pool
    from roost.engine.position import Position


log = logging.getLogger("roost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a driver asks for."""

    num_nodes: int | None
    config: ClusterConfig | None
    document: Document | None
    address: str | None
    job: str | None
    timeout: float
    whole_nodes: bool
    shape: str  # of an inline cluster


class Cluster:
    """Connects, finds out what is there, and starts workers.

    `Cluster(num_nodes=2)` or `Cluster(cluster_cfg=cfg.cluster)` in the driver; `Cluster()` attaches to the job
    that is running. A job holds the accelerators it uses, or with `whole_nodes=True` all accelerators of the
    nodes it uses, from the first launch on. With `inline=True` or ROOST_INLINE set, everything happens in this process.
    """

    NAMESPACE: ClassVar[str] = "roost"

    job: str
    inventory: Inventory
    master_addr: str
    master_port: int

    def __new__(cls, *args: Any, inline: bool | str | None = None, **kwargs: Any) -> Cluster:
        if cls is not Cluster:
            return super().__new__(cls)
        if inline or (
            inline is None and os.environ.get("ROOST_INLINE", "0").lower() not in ("", "0", "false")
        ):
            from roost.engine.inline import InlineCluster

            return super().__new__(InlineCluster)
        from roost.engine.live import LiveCluster

        return super().__new__(LiveCluster)

    def __init__(
        self,
        num_nodes: int | None = None,
        cluster_cfg: Any = None,
        *,
        address: str | None = None,
        job: str | None = None,
        timeout: float = 300.0,
        whole_nodes: bool = False,
        inline: bool | str | None = None,
    ) -> None:
        if num_nodes is None and cluster_cfg is None:
            self._attach(address, job)
            return
        config, document = read_cluster_section(cluster_cfg) if cluster_cfg is not None else (None, None)
        self._create(
            Wanted(
                num_nodes=check_num_nodes(num_nodes) or (config.num_nodes if config else None),
                config=config,
                document=document,
                address=address,
                job=job,
                timeout=timeout,
                whole_nodes=whole_nodes,
                shape=inline if isinstance(inline, str) else os.environ.get("ROOST_INLINE", ""),
            )
        )

    def _create(self, wanted: Wanted) -> None:
        """The driver's way in."""
        raise NotImplementedError

    def _attach(self, address: str | None, job: str | None) -> None:
        """The way in for every other process of a running job."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Refuse what is asked of a cluster that was shut down."""
        raise NotImplementedError

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.inventory.nodes

    @property
    def node_infos(self) -> list[NodeInfo]:
        """What was found out about each node, in order. Inline there is nothing to find out."""
        return []

    @property
    def num_nodes(self) -> int:
        return len(self.inventory.nodes)

    @property
    def num_accelerators(self) -> int:
        return self.inventory.num_accelerators

    @property
    def master_ip(self) -> str:
        return self.master_addr

    def adopt(self, groups: Mapping[str, NodeGroup]) -> None:
        """Know these node groups of a job too. One that is known already must hold the same, and keeps its environment."""
        known = self.inventory.groups
        other = [label for label in groups if label in known and not known[label].places_like(groups[label])]
        if other:
            raise ConfigurationError(
                Finding(
                    code="RI102",
                    what=f"the cluster knows another node group {other[0]!r}",
                    why="it was started with other node groups than the job was placed with",
                    remedy="start it with the job's section: Cluster(cluster_cfg=cfg.cluster)",
                )
            )
        new = {label: group for label, group in groups.items() if label not in known}
        if new:
            self.inventory = self.inventory.joined(new)
            self._tell_groups(new)

    def _tell_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        """Let the job's other processes know them."""

    def start_group(self, order: LaunchOrder) -> WorkerGroup:
        """Start the workers of an order; used by `launch`."""
        raise NotImplementedError

    def attach_group(self, name: str) -> WorkerGroup:
        """A group of this job that is running."""
        raise NotImplementedError

    def allocate(
        self,
        cls: type,
        worker_name: str,
        node_id: int,
        gpu_id: int | None,
        env_vars: Mapping[str, str] | None = None,
        cls_args: Sequence[Any] = (),
        cls_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """One actor of a plain class, pinned to a node and an accelerator; returns its handle."""
        raise NotImplementedError

    def lease_ports(
        self, node_rank: int, count: int = 1, consecutive: bool = False, timeout: float = 30.0
    ) -> PortLease:
        """Ports of any node, for the job: they are held until they are released or the job ends."""
        raise NotImplementedError

    def device_lock(
        self,
        node_rank: int,
        devices: Sequence[int | str],
        timeout: float = 60.0,
        hold_for: float | None = None,
    ) -> DeviceLock:
        """Lock devices of any node; waits for its turn, at most `timeout` seconds."""
        known = self.devices_on(node_rank)
        return lock_on(self.locks_on(node_rank), known.identify_all(devices), timeout, hold_for)

    def check_fence(self, node_rank: int, device: int | str, fence: int) -> None:
        """Raises unless this is the number of the lock held on the device now."""
        check_number(fence)
        known = self.devices_on(node_rank)
        check_on(self.locks_on(node_rank), known.identify(device), fence)

    def devices_on(self, node_rank: int) -> NodeDevices:
        """What can be locked on a node, by every name it has."""
        self.check_device(node_rank, None)
        infos = self.node_infos
        names = infos[node_rank].device_names if infos else ()
        return NodeDevices.of(self.job, self.nodes[node_rank], self.inventory.groups, names)

    def locks_on(self, node_rank: int) -> Locks:
        """The locks of a node, for `device_lock`."""
        raise NotImplementedError

    def pool(self, layout: Any, timeout: float = 60.0) -> Pool:
        """Hold the accelerators a layout needs, in a stable order.

        `layout` is a `Layout`, an `argparse.Namespace` or mapping with its flags, or a job whose `cluster`
        section has one.
        """
        from roost.config.layout_source import layout_of
        from roost.engine.pool import open_pool

        self._check_open()
        return open_pool(self, layout_of(layout), timeout)

    def take_positions(
        self, count: int, nodes: Sequence[int], wanted: Sequence[tuple[int, int]] | None, timeout: float
    ) -> list[Position]:
        """Hold accelerators for a pool: the wanted ones, or the first free ones of these nodes."""
        raise NotImplementedError

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        """Let go of accelerators of a pool."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End what this process started. May be called twice."""
        raise NotImplementedError

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def check_device(self, node_id: int, gpu_id: int | None) -> None:
        """Refuse a node or accelerator that does not exist, saying what does."""
        if isinstance(node_id, bool) or not isinstance(node_id, int) or not 0 <= node_id < self.num_nodes:
            listed = "; ".join(f"{node}: {node.accelerators.count} accelerators" for node in self.nodes[:8])
            raise ClusterError(
                Finding(code="RE114", what=f"node {node_id!r} does not exist", why=f"there are {listed}")
            )
        count = self.nodes[node_id].accelerators.count
        known = isinstance(gpu_id, int) and not isinstance(gpu_id, bool) and 0 <= gpu_id < count
        if gpu_id is not None and not known:
            has = f"accelerators 0-{count - 1}" if count else "no accelerators"
            raise ClusterError(
                Finding(
                    code="RE114",
                    what=f"accelerator {gpu_id!r} does not exist on {self.nodes[node_id]}",
                    why=f"it has {has}",
                    remedy="pass gpu_id=None for a process without one",
                )
            )


def check_num_nodes(num_nodes: Any) -> int | None:
    """A whole number of at least one, or None."""
    if num_nodes is None or (
        isinstance(num_nodes, int) and not isinstance(num_nodes, bool) and num_nodes >= 1
    ):
        return num_nodes
    raise ConfigurationError(
        Finding(code="RC104", what=f"num_nodes must be a whole number of at least 1, not {num_nodes!r}"[:200])
    )


def read_cluster_section(cluster_cfg: Any) -> tuple[ClusterConfig, Document]:
    """`cfg.cluster`, or a whole config that has one."""
    document = load(
        cluster_cfg
        if _is_whole(cluster_cfg)
        else {"cluster": resolved(cluster_cfg, "the `cluster` section", ("cluster",))}
    )
    section = document.data.get("cluster")
    config, findings = validate(ClusterConfig, section, document, ("cluster",), OLDER_KEYS)
    if config is None:
        raise error_for(findings)
    if findings:
        log.warning("%s", render(findings))
    return config, document


def _is_whole(config: Any) -> bool:
    return not isinstance(config, Mapping) or "cluster" in config


def with_groups(inventory: Inventory, config: ClusterConfig | None, document: Document | None) -> Inventory:
    if config is None or document is None or not config.node_groups:
        return inventory
    grouped, findings = inventory.with_groups(config.node_groups, document)
    if findings:
        raise error_for(findings)
    return grouped
