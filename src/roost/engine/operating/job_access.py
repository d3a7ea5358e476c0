"""Access to a job from a shell, whether its driver answers or not, and also after the job's end."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray._private import state as ray_state

from roost.engine.connection.actors import NAMESPACE, job_namespace, named_actors
from roost.engine.connection.cluster_watch import ask_head, check_head, expect_end
from roost.engine.connection.discovery import living_nodes
from roost.engine.connection.embedded import own_cluster_address
from roost.engine.connection.ray_connection import connect
from roost.engine.job.agents import agent_on, start_agents
from roost.engine.job.channel_host import ChannelHost
from roost.engine.job.job_folder import StartedProcess, address_of, check_not_elsewhere, read_processes
from roost.engine.job.managers import MANAGERS, NodeManager, WorkerManager, running_jobs
from roost.engine.job.node_agent import NodeAgent
from roost.engine.job.ray_buffer import BufferHost
from roost.errors import ClusterError, JobEnded, NoAnswer, nearest

ANSWER_WITHIN = 15.0  # seconds
ROOSTS_OWN = {cls.__name__ for cls in (*MANAGERS, NodeAgent, ChannelHost, BufferHost)}
STAYS_FOR = 5.0  # seconds that an embedded Ray takes to end, from its first node to its head


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingActor:
    node_id: str
    pid: int
    is_roosts: bool  # a manager, an agent, or the host of a channel or data buffer


class JobAccess(AbstractContextManager["JobAccess"]):
    """`with JobAccess("my-job") as job:`. `running` says whether the job runs; an ended job is read from its folder."""

    def __init__(self, job: str, address: str | None = None) -> None:
        self.job = job
        where = address or os.environ.get("RAY_ADDRESS") or _address_of(job)
        self._connection = connect(where, None, may_start=False)
        expect_end()  # an embedded Ray ends with its job
        self._stays = False
        self._own: dict[str, Any] = {}  # agents that this command has started, by node
        self._agentless: set[str] = set()  # nodes whose agent of the job is dead: Ray still finds it by name
        self._recorded: list[StartedProcess] = []  # of a job that has ended
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        jobs = running_jobs()
        self.running = self.job in jobs
        self.run: Mapping[str, Any] = {}
        if self.running:
            try:
                layout = NodeManager.get_proxy(self.job).get_layout()
                self.run, self.node_ids = layout["run"], [node.node_id for node in layout["facts"]]
                return
            except JobEnded:  # it ended just now
                self.running = False
            except NoAnswer:  # its manager is stopped, or starved
                self.node_ids = list(self.alive_nodes())
                known = self._folder()
                self.run = known[0] if known is not None else {}
                return
        check_not_elsewhere(self.job, self._connection.address)
        found = self._folder()
        if found is None:
            raise ClusterError(
                code="RE106",
                what=f"no job {self.job!r} is running on the Ray at {self._connection.address}",
                why="and no node there knows one that has ended",
                remedy=nearest(self.job, jobs).replace("known:", "running:")
                if jobs
                else "no job is running there",
            )
        self.run = found[0]
        self._recorded = [StartedProcess.from_dict(one) for one in found[1]]
        self.node_ids = sorted({one.node_id for one in self._recorded})

    def _folder(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """The last run of the job and its processes, from its folder on this machine or on the node of its managers.

        The folder on this machine may know only an earlier run than the one that is running.
        """
        found = [read_processes(self.job)]
        if self.running or found == [None]:
            agents = self.own_agents(self.alive_nodes())
            asked = {node: agent.recorded.remote(self.job) for node, agent in agents.items()}
            found += self.asked(asked).values()
        known = [one for one in found if one is not None]
        return max(known, key=lambda one: one[0].get("time", 0.0), default=None)

    # -- processes -------------------------------------------------------------------------------------

    def processes(self) -> list[StartedProcess]:
        """Every process the job has started, of all generations, in order. Raises `JobEnded` if it ends just now."""
        if not self.running:
            return sorted(self._recorded, key=lambda one: one.key)
        return sorted(WorkerManager.get_proxy(self.job).get_processes(), key=lambda one: one.key)

    def latest(self, known: Sequence[StartedProcess]) -> list[StartedProcess]:
        """The current process of each rank, including starting ones that the managers do not know yet."""
        current = {(one.component, one.rank): one for one in sorted(known, key=lambda one: one.key)}
        current |= {(one.component, one.rank): one for one in self.starting(known)}
        return sorted(current.values(), key=lambda one: one.key)

    def starting(self, known: Sequence[StartedProcess] = ()) -> list[StartedProcess]:
        """The processes of the job's living actors that are not in `known`."""
        generations = {
            (one.component, one.rank): one.generation + 1 for one in sorted(known, key=lambda one: one.key)
        }
        pids = {(one.node_id, one.pid) for one in known}
        found: list[tuple[str, int, LivingActor]] = []  # component, rank, actor
        for name, actor in self.actors().items():
            component, _, rank = name.rpartition(":")
            is_worker = component and rank.isdecimal() and not actor.is_roosts
            if is_worker and (actor.node_id, actor.pid) not in pids:
                found.append((component, int(rank), actor))
        told = self.ask_about("identify", [(actor.node_id, actor.pid) for _, _, actor in found])
        alive = self.alive_nodes() if any(told) else {}
        hosts = {node: str(facts["NodeManagerAddress"]) for node, facts in alive.items()}
        return [
            StartedProcess(
                component=component,
                rank=rank,
                generation=generations.get((component, rank), 0),
                node=self.node_ids.index(actor.node_id) if actor.node_id in self.node_ids else -1,
                node_id=actor.node_id,
                host=hosts.get(actor.node_id, ""),
                pid=actor.pid,
                started=identity[0].started,
                logs=identity[1],
            )
            for (component, rank, actor), identity in zip(found, told, strict=True)
            if identity is not None
        ]

    def actors(self, allocated: Collection[str] = ()) -> dict[str, LivingActor]:
        """The job's living actors by name. Allocated ones are in another namespace."""
        namespace = job_namespace(self.job)
        listed = named_actors()
        table = ask_head(ray_state.actors)
        found = {}
        for name, space in listed:
            if space != namespace and not (space == NAMESPACE and name in allocated):
                continue
            try:
                handle = ask_head(partial(ray.get_actor, name, space))
            except ValueError:  # the actor has just ended
                continue
            told = table.get(handle._actor_id.hex())
            if told is not None and told["Pid"]:
                found[name] = LivingActor(
                    node_id=told["Address"]["NodeID"],
                    pid=int(told["Pid"]),
                    is_roosts=told["ActorClassName"] in ROOSTS_OWN,
                )
        return found

    # -- nodes and their agents --------------------------------------------------------------------------

    def alive_nodes(self) -> dict[str, Mapping[str, Any]]:
        return {node["NodeID"]: node for node in living_nodes()}

    def host(self, node_id: str) -> str:
        return str(self.alive_nodes().get(node_id, {}).get("NodeManagerAddress", "")) or f"node {node_id[:8]}"

    def agent(self, node_id: str) -> Any | None:
        """The job's agent on a node, or this command's own if the job has none there; None if the node is gone."""
        is_there = self.running and node_id not in self._own and node_id not in self._agentless
        found = agent_on(self.job, node_id) if is_there else None
        return found or self.own_agents([node_id]).get(node_id)

    def agent_died(self, node_id: str) -> None:
        """Let `agent` start another one there."""
        self._agentless.add(node_id)
        self._own.pop(node_id, None)

    def own_agents(self, node_ids: Collection[str]) -> dict[str, Any]:
        """Start agents of this command on the living nodes among these. The agents end with the command."""
        alive = self.alive_nodes()
        missing = [alive[one] for one in node_ids if one in alive and one not in self._own]
        self._own |= start_agents(missing, f"shell-{secrets.token_hex(4)}")
        return {one: self._own[one] for one in node_ids if one in alive and one in self._own}

    def ask_about(
        self, method: str, about: Sequence[tuple[str, Any]], within: float = ANSWER_WITHIN
    ) -> list[Any | None]:
        """Ask the agents about things, each of a node, all at once. The answers in the same order.

        None stands for the answer of a node that is gone or does not answer.
        """
        by_node: dict[str, list[Any]] = {}
        for node, thing in about:
            by_node.setdefault(node, []).append(thing)
        answers: dict[str, Iterator[Any]] = {}
        wanted = list(by_node)
        while wanted:
            agents = {node: agent for node in wanted if (agent := self.agent(node)) is not None}
            asked = {node: getattr(agent, method).remote(by_node[node]) for node, agent in agents.items()}
            answers |= {node: iter(found) for node, found in self.asked(asked, within).items()}
            failed = [node for node in asked if node not in answers and ray.wait([asked[node]], timeout=0)[0]]
            wanted = [node for node in failed if node not in self._agentless]  # once more, of another agent
            for node in failed:
                self.agent_died(node)
        return [next(answers[node]) if node in answers else None for node, _ in about]

    def asked(self, questions: Mapping[Any, Any], within: float = ANSWER_WITHIN) -> dict[Any, Any]:
        """The answers that come in time. Leaves out failures."""
        if questions:
            ray.wait(list(questions.values()), num_returns=len(questions), timeout=within)
        answers = {}
        for key, ref in questions.items():
            try:
                answers[key] = ray.get(ref, timeout=0)
            except ray.exceptions.RayError:
                continue
        return answers

    def check_stays(self) -> None:
        """Raise if the whole Ray is ending: a node that does not answer may be the first sign."""
        deadline = time.monotonic() + STAYS_FOR
        while time.monotonic() < deadline and not self._stays:
            check_head()
            time.sleep(0.2)
        self._stays = True

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        for agent in self._own.values():
            ray.kill(agent)
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _address_of(job: str) -> str | None:
    """The address of the job's Ray from its folder on this machine; else of this user's Ray."""
    if (where := address_of(job)) is not None:
        return where
    found = read_processes(job)
    own = own_cluster_address()
    if own is None and found is not None:
        logs = next((one["logs"][0] for one in found[1] if one["logs"]), "").rpartition("/")[0]
        kept = os.path.isdir(logs)  # noqa: PTH112
        raise JobEnded(
            code="RE106",
            what=f"job {job!r} has ended, and the Ray at {found[0].get('address')} on which it ran is gone",
            why="" if kept else "an embedded Ray ends with its job, and takes the job's logs with it",
            remedy=f"its logs are in {logs}" if kept else "",
        )
    return own
