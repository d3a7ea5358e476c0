"""The processes of a group on Ray: calling them, looking at them, starting some again, ending them."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from roost.engine.backend import GroupOrder, ProcessFacts
from roost.engine.job.agents import agent_of
from roost.engine.processes.process_facts import Process
from roost.engine.ray_backend.ray_result import KnownActor, RayResult, forget_abandoned, once, sweep
from roost.engine.ray_backend.starting import GroupStart, gathered
from roost.engine.ray_backend.worker_host import StartReport
from roost.engine.workers.arguments import arguments_of, differ_by_rank
from roost.engine.workers.remote_errors import first_line
from roost.engine.workers.result import GroupResult
from roost.engine.workers.worker_context import seat_of
from roost.errors import Finding, JobEnded, WorkerError
from roost.inventory.nodes import Node
from roost.placement.placement import Placement

# The workers this process knows, by actor id. Errors of arguments name them.
_known_actors: weakref.WeakValueDictionary[str, KnownActor] = weakref.WeakValueDictionary()


class RayWorkers:
    def __init__(
        self,
        job: str,
        name: str,
        placements: Sequence[Placement],
        nodes: Sequence[Node],
        start: GroupStart | None = None,
    ) -> None:
        self.job, self.name, self.running = job, name, True
        self.placements = tuple(placements)
        self.seats = [seat_of(placement, str(nodes[placement.cluster_node_rank])) for placement in placements]
        self.start = start
        self.handles: dict[int, Any] = {}
        self.reports: dict[int, StartReport] = {}
        self.generations: dict[int, int] = {}
        self._known: dict[int, KnownActor] = {}
        self._followed: dict[int, list[Process]] = {}  # whose logs the agents keep, by node

    @classmethod
    def attached(
        cls, job: str, name: str, description: Mapping[str, Any], nodes: Sequence[Node]
    ) -> RayWorkers:
        group = cls(job, name, description["placements"], nodes)
        group.accept(
            dict(enumerate(description["workers"])),
            dict(enumerate(description["reports"])),
            dict(enumerate(description["generations"])),
        )
        return group

    def accept(
        self, handles: Mapping[int, Any], reports: Mapping[int, StartReport], generations: Mapping[int, int]
    ) -> None:
        """Note processes that have started."""
        self.handles.update(handles)
        self.reports.update(reports)
        self.generations.update(generations)
        for rank, handle in handles.items():
            self._known[rank] = KnownActor(self.name, rank, self.seats[rank])
            _known_actors[handle._actor_id.hex()] = self._known[rank]

    def description(self, order: GroupOrder) -> dict[str, Any]:
        """What another process needs to find this group."""
        assert self.start is not None
        ranks = range(len(self.placements))
        return {
            "placements": list(self.placements),
            "methods": sorted(order.worker.methods),
            "master_addr": self.start.master_addr,
            "master_port": self.start.master_port,
            "workers": [self.handles[rank] for rank in ranks],
            "pids": [self.reports[rank].process.pid for rank in ranks],
            "reports": [self.reports[rank] for rank in ranks],
            "generations": [self.generations[rank] for rank in ranks],
            "shares": list(order.shares),
        }

    # -- calls -------------------------------------------------------------------------------------------------

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult:
        sweep()
        handles = [self.handles[rank] for rank in ranks]
        args = [once(arg) for arg in args]
        kwargs = {key: once(arg) for key, arg in kwargs.items()}
        try:
            if differ_by_rank(args) or differ_by_rank(kwargs.values()):
                mine = [
                    arguments_of(position, len(ranks), args, kwargs, _references, _is_reference)
                    for position in range(len(ranks))
                ]
                refs = [
                    getattr(handle, method).remote(*own, **named)
                    for handle, (own, named) in zip(handles, mine, strict=True)
                ]
            else:
                refs = [getattr(handle, method).remote(*args, **kwargs) for handle in handles]
        except (TypeError, ValueError, pickle.PicklingError) as error:
            raise WorkerError(
                Finding(
                    code="RE113",
                    what=f"{self.name}.{method}: an argument cannot be sent to the workers",
                    why=first_line(error.__cause__ or error),
                    remedy="pass plain data, or make it in the worker",
                )
            ) from error
        seats = [self.seats[rank] for rank in ranks]
        return RayResult(self.name, method, ranks, seats, refs, handles, _known_actors)

    # -- looking -----------------------------------------------------------------------------------------------

    def observe(self, timeout: float) -> list[ProcessFacts]:
        """What the agents of the nodes see; all are asked at once, and none is waited for longer than that."""
        by_node: dict[str, list[int]] = {}
        for rank, report in self.reports.items():
            by_node.setdefault(report.node_id, []).append(rank)
        asked = {}
        for node_id, ranks in by_node.items():
            try:
                agent = agent_of(self.job, node_id)
            except JobEnded:
                continue
            followed = [(self.reports[rank].process, self.reports[rank].call_log) for rank in ranks]
            asked[node_id] = agent.observe.remote(followed)
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout)
        seen: dict[int, tuple[str, Any]] = {}
        for node_id, ref in asked.items():
            try:
                answers = ray.get(ref, timeout=0)
            except ray.exceptions.RayError:
                continue
            for rank, (alive, calls) in zip(by_node[node_id], answers, strict=True):
                seen[rank] = ("running" if alive else "dead", calls)
        places = self.placements
        return [
            ProcessFacts(
                rank=rank,
                pid=report.process.pid,
                generation=self.generations[rank],
                node=places[rank].cluster_node_rank,  # verified when it started
                state=seen.get(rank, ("unknown", ()))[0],
                calls=tuple(seen.get(rank, ("", ()))[1]),
            )
            for rank, report in sorted(self.reports.items())
        ]

    # -- again, and the end --------------------------------------------------------------------------------------

    def begin(self, ranks: Sequence[int]) -> dict[Any, tuple[GroupStart, int]]:
        assert self.start is not None
        begun = self.start.begin(ranks, self.handles, lambda: self.running)
        return {ref: (self.start, rank) for ref, rank in begun.items()}

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        """These ranks anew. When one cannot start, all of these are ended; the others go on."""
        assert self.start is not None
        self.end(ranks)
        everyone = len(ranks) == len(self.placements)
        aftermath = "the whole group was taken down" if everyone else "the other ranks go on"
        try:
            found = gathered(self.begin(ranks), timeout, aftermath, lambda _: None)
            self.started({rank: self.handles[rank] for rank in ranks}, found[id(self.start)])
        except BaseException:
            self.end(ranks)
            raise

    def started(self, handles: Mapping[int, Any], reports: Mapping[int, StartReport]) -> None:
        """Note started ranks, and let the agents of their nodes keep what they log."""
        assert self.start is not None
        self.accept(handles, reports, {rank: self.start.generations[rank] for rank in handles})
        by_node: dict[int, list[Any]] = {}
        for rank, report in reports.items():
            node = self.placements[rank].cluster_node_rank
            by_node.setdefault(node, []).append((report.process, report.call_log))
        for node, followed in by_node.items():
            self.start.site.live[node].agent.follow.remote(followed)
            self._followed.setdefault(node, []).extend(process for process, _ in followed)

    def end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if rank in self.handles:
                ray.kill(self.handles[rank])

    def stop(self) -> None:
        self.running = False
        handles = list(self.handles.values())
        self.handles.clear()  # the same table: a launch in another thread may still add to it, and stops us again
        if not ray.is_initialized():
            forget_abandoned()
            return
        sweep()
        for handle in handles:
            ray.kill(handle)
        if self.start is not None:
            live = self.start.site.live
            live[self.placements[0].cluster_node_rank].agent.release_ports.remote([self.start.master_port])
            for node, processes in self._followed.items():
                live[node].agent.forget.remote(processes)


def _is_reference(argument: Any) -> bool:
    return isinstance(argument, ray.ObjectRef)


def _references(result: GroupResult) -> Sequence[Any]:
    return result.refs if isinstance(result, RayResult) else result.wait()
