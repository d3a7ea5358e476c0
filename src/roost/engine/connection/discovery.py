"""What is there: wait for the nodes, ask each once, put them in order."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from roost.engine.connection.embedded import INDEX_LABEL, TYPE_LABEL
from roost.engine.connection.ray_connection import named
from roost.engine.job.node_agent import NodeAgent
from roost.errors import ClusterError, Finding, render
from roost.inventory.accelerators import AcceleratorKind, known_accelerators
from roost.inventory.nodes import NO_ACCELERATORS, Accelerators
from roost.inventory.ordering import NodeInfo, order_nodes

log = logging.getLogger("roost")
HEAD_RESOURCE = "node:__internal_head__"


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node of the running cluster, and our agent on it."""

    facts: NodeInfo
    agent: Any

    @property
    def node_id(self) -> str:
        return self.facts.node_id


def on_node(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def wait_for_nodes(num_nodes: int | None, address: str, timeout: float) -> list[Mapping[str, Any]]:
    """The nodes that are alive, once there are enough; says what it waits for, and gives up with a diagnosis."""
    deadline = time.monotonic() + timeout
    shown = -1
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
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
        Finding(
            code="RE104",
            what=f"{len(alive)} of {num_nodes} nodes are here after {timeout:g} s",
            why=f"present: {present or 'none'}",
            remedy=f"run `ray start --address={address}` on each of the {(num_nodes or 1) - len(alive)} missing ones",
        )
    )


def start_agents(nodes: Sequence[Mapping[str, Any]], namespace: str) -> dict[str, Any]:
    """An agent on every node, all starting at once. They end with this driver."""
    actor = ray.remote(num_cpus=0, max_concurrency=100_000)(NodeAgent)  # who waits there takes no turn
    return {
        node["NodeID"]: named(
            actor.options(
                scheduling_strategy=on_node(node["NodeID"]),
                name=f"agent:{node['NodeID'][:16]}",
                namespace=namespace,
            ).remote
        )
        for node in nodes
    }


def examine(nodes: Sequence[Mapping[str, Any]], agents: Mapping[str, Any], timeout: float) -> list[LiveNode]:
    """Every node with what its agent says, in order."""
    variables = sorted({kind.visible_variable for kind in known_accelerators()})
    asked = {node["NodeID"]: agents[node["NodeID"]].facts.remote(variables) for node in nodes}
    ready, silent = ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout)
    if silent:
        late = [node["NodeManagerHostname"] for node in nodes if asked[node["NodeID"]] in set(silent)]
        raise ClusterError(
            Finding(
                code="RE104",
                what=f"no process started within {timeout:g} s on {', '.join(sorted(late))}",
                why="Ray lists the node, but nothing can be run there",
                remedy="check that node's raylet log and its Python environment",
            )
        )
    del ready
    facts = []
    for node in nodes:
        try:
            facts.append(_facts(node, ray.get(asked[node["NodeID"]])))
        except ray.exceptions.RayError as error:
            raise ClusterError(
                Finding(
                    code="RE104",
                    what=f"the agent on {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) failed",
                    why=str(error).strip().splitlines()[-1][:300],
                    remedy="is roost installed there, in the same version and Python as here?",
                )
            ) from error
    return [LiveNode(fact, agents[fact.node_id]) for fact in order_nodes(facts)]


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
    """Which accelerators Ray's numbers are: what the node says, if Ray reports such; else by the resource."""
    reported = [kind for kind in known_accelerators() if resources.get(kind.ray_resource, 0) >= 1]
    return next((kind for kind in reported if kind.name == said), reported[0] if reported else None)


def _device_names(count: int, visible: str, prefix: str) -> tuple[str, ...]:
    """What the accelerators are called: the node may have been started with only some of them visible."""
    names = tuple(part.strip() for part in visible.removeprefix(prefix).split(",") if part.strip())
    return names if len(names) == count else tuple(map(str, range(count)))


def choose(live: Sequence[LiveNode], num_nodes: int | None) -> list[LiveNode]:
    """The first `num_nodes` in order; the rest is not the job's."""
    if num_nodes is not None and len(live) > num_nodes:
        finding = Finding(code="RW203", what=f"the job uses {num_nodes} of the cluster's {len(live)} nodes")
        log.warning("%s", render([finding]))
        return list(live[:num_nodes])
    return list(live)
