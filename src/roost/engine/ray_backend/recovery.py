"""Carries out what the supervisor decides: restarts, and moves to spare nodes. Restarts run in threads of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import ray

from roost.engine.backend import GroupOrder
from roost.engine.connection.cluster_watch import cluster_is_gone
from roost.engine.events import Event, Standing, about_ranks
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.supervision.supervisor import Action, GiveUp, Keep, Restart, Supervisor
from roost.engine.workers.remote_errors import first_line
from roost.engine.workers.result import CALL_LATER
from roost.engine.workers.worker import START_WITHIN
from roost.errors import JobEnded, RoostError
from roost.planning.plan import Plan
from roost.planning.relocation import Relocation, relocate
from roost.secret_names import hide_rest

if TYPE_CHECKING:
    from roost.engine.ray_backend.ray_backend import RayBackend

log = logging.getLogger("roost")


@dataclass(slots=True)
class Launched:
    """A plan that runs, and the names its components run under."""

    plan: Plan
    names: dict[str, str]  # of groups, by component


@dataclass(slots=True, kw_only=True)
class Watched:
    """What is known of the groups that are watched. `news` guards it, and tells threads here of every change.

    `note` tells the other processes of the job.
    """

    groups: Mapping[str, tuple[GroupOrder, RayWorkers]]
    supervisor: Supervisor = field(default_factory=Supervisor)
    news: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    launched: dict[str, Launched] = field(default_factory=dict)  # by group
    lost: set[int] = field(default_factory=set)  # nodes
    closed: bool = False
    note: Callable[[Mapping[str, Standing]], None] = lambda _: None

    @contextmanager
    def changing(self, *names: str) -> Iterator[Supervisor]:
        """Change the state of these groups, and tell everyone."""
        with self.news:
            yield self.supervisor
            self.news.notify_all()
            standings = {name: one for name in names if (one := self.supervisor.standing(name)) is not None}
            if standings:  # none of groups that were shut down
                self.note(standings)

    def stopped(self, name: str, ranks: Sequence[int]) -> None:
        with self.changing(name) as supervisor:
            supervisor.stopped(name, ranks)


class _Moving(NamedTuple):
    restart: Restart
    order: GroupOrder
    workers: RayWorkers


class Recovery:
    def __init__(self, job: RayBackend, watched: Watched, follow: Callable[[int], None]) -> None:
        self._job, self._watched, self._follow = job, watched, follow
        self._threads: list[threading.Thread] = []
        # Nodes may be lost one after the other, and each move begins with the last plan.
        self._moving = threading.Lock()

    @property
    def threads(self) -> list[threading.Thread]:
        """Those of restarts and moves that are under way."""
        return [one for one in self._threads if one.is_alive()]

    def start_thread(self, step: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self.guarded, args=(step,), name=name, daemon=True)
        self._threads = [*self.threads, thread]
        thread.start()

    def guarded(self, step: Callable[[], None]) -> None:
        """Failures that cannot be dealt with must not end the watch."""
        try:
            step()
        except Exception as error:
            if not self._watched.closed and ray.is_initialized() and not cluster_is_gone():
                log.warning("roost could not follow up on a failure: %s", first_line(error))

    def carry_out(self, actions: Sequence[Action]) -> None:
        moving = [action for action in actions if isinstance(action, Restart) and action.move]
        for action in actions:
            if isinstance(action, Restart) and not action.move:
                self._begin(action)
        if moving:
            with self._moving:
                self._move(moving)

    def _begin(self, restart: Restart) -> None:
        self.start_thread(partial(self._restart, restart), f"roost-restart-{restart.component}")

    def _restart(self, restart: Restart) -> None:
        name, began = restart.component, time.monotonic()
        known = self._watched.groups.get(name)
        if known is None:
            return
        workers = known[1]
        try:
            if restart.move and workers.start is not None:
                workers.start.renew_program()
            by_watch = workers.recover(restart.ranks, START_WITHIN)
        except (RoostError, ray.exceptions.RayError) as error:
            if self._watched.closed or not workers.running:
                return
            if isinstance(error, JobEnded):
                self._watched.stopped(name, restart.ranks)
                return
            nodes = {workers.placements[rank].cluster_node_rank for rank in restart.ranks}
            cause = "failed start" if nodes.isdisjoint(self._watched.lost) else "node lost"
            with self._watched.changing(name) as supervisor:
                actions = supervisor.not_started(name, restart.ranks, time.monotonic(), cause)
            found = error.findings[0] if isinstance(error, RoostError) else None
            reason = first_line(error) if found is None else found.what
            if found is not None and found.why:
                reason = f"{reason}: {found.why}"
            reason = hide_rest(reason)
            self.tell(
                [
                    self._event(name, action.ranks, verb(action), cause, f"{reason}; {outlook(action)}")
                    for action in actions
                ]
            )
            self.carry_out(actions)
            return
        if not by_watch:  # `restart_ranks` tells of it
            return
        took = time.monotonic() - began
        detail = f"restart {restart.number} of {restart.limit} took {took:.2f} s"
        try:
            self._job.restarted(name)
        except RoostError as error:  # as when a manager was killed
            detail = f"{detail}; other processes of the job cannot find it: {error.findings[0].what}"
        self.tell([self._event(name, restart.ranks, "restarted", restart.cause, detail)])

    def _event(self, name: str, ranks: Sequence[int], action: str, cause: str, detail: str) -> Event:
        known = self._watched.groups.get(name)
        return about_ranks(name, ranks, known[1].placements if known else (), action, cause, detail)

    def _move(self, restarts: Sequence[Restart]) -> None:
        """Move the ranks of lost nodes, together for all components of one plan."""
        by_launch: dict[int, tuple[Launched, dict[str, _Moving]]] = {}
        for restart in restarts:
            launched = self._watched.launched.get(restart.component)
            group = self._watched.groups.get(restart.component)
            if launched is not None and group is not None:  # None after a shutdown in another thread
                together = by_launch.setdefault(id(launched), (launched, {}))[1]
                together[group[0].component.name] = _Moving(restart, *group)
        for launched, wanted in by_launch.values():
            spare = {component: one.order.policy.spare_nodes for component, one in wanted.items()}
            found = relocate(launched.plan, self._watched.lost, spare)
            for component in found.stranded:
                self._strand(wanted[component].restart)
            going = {component: one for component, one in wanted.items() if component not in found.stranded}
            if going:
                self._moved(launched, found, going)

    def _moved(self, launched: Launched, found: Relocation, going: Mapping[str, _Moving]) -> None:
        before, launched.plan = launched.plan, found.plan
        orders = {}
        for component, one in going.items():
            orders[one.order.name] = replace(one.order, component=found.plan.components[component])
            one.workers.move(orders[one.order.name], found.plan.inventory)
        self.tell(
            [
                Event(
                    action="moved",
                    component=launched.names[move.component],
                    rank=move.rank,
                    node=move.target,
                    cause="node lost",
                    detail=f"from node {move.source}; new plan {found.plan.short_digest}",
                )
                for move in found.moves
            ]
        )

        def carry_out() -> None:
            try:
                self._job.relocated(before, found.plan, orders)
            except RoostError as error:
                for one in going.values():
                    self._strand(one.restart, error.findings[0].what)
                return
            for place in {move.target for move in found.moves}:
                self._follow(place)
            for one in going.values():
                self._begin(one.restart)

        self.start_thread(carry_out, "roost-move")

    def _strand(self, restart: Restart, why: str = "no spare node of its shape is free") -> None:
        with self._watched.changing(restart.component) as supervisor:
            actions = supervisor.cannot_move(restart.component, restart.ranks, why)
        self.tell(
            [
                self._event(action.component, action.ranks, verb(action), action.cause, outlook(action))
                for action in actions
            ]
        )

    def tell(self, events: Sequence[Event]) -> None:
        # By one clock, since those of nodes differ: then the times are in the order of the history.
        told = [replace(event, time=time.time()) for event in events]
        for event in told:
            log.warning("roost: %s", event)
        if told:
            self._job.record(told)


def verb(action: Action) -> str:
    return {Keep: "reported", Restart: "restarting", GiveUp: "given up"}[type(action)]


def outlook(action: Action) -> str:
    """What is done, for messages."""
    if isinstance(action, Restart):
        what = "it is moved to a spare node" if action.move else "it is restarted"
        return f"{what} (restart {action.number} of {action.limit}): {CALL_LATER}"
    ranks = ", ".join(map(str, action.ranks))
    if isinstance(action, GiveUp) and action.cause == "node lost":
        return action.why
    if isinstance(action, GiveUp):
        return f"{action.why}; restart_ranks({ranks}) starts it again"
    if action.cause == "node lost":
        return "nothing can be started there"
    return f"restart_ranks({ranks}) starts it again"
