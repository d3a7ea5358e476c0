"""Worker groups: many processes called like one object. Works the same on every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from roost.engine.backend import Backend, Members, ProcessFacts, RunningGroup
from roost.engine.backends import attached_backend
from roost.engine.events import Event, about_ranks
from roost.engine.workers.arguments import check_scattered
from roost.engine.workers.result import GroupResult, seconds_or
from roost.engine.workers.worker import START_WITHIN
from roost.errors import CallTimeout, WorkerError, nearest
from roost.placement.placement import Placement


class WorkerInfo(NamedTuple):
    """One worker of a group."""

    rank: int
    worker: Any  # its Ray actor
    placement: Placement


class GroupView:
    """Some ranks of a group. Its methods are the workers' methods; it keeps no state between calls.

    With `processes`, by rank, a call reaches these only, and none that has replaced one of them.
    """

    def __init__(
        self, group: WorkerGroup, ranks: Sequence[int], processes: Mapping[int, Any] | None = None
    ) -> None:
        self._group, self._ranks, self._processes = group, tuple(ranks), processes

    def __getattr__(self, method: str) -> Callable[..., GroupResult]:
        if method.startswith("__"):
            raise AttributeError(method)
        return self._group._method(method, self._ranks, self._processes)

    def __getitem__(self, which: int | slice) -> GroupView:
        picked = self._ranks[which]
        return GroupView(self._group, picked if isinstance(picked, tuple) else (picked,), self._processes)

    def __len__(self) -> int:
        return len(self._ranks)

    def __repr__(self) -> str:
        return f"<ranks {', '.join(map(str, self._ranks[:8]))} of {self._group!r}>"


class WorkerGroup(AbstractContextManager["WorkerGroup"]):
    """The workers of one component."""

    def __init__(self, name: str, backend: Backend, running: RunningGroup, owned: bool) -> None:
        self.name = name
        self._started = running.members  # kept after shutdown
        self._methods = frozenset(running.methods)
        self._public = [method for method in running.methods if not method.startswith("_")]
        self._members: Members | None = running.members
        self._backend, self._owned = backend, owned
        self._afterwards: Callable[[], None] = lambda: None  # gives back what is held for this group
        self._attached: Backend | None = None  # a connection to the job that only this group uses

    @classmethod
    def attach(cls, name: str, cluster: Any = None) -> WorkerGroup:
        """Find a running group, from any process of its cluster."""
        if cluster is not None:
            return cluster.attach_group(name)
        backend = attached_backend(None, None, None)
        try:
            group = cls(name, backend, backend.running_group(name), owned=False)
        except BaseException:
            _let_go(backend)
            raise
        group._attached = backend
        return group

    @property
    def placements(self) -> list[Placement]:
        """The placement of each rank. A rank that was moved has its placement on the spare node."""
        return list(self._started.placements)

    @property
    def world_size(self) -> int:
        return len(self._started.placements)

    @property
    def is_running(self) -> bool:
        """True until the group is shut down, even if its workers have died."""
        return self._members is not None and self._members.running

    @property
    def handles(self) -> list[Any]:
        """The Ray actors by rank, for programs that call them directly."""
        found = self._running().handles
        if len(found) < self.world_size:
            raise WorkerError(
                code="RE116",
                what=f"group {self.name!r} has no actor handles",
                why="it runs inline, or some of its ranks were ended",
                remedy="call its methods on the group",
            )
        return [found[rank] for rank in range(self.world_size)]

    @property
    def worker_info_list(self) -> list[WorkerInfo]:
        """Rank, actor and placement of each worker. Older programs read this."""
        return [
            WorkerInfo(*one)
            for one in zip(range(self.world_size), self.handles, self.placements, strict=True)
        ]

    def __len__(self) -> int:
        return self.world_size

    def __repr__(self) -> str:
        return f"<group {self.name}, {self.world_size} workers>"

    def restart_ranks(self, *ranks: int, timeout: float = START_WITHIN) -> None:
        """Restart these ranks in their places, or all ranks if none is named. The other ranks go on."""
        if not self._owned:
            raise WorkerError(
                code="RE113",
                what=f"group {self.name!r} was not launched by this process",
                remedy="restart it where it was launched",
            )
        chosen = self.execute_on(*(ranks or range(self.world_size)))._ranks
        self._running().restart(chosen, seconds_or(START_WITHIN, timeout))
        self._backend.record([about_ranks(self.name, chosen, self.placements, "restarted", "", "by hand")])
        self._backend.restarted(self.name)

    def end_ranks(self, *ranks: int) -> None:
        """End these ranks only. `restart_ranks` brings them back."""
        self._running().end(self.execute_on(*ranks)._ranks)

    def wait_recovered(self, timeout: float = START_WITHIN) -> None:
        """Wait until every restart that is under way is over.

        Raises `WorkerDied` if the group was given up, or a rank is down that nothing restarts.
        """
        limit = seconds_or(START_WITHIN, timeout)
        if not self._running().wait_recovered(limit):
            raise CallTimeout(
                code="RE112",
                what=f"group {self.name!r} has not recovered in {limit:g} s",
                remedy="run.events says what is done; wait again, or give it more time",
            )

    def _observed(self, timeout: float) -> list[ProcessFacts]:
        """The facts of its processes now; empty after shutdown."""
        return self._running().observe(timeout) if self.is_running else []

    def _seat(self, rank: int) -> str:
        """The node and devices of a rank, for messages."""
        return self._running().seats[rank]

    def _running(self) -> Members:
        if self._members is None or not self._members.running:
            raise WorkerError(code="RE116", what=f"group {self.name!r} was shut down")
        return self._members

    def execute_on(self, *ranks: int) -> GroupView:
        """A view of these ranks: a method called on the view runs on them only."""
        wrong = [rank for rank in ranks if not isinstance(rank, int) or not 0 <= rank < self.world_size]
        if wrong or not ranks or len(set(ranks)) < len(ranks):
            problem = f"no rank {wrong[0]!r}" if wrong else "the same rank twice" if ranks else "no ranks"
            raise WorkerError(
                code="RE113",
                what=f"{self.name}: {problem}",
                remedy=f"its ranks are 0-{self.world_size - 1}, each at most once",
            )
        return GroupView(self, sorted(ranks))

    def this_generation(self) -> GroupView:
        """A view of the processes that run now, for calls that belong together.

        After a restart, a call on it raises `WorkerDied`: the new process has not seen the calls before.
        """
        return GroupView(self, range(self.world_size), self._running().processes())

    def __getitem__(self, which: int | slice) -> GroupView:
        return GroupView(self, range(self.world_size))[which]

    def __getattr__(self, method: str) -> Callable[..., GroupResult]:
        if method.startswith("__"):
            raise AttributeError(method)
        return self._method(method, range(self.world_size))

    def _method(
        self, method: str, ranks: Sequence[int], processes: Mapping[int, Any] | None = None
    ) -> Callable[..., GroupResult]:
        if method not in self._methods:
            raise AttributeError(
                f"workers of {self.name!r} have no method {method!r}; {nearest(method, self._public)}"
            )

        def call(*args: Any, **kwargs: Any) -> GroupResult:
            members = self._running()
            check_scattered(f"{self.name}.{method}", [*args, *kwargs.values()], len(ranks))
            return members.submit(method, ranks, args, kwargs, processes)

        call.__name__ = method
        return call

    def shutdown(self) -> None:
        """End the workers and give back the accelerators held for them. May be called twice.

        On an attached group this only detaches: the workers go on.
        """
        members, self._members = self._members, None
        if members is not None and self._owned:
            self._backend.end_group(self.name)
            self._backend.record([Event(action="shut down", component=self.name)])
            self._afterwards()
        if members is not None and self._attached is not None:
            _let_go(self._attached)

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _let_go(backend: Backend) -> None:
    """Close the connection that `attach` opened. Inline, `attach` opened none."""
    if not backend.owner:
        backend.shutdown()
