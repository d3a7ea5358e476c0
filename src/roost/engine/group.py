"""Worker groups: many processes called like one object. Works the same on Ray and inline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from roost.config.schema import NAME
from roost.engine.workers.result import GroupResult, seconds
from roost.engine.workers.scatter import Scattered
from roost.errors import Finding, LaunchError, WorkerError, nearest
from roost.placement.placement import Placement
from roost.placement.strategies import NodePlacementStrategy, PackedPlacementStrategy, PlacementStrategy

if TYPE_CHECKING:
    from roost.engine.cluster import Cluster


START_WITHIN = 300.0  # seconds for all workers of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """Everything a launch needs, decided."""

    name: str
    cls: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    placements: tuple[Placement, ...]
    methods: frozenset[str]
    timeout: float
    shares: tuple[float, ...] = ()  # what each rank is charged of its accelerators, where a plan says so


class Members(Protocol):
    """The processes of a group, however they are run."""

    seats: list[str]  # where each rank sits, in words

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult: ...

    def restart(self, ranks: Sequence[int], timeout: float) -> None: ...

    def end(self, ranks: Sequence[int]) -> None: ...

    def stop(self) -> None: ...


class GroupView:
    """Some ranks of a group. Its methods are the workers' methods; it keeps no state between calls."""

    def __init__(self, group: WorkerGroup, ranks: Sequence[int]) -> None:
        self._group, self._ranks = group, tuple(ranks)

    def __getattr__(self, method: str) -> Callable[..., GroupResult]:
        if method.startswith("__"):
            raise AttributeError(method)
        return self._group._method(method, self._ranks)

    def __getitem__(self, which: int | slice) -> GroupView:
        picked = self._ranks[which]
        return GroupView(self._group, picked if isinstance(picked, tuple) else (picked,))

    def __len__(self) -> int:
        return len(self._ranks)

    def __repr__(self) -> str:
        return f"<ranks {', '.join(map(str, self._ranks[:8]))} of {self._group!r}>"


class WorkerGroup:
    """The workers of one component."""

    def __init__(
        self,
        name: str,
        placements: Sequence[Placement],
        methods: Iterable[str],
        members: Members,
        owned: bool,
    ) -> None:
        self.name = name
        self.placements = list(placements)
        self._methods = frozenset(methods)
        self._public = [method for method in self._methods if not method.startswith("_")]
        self._members: Members | None = members
        self._owned = owned
        self._on_shutdown: Callable[[], None] = lambda: None
        self._on_restart: Callable[[], None] = lambda: None

    @classmethod
    def attach(cls, name: str, cluster: Cluster | None = None) -> WorkerGroup:
        """A running group, found from any process of its cluster."""
        from roost.engine.cluster import Cluster

        return (cluster or Cluster()).attach_group(name)

    @property
    def world_size(self) -> int:
        return len(self.placements)

    @property
    def is_running(self) -> bool:
        """Until it is shut down; whether its workers live is another question."""
        return self._members is not None

    def seat(self, rank: int) -> str:
        """Where a rank sits, in words."""
        return self._running().seats[rank]

    def __len__(self) -> int:
        return len(self.placements)

    def __repr__(self) -> str:
        return f"<group {self.name}, {self.world_size} workers>"

    def restart_ranks(self, *ranks: int, timeout: float = START_WITHIN) -> None:
        """Start these ranks anew, each where it was; all of them when none is named. The others go on."""
        if not self._owned:
            raise WorkerError(
                Finding(
                    code="RE113",
                    what=f"group {self.name!r} was not launched by this process",
                    remedy="restart it where it was launched",
                )
            )
        chosen = self.execute_on(*(ranks or range(self.world_size)))._ranks
        self._running().restart(chosen, START_WITHIN if (limit := seconds(timeout)) is None else limit)
        self._on_restart()

    def end_ranks(self, *ranks: int) -> None:
        """End these ranks only. `restart_ranks` brings them back."""
        self._running().end(self.execute_on(*ranks)._ranks)

    def _running(self) -> Members:
        if self._members is None:
            raise WorkerError(Finding(code="RE116", what=f"group {self.name!r} was shut down"))
        return self._members

    def execute_on(self, *ranks: int) -> GroupView:
        """Only these ranks, only for what is called on the view."""
        wrong = [rank for rank in ranks if not isinstance(rank, int) or not 0 <= rank < self.world_size]
        if wrong or not ranks or len(set(ranks)) < len(ranks):
            problem = f"no rank {wrong[0]!r}" if wrong else "the same rank twice" if ranks else "no ranks"
            raise WorkerError(
                Finding(
                    code="RE113",
                    what=f"{self.name}: {problem}",
                    remedy=f"its ranks are 0-{self.world_size - 1}, each at most once",
                )
            )
        return GroupView(self, sorted(ranks))

    def __getitem__(self, which: int | slice) -> GroupView:
        return GroupView(self, range(self.world_size))[which]

    def __getattr__(self, method: str) -> Callable[..., GroupResult]:
        if method.startswith("__"):
            raise AttributeError(method)
        return self._method(method, range(self.world_size))

    def _method(self, method: str, ranks: Sequence[int]) -> Callable[..., GroupResult]:
        if method not in self._methods:
            raise AttributeError(
                f"workers of {self.name!r} have no method {method!r}; {nearest(method, self._public)}"
            )

        def call(*args: Any, **kwargs: Any) -> GroupResult:
            members = self._running()
            for argument in [*args, *kwargs.values()]:
                if isinstance(argument, Scattered) and len(argument.values) != len(ranks):
                    raise WorkerError(
                        Finding(
                            code="RE113",
                            what=f"{self.name}.{method}: scatter has {len(argument.values)} values for {len(ranks)} ranks",
                            remedy="give one value for each rank the call goes to",
                        )
                    )
            return members.submit(method, ranks, args, kwargs)

        call.__name__ = method
        return call

    def shutdown(self) -> None:
        """End the workers. May be called twice; an attached group is only let go of."""
        members, self._members = self._members, None
        if members is not None and self._owned:
            members.stop()
            self._on_shutdown()

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class GroupLauncher:
    """A worker class and its constructor arguments, waiting to be told where."""

    def __init__(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.cls, self._args, self._kwargs = cls, args, kwargs

    def launch(
        self,
        cluster: Cluster,
        placement_strategy: PlacementStrategy | None = None,
        name: str | None = None,
        isolate_accelerator: bool = True,
        timeout: float = START_WITHIN,
        shares: Sequence[float] = (),
    ) -> WorkerGroup:
        """Start one process per placement, all or none, and check that each is where it should be.

        Without a strategy, every accelerator gets a process, or every node where there are none. `shares` is
        what a plan charges each process of its accelerators; workers find theirs as `self.share`.
        """
        strategy = placement_strategy or _everywhere(cluster)
        cluster.adopt(getattr(strategy, "groups", {}))  # anything with get_placement is a strategy
        placements = tuple(strategy.get_placement(cluster, isolate_accelerator))
        group = name or self.cls.__name__
        if not isinstance(group, str) or not NAME.fullmatch(group):
            raise LaunchError(
                Finding(
                    code="RE115",
                    what=f"{group!r} is not a group name",
                    remedy="use letters, digits, dot, dash and underscore, at most 64 of them",
                )
            )
        if shares and len(shares) != len(placements):
            raise LaunchError(
                Finding(code="RE113", what=f"{group}: {len(shares)} shares for {len(placements)} processes")
            )
        for argument in [*self._args, *self._kwargs.values()]:
            if isinstance(argument, Scattered) and len(argument.values) != len(placements):
                raise LaunchError(
                    Finding(
                        code="RE113",
                        what=f"{group}: scatter has {len(argument.values)} values for {len(placements)} processes",
                    )
                )
        order = LaunchOrder(
            name=group,
            cls=self.cls,
            args=self._args,
            kwargs=self._kwargs,
            placements=placements,
            methods=frozenset(public_methods(self.cls)),
            timeout=START_WITHIN if (limit := seconds(timeout)) is None else limit,
            shares=tuple(shares),
        )
        return cluster.start_group(order)


def _everywhere(cluster: Cluster) -> PlacementStrategy:
    total = cluster.inventory.num_accelerators
    if total:
        return PackedPlacementStrategy(0, total - 1)
    return NodePlacementStrategy(range(len(cluster.inventory.nodes)))


def public_methods(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("__") and callable(getattr(cls, name, None))]


def seat(placement: Placement, node: str) -> str:
    """Where a process sits, in words."""
    if not placement.hardware:
        return node
    noun = "accelerator" if placement.accelerator_type != "none" else "device"
    devices = ",".join(map(str, placement.hardware))
    return f"{node}, {noun}{'s' * (len(placement.hardware) > 1)} {devices}"
