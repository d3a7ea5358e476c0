"""Finds the nodes of a running cluster: waits for them, asks each once, and puts them in order."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import ray

from roost.engine.connection.cluster_watch import HEAD_WITHIN, ask_head, patient_wait
from roost.engine.connection.embedded import INDEX_LABEL, TYPE_LABEL
from roost.engine.workers.environment import SEARCH_PATHS
from roost.errors import ClusterError, Finding, render
from roost.inventory.accelerators import AcceleratorKind, known_accelerators
from roost.inventory.nodes import NO_ACCELERATORS, Accelerators
from roost.inventory.ordering import NodeInfo, address_key, order_nodes

log = logging.getLogger("roost")
HEAD_RESOURCE = "node:__internal_head__"
RESOLVE_WITHIN = 2.0  # seconds for all host names together
_THREADS = 32


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node of the running cluster, and the job's agent on it."""

    facts: NodeInfo
    agent: Any

    @property
    def node_id(self) -> str:
        return self.facts.node_id


def living_nodes(within: float = HEAD_WITHIN) -> list[Mapping[str, Any]]:
    """Ray's facts about each living node. Raises `NoAnswer` after `within` seconds."""
    return [node for node in ask_head(ray.nodes, within) if node["Alive"]]


def wait_for_nodes(num_nodes: int | None, address: str, timeout: float) -> list[Mapping[str, Any]]:
    """Wait for `num_nodes` living nodes and return them. Prints progress; raises after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    shown = -1
    while True:
        alive = living_nodes(max(1.0, deadline - time.monotonic()))
        if len(alive) >= (num_nodes or 1):
            return alive
        if time.monotonic() >= deadline:
            break
        if len(alive) != shown:
            shown = len(alive)
            print(f"roost: waiting for nodes, {shown} of {num_nodes} are here", file=sys.stderr, flush=True)
        time.sleep(min(0.2, max(0.01, deadline - time.monotonic())))
    present = ", ".join(
        sorted(f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})" for node in alive)
    )
    raise ClusterError(
        code="RE104",
        what=f"{len(alive)} of {num_nodes} nodes are here after {timeout:g} s",
        why=f"present: {present or 'none'}",
        remedy=f"run `ray start --address={address}` on each of the {(num_nodes or 1) - len(alive)} missing ones",
    )


def nodes_to_ask(nodes: Sequence[Mapping[str, Any]], num_nodes: int | None) -> list[Mapping[str, Any]]:
    """The nodes that get an agent: of an embedded cluster the first `num_nodes`, by their labels.

    The order of any other cluster is known only after roost has asked every node.
    """
    labels = {node["NodeID"]: (node.get("Labels") or {}).get(INDEX_LABEL, "") for node in nodes}
    if num_nodes is None or not all(map(str.isdecimal, labels.values())):
        return list(nodes)
    return sorted(nodes, key=lambda node: int(labels[node["NodeID"]]))[:num_nodes]


def examine(nodes: Sequence[Mapping[str, Any]], agents: Mapping[str, Any], timeout: float) -> list[LiveNode]:
    """Every node with the facts its agent reports, in the job's order."""
    variables = sorted({kind.visible_variable for kind in known_accelerators()})
    asked = {node["NodeID"]: agents[node["NodeID"]].facts.remote(variables, SEARCH_PATHS) for node in nodes}
    _, silent = patient_wait(list(asked.values()), timeout, len(asked))
    if silent:
        late = [node["NodeManagerHostname"] for node in nodes if asked[node["NodeID"]] in set(silent)]
        raise ClusterError(
            code="RE104",
            what=f"no process started within {timeout:g} s on {', '.join(sorted(late))}",
            why="Ray lists the node, but nothing can be run there",
            remedy="check that node's raylet log and its Python environment",
        )
    facts = []
    for node in nodes:
        try:
            facts.append(_facts(node, ray.get(asked[node["NodeID"]])))
        except ray.exceptions.RayError as error:
            raise ClusterError(
                code="RE104",
                what=f"the agent on {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) failed",
                why=str(error).strip().splitlines()[-1][:300],
                remedy="is roost installed there, in the same version and Python as here?",
            ) from error
    return [LiveNode(fact, agents[fact.node_id]) for fact in order_nodes(facts, addresses_of)]


def _facts(node: Mapping[str, Any], told: Mapping[str, Any]) -> NodeInfo:
    resources, labels = node["Resources"], node.get("Labels") or {}
    held, names = NO_ACCELERATORS, tuple[str, ...]()
    kind = _kind(resources, labels.get(TYPE_LABEL) or told["accelerator_type"])
    if kind is not None:
        count = int(resources[kind.ray_resource])
        model = next((key.split(":", 1)[1] for key in resources if key.startswith("accelerator_type:")), "")
        held = Accelerators(
            count=count, type=kind.name, model=model or labels.get("ray.io/accelerator-type", "")
        )
        names = _device_names(count, told["visible"].get(kind.visible_variable, ""), kind.visible_prefix)
    index = labels.get(INDEX_LABEL, "")
    return NodeInfo(
        node_id=node["NodeID"],
        ip=node["NodeManagerAddress"],
        hostname=told["hostname"],
        accelerators=held,
        device_names=names,
        cpus=int(resources.get("CPU", 0)) or None,
        is_master=HEAD_RESOURCE in resources,
        declared_rank=told["declared_rank"],
        label=int(index) if index.isdecimal() else None,
        search_paths=tuple(sorted(told["search_paths"].items())),
    )


def _kind(resources: Mapping[str, float], said: str | None) -> AcceleratorKind | None:
    """The kind of the node's accelerators: the one the node names, if Ray reports it, else the first reported."""
    reported = [kind for kind in known_accelerators() if resources.get(kind.ray_resource, 0) >= 1]
    return next((kind for kind in reported if kind.name == said), reported[0] if reported else None)


def _device_names(count: int, visible: str, prefix: str) -> tuple[str, ...]:
    """The names of the accelerators: those in the visible-devices variable if they are as many, else the numbers."""
    names = tuple(part.strip() for part in visible.removeprefix(prefix).split(",") if part.strip())
    return names if len(names) == count else tuple(map(str, range(count)))


def choose(live: Sequence[LiveNode], num_nodes: int | None, present: int) -> list[LiveNode]:
    """The first `num_nodes` nodes of those present. The job does not use the others."""
    if num_nodes is not None and present > num_nodes:
        finding = Finding(code="RW203", what=f"the job uses {num_nodes} of the cluster's {present} nodes")
        log.warning("%s", render([finding]))
        return list(live[:num_nodes])
    return list(live)


def _address(name: str) -> str | None:
    """The lowest address of a host, IPv4 before IPv6: name servers give several in any order."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a label of a name can be too long for its encoding
        return None
    return min((str(entry[4][0]) for entry in entries), key=address_key, default=None)


def addresses_of(
    names: Collection[str], timeout: float = RESOLVE_WITHIN, lookup: Callable[[str], str | None] = _address
) -> dict[str, str]:
    """The addresses of the host names that resolve in time. Asks for all at once."""
    deadline = time.monotonic() + timeout
    waiting: SimpleQueue[str] = SimpleQueue()
    answers: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
    for name in names:
        waiting.put(name)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                name = waiting.get_nowait()
            except Empty:
                return
            answers.put((name, lookup(name)))

    for _ in range(min(len(names), _THREADS)):
        # A daemon: a call of the system's resolver cannot be cancelled, and must not delay the program's end.
        threading.Thread(target=work, name="roost-host-names", daemon=True).start()
    found: dict[str, str] = {}
    for _ in names:
        try:
            name, address = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if address is not None:
            found[name] = address
    return found
