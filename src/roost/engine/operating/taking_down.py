"""Ends a job from a shell: asks its driver, and ends the job from outside if the driver does not."""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from roost.engine.connection.actors import NAMESPACE, actors_of, find_actor
from roost.engine.connection.cluster_watch import ask_head
from roost.engine.events import Event
from roost.engine.job.managers import NodeManager, WorkerManager
from roost.engine.job.open_jobs import TakeDownOrder, leave_order
from roost.engine.operating.job_access import JobAccess
from roost.engine.operating.job_stacks import driver_of
from roost.engine.processes.process_facts import Process
from roost.errors import ClusterError, ClusterGone, counted

LOOK_EVERY = 0.2  # seconds
TELL_EVERY = 2.0
ANSWER_WITHIN = 5.0
DRIVER_WITHIN = 5.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """The actors, processes and reservations left of a job."""

    actors: tuple[str, ...] = ()
    processes: int = 0
    reservations: tuple[str, ...] = ()  # ids of placement groups

    def __bool__(self) -> bool:
        return bool(self.actors or self.processes or self.reservations)

    def __str__(self) -> str:
        parts = [
            counted(len(self.actors), "actor") * bool(self.actors),
            counted(self.processes, "process") * bool(self.processes),
            counted(len(self.reservations), "reservation") * bool(self.reservations),
        ]
        return ", ".join(filter(None, parts)) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenDown:
    """The result. `driver` is the state of the driver: "ended", "running", "stopped" or "unknown"."""

    orderly: bool
    left: Remains
    driver: str
    processes: int  # living processes that were found
    silent: tuple[str, ...] = ()  # hosts that did not answer: the state of their processes is unknown


@dataclass(kw_only=True)
class TakingDown:
    access: JobAccess
    tell: Tell
    _families: dict[str, set[Process]] = field(default_factory=dict)  # processes and their children, by node
    _allocated: list[str] = field(default_factory=list)
    _silent: set[str] = field(default_factory=set)
    _found: int = 0  # the most living processes found at once

    def run(self, grace: float, timeout: float, force: bool) -> TakenDown:
        """Ask the driver to end the job, wait `grace` seconds, then kill what is left for up to `timeout` seconds."""
        try:
            return self._run(grace, timeout, force)
        except ClusterGone:  # an embedded Ray ends with the driver
            return TakenDown(orderly=not force, left=Remains(), driver="ended", processes=self._found)

    def _run(self, grace: float, timeout: float, force: bool) -> TakenDown:
        access = self.access
        self._ask_managers()
        self._note_families()  # this command's own agents outlive the job, and see what is left of it
        driver = driver_of(access)
        orderly = False
        if access.running:
            self._order()
            if not force:
                who = f"its driver, process {driver.pid} on {driver.host}," if driver else "its driver"
                self.tell(f"asked {who} to end job {access.job}")
                orderly = not self._wait(
                    time.monotonic() + grace, "waiting for the driver to end the job: {} left"
                )
                if not orderly:
                    self.tell(f"ending it from outside: the driver has not, in {grace:g} s")
        if not orderly:
            # Repeatedly: some processes may just be starting.
            self._wait(time.monotonic() + timeout, "waiting for the end of {}", self._end_from_outside)
        if force and driver is not None:
            self._ask("end", {driver.node_id: {driver.process}})
        state = self._driver_state(DRIVER_WITHIN if orderly or force else 0.0)
        return TakenDown(
            orderly=orderly,
            left=self._left(),
            driver=state,
            processes=self._found,
            silent=tuple(sorted(self._silent)),
        )

    # -- steps -----------------------------------------------------------------------------------------

    def _order(self) -> None:
        order = TakeDownOrder(by=f"{_user()}@{socket.gethostname()}", time=time.time())
        job, run = self.access.job, str(self.access.run.get("token", ""))
        ask_head(lambda: leave_order(job, run, order))
        with contextlib.suppress(ClusterError, ValueError, ray.exceptions.RayError):  # it is ending already
            events = [Event(action="taken down", detail=f"by {order.by}")]
            ray.wait([find_actor(WorkerManager.NAME, job).record.remote(events)], timeout=ANSWER_WITHIN)
            told = find_actor(NodeManager.NAME, job).take_down.remote(order)
            ray.get(told, timeout=ANSWER_WITHIN)

    def _wait(self, deadline: float, message: str, step: Callable[[], None] = lambda: None) -> Remains:
        """Wait until nothing is left, or until the deadline, with a step before each look. Returns what is left."""
        told = time.monotonic()
        while True:
            step()
            left = self._left()
            if not left or time.monotonic() > deadline:
                return left
            if time.monotonic() - told >= TELL_EVERY:
                told = time.monotonic()
                self.tell(message.format(left))
            time.sleep(LOOK_EVERY)

    def _end_from_outside(self) -> None:
        """Kill the job's processes and actors, and give back its accelerators."""
        self._note_families()
        # The managers and agents first: a driver that goes on must not see losses that it would restart.
        for name in actors_of(self.access.job):
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                ray.kill(find_actor(name, self.access.job))
        self._ask("end", self._families)
        for name in self._allocated:
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                ray.kill(ask_head(partial(ray.get_actor, name, NAMESPACE)))
        for group in self._reservations():
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(group)))

    # -- what is there -----------------------------------------------------------------------------------

    def _left(self) -> Remains:
        return Remains(
            actors=tuple(actors_of(self.access.job)),
            processes=sum(
                state != "dead" for states in self._ask("states", self._families).values() for state in states
            ),
            reservations=tuple(self._reservations()),
        )

    def _ask_managers(self) -> None:
        """Ask the managers for the job's processes, once: later they may be gone, or be stopped and not answer."""
        with contextlib.suppress(ClusterError):
            for one in self.access.processes():
                self._families.setdefault(one.node_id, set()).add(one.process)
            if self.access.running:
                self._allocated = list(WorkerManager.get_proxy(self.access.job).get_allocated())

    def _reservations(self) -> list[str]:
        prefix = f"roost/{self.access.job}/"
        return [
            group_id
            for group_id, group in ask_head(placement_group_table).items()
            if group["name"].startswith(prefix) and group["state"] != "REMOVED"
        ]

    def _note_families(self) -> None:
        """Add the job's processes and their children to `_families`."""
        roots: dict[str, set[Process]] = {node: set(known) for node, known in self._families.items()}
        by_pid: dict[str, list[int]] = {}
        for actor in self.access.actors(self._allocated).values():  # starting ones, and roost's own
            by_pid.setdefault(actor.node_id, []).append(actor.pid)
        for node_id, told in self._ask("identify", by_pid).items():
            roots.setdefault(node_id, set()).update(process for process, _ in told if process.started)
        found = {node_id: set(family) for node_id, family in self._ask("families", roots).items()}
        self._families |= found
        self._found = max(self._found, sum(map(len, found.values())))

    def _driver_state(self, within: float) -> str:
        """The driver's state. Waits up to `within` seconds: a driver that ended its job ends soon."""
        driver, deadline = driver_of(self.access), time.monotonic() + within
        if driver is None:
            return "unknown"
        while True:
            told = self._ask("states", {driver.node_id: [driver.process]})
            state = told.get(driver.node_id, ["unknown"])[0]
            if state != "running" or time.monotonic() > deadline:
                return "ended" if state == "dead" else str(state)
            time.sleep(LOOK_EVERY)

    def _ask(self, method: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """Ask this command's agents on these nodes, all at once."""
        wanted = {node: list(one) for node, one in about.items() if one}
        agents = self.access.own_agents(wanted)
        asked = {node: getattr(agents[node], method).remote(wanted[node]) for node in agents}
        answers = self.access.asked(asked)
        silent = [node for node in asked if node not in answers]
        if silent:
            self.access.check_stays()
            self._silent.update(
                self.access.host(node) for node in silent if node in self.access.alive_nodes()
            )
        return answers


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "an unknown user"
