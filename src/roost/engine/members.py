"""The actors of a group: calling them, starting some of them again, ending them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray

from roost.engine.calls import RayResult, forget_abandoned, once, sweep
from roost.engine.connection.ray_connection import answer
from roost.engine.group import LaunchOrder, seat
from roost.engine.host import WhereItIs
from roost.engine.launching import Launch, accelerators_of
from roost.engine.workers.remote_errors import first_line
from roost.engine.workers.result import GroupResult
from roost.engine.workers.scatter import share_of
from roost.errors import Finding, WorkerError
from roost.inventory.nodes import Node
from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.live import LiveCluster


def start_members(cluster: LiveCluster, order: LaunchOrder) -> RayMembers:
    """All ranks, or none: what was started is taken down again when any rank fails."""
    cluster.reservation.ensure(accelerators_of(cluster, order.placements))
    leader = cluster.node(order.placements[0].cluster_node_rank)
    # Before any rank starts, so that none has to wait for rank 0 to say where to meet.
    port = answer(leader.agent.lease_ports.remote(1), f"leasing a port for {order.name!r}")[0]
    members = RayMembers(order.name, order.placements, cluster.nodes, leader.facts.ip, port, leader.agent)
    cluster.starting.append(members)
    try:
        members.start(Launch.prepare(cluster, order, leader.facts.ip, port))
    except BaseException:
        members.stop()
        raise
    finally:
        cluster.starting.remove(members)
    return members


class RayMembers:
    def __init__(
        self,
        name: str,
        placements: Sequence[Placement],
        nodes: Sequence[Node],
        master_addr: str,
        master_port: int,
        port_holder: Any = None,
        handles: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.master_addr, self.master_port = master_addr, master_port
        self._port_holder = port_holder
        self.seats = [seat(placement, str(nodes[placement.cluster_node_rank])) for placement in placements]
        self._handles: dict[int, Any] = dict(enumerate(handles))
        self._found: dict[int, WhereItIs] = {}
        self._launch: Launch | None = None

    @classmethod
    def attached(cls, name: str, description: Mapping[str, Any], nodes: Sequence[Node]) -> RayMembers:
        return cls(
            name,
            description["placements"],
            nodes,
            description["master_addr"],
            description["master_port"],
            handles=description["workers"],
        )

    def description(self, order: LaunchOrder) -> dict[str, Any]:
        """What another process needs to find this group."""
        ranks = range(len(order.placements))
        return {
            "placements": list(order.placements),
            "methods": sorted(order.methods),
            "master_addr": self.master_addr,
            "master_port": self.master_port,
            "workers": [self._handles[rank] for rank in ranks],
            "pids": [self._found[rank].pid for rank in ranks],
            "shares": list(order.shares),
        }

    def start(self, launch: Launch) -> None:
        self._launch = launch
        ranks = range(len(launch.order.placements))
        self._found = launch.start(ranks, self._handles, launch.order.timeout)

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        """These ranks anew. When one cannot start, all of these are ended; the others go on."""
        assert self._launch is not None
        self.end(ranks)
        try:
            self._found |= self._launch.start(ranks, self._handles, timeout)
        except BaseException:
            self.end(ranks)
            raise

    def end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            ray.kill(self._handles[rank])

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult:
        sweep()
        args = [once(arg) for arg in args]
        kwargs = {key: once(arg) for key, arg in kwargs.items()}
        try:
            refs = [
                self._handles[rank].call.remote(
                    method,
                    *[share_of(arg, position) for arg in args],
                    **{key: share_of(arg, position) for key, arg in kwargs.items()},
                )
                for position, rank in enumerate(ranks)
            ]
        except (TypeError, ValueError, pickle.PicklingError) as error:
            raise WorkerError(
                Finding(
                    code="RE113",
                    what=f"{self.name}.{method}: an argument cannot be sent to the workers",
                    why=first_line(error),
                    remedy="pass plain data, or make it in the worker",
                )
            ) from error
        return RayResult(self.name, method, ranks, [self.seats[rank] for rank in ranks], refs)

    def stop(self) -> None:
        handles, self._handles = self._handles, {}
        if not ray.is_initialized():
            forget_abandoned()
            return
        sweep()
        for handle in handles.values():
            ray.kill(handle)
        if self._port_holder is not None:
            self._port_holder.release_ports.remote([self.master_port])
            self._port_holder = None
