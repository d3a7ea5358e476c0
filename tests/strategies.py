"""Hypothesis strategies: clusters of any shape, node groups on them, rank specs, and jobs that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from roost import EngineGroup, Inventory, Layout, Server
from roost.inventory.resources import Resources

LABELS = ("a800", "4090", "robots", "cpu", "x-1")
MODELS = ("A800", "H100", "")


@st.composite
def inventories(draw: st.DrawFn, max_nodes: int = 5) -> Inventory:
    """Even, uneven and mixed clusters, with bare nodes among them or nothing else."""
    kind = draw(st.sampled_from(["even", "mixed", "bare"]))
    number = draw(st.integers(1, max_nodes))
    if kind == "even":
        return Inventory.uniform(number, draw(st.sampled_from([1, 2, 4, 8])), cpus=64)
    if kind == "bare":
        return Inventory.uniform(number, 0)
    nodes = []
    for _ in range(number):
        count = draw(st.sampled_from([0, 1, 2, 3, 4, 8, 12]))
        held = {"count": count, "model": draw(st.sampled_from(MODELS)), "type": "nvidia_gpu"}
        nodes.append({"accelerators": held, "cpus": draw(st.sampled_from([None, 4, 128]))})
    return Inventory.from_dict({"nodes": nodes})


@st.composite
def node_groups(draw: st.DrawFn, inventory: Inventory) -> list[dict[str, Any]]:
    """Groups as a config declares them; they may overlap, hold robots, or ignore their hardware."""
    every = range(len(inventory.nodes))
    groups = []
    for label in draw(st.lists(st.sampled_from(LABELS), unique=True, max_size=3)):
        ranks = draw(st.lists(st.sampled_from(every), unique=True, min_size=1))
        group: dict[str, Any] = {"label": label, "node_ranks": ranks}
        kind = draw(st.sampled_from(["plain", "ignore", "robot"]))
        if kind == "ignore":
            group["ignore_hardware"] = True
        if kind == "robot":
            homes = draw(st.lists(st.sampled_from(ranks), min_size=1, max_size=4))
            configs = [{"node_rank": home, "name": f"{label}-{number}"} for number, home in enumerate(homes)]
            group["hardware"] = {"type": "Arm", "configs": configs}
        groups.append(group)
    return groups


@st.composite
def rank_texts(draw: st.DrawFn) -> str:
    """A well-formed placement with spaces in odd places, whether or not it divides."""
    if draw(st.integers(0, 9)) == 0:
        last = draw(st.integers(0, 50))
        return draw(st.sampled_from(["all", f"all:0-{last}", " all ", "all : 0"]))
    space = st.sampled_from(["", "", " ", "  "])
    resource, process, pieces = 0, 0, []
    for _ in range(draw(st.integers(1, 5))):
        first = resource + draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 9))
        resource = last + 1
        left = f"{first}" if first == last and draw(st.booleans()) else f"{first}{draw(space)}-{last}"
        count = last - first + 1
        if draw(st.booleans()):
            count = draw(st.integers(1, 20))
            end = process + count - 1
            right = f"{process}" if count == 1 and draw(st.booleans()) else f"{process}-{draw(space)}{end}"
            left = f"{left}{draw(space)}:{draw(space)}{right}"
        process += count
        pieces.append(draw(space) + left + draw(space))
    return ",".join(pieces)


@st.composite
def fitting_specs(draw: st.DrawFn, resources: Resources) -> str:
    """A placement that can be placed on these resources."""
    if draw(st.integers(0, 4)) == 0:
        return "all"
    pieces, rank, process = [], 0, 0
    while rank < resources.total and len(pieces) < 4:
        first = rank + draw(st.integers(0, min(2, resources.total - 1 - rank)))
        slot = resources.slot_of(first)
        if not resources.bare and draw(st.booleans()):  # wide processes, inside one node
            room = slot.first + slot.count - first
            width = draw(st.integers(1, room))
            count = draw(st.integers(1, room // width))
            size = width * count
        else:
            size = draw(st.integers(1, min(6, resources.total - first)))
            count = size * draw(st.integers(1, 3))
            if resources.bare:
                count += draw(st.integers(0, 3))
        pieces.append(f"{first}-{first + size - 1}:{process}-{process + count - 1}")
        rank, process = first + size, process + count
        if draw(st.booleans()):
            break
    return ",".join(pieces)


@dataclass(frozen=True)
class JobCase:
    config: dict[str, Any]
    inventory: Inventory


@st.composite
def jobs(draw: st.DrawFn) -> JobCase:
    """A job and a cluster it fits."""
    inventory = draw(inventories())
    groups = draw(node_groups(inventory))
    grouped = inventory.grouped(groups)
    rules: dict[str, Any] = {}
    names = draw(st.lists(st.sampled_from(["actor", "rollout", "env", "agent"]), unique=True, min_size=1))
    for name in names:
        label = draw(st.sampled_from([None, "cluster", "node", *grouped.groups]))
        spec = draw(fitting_specs(grouped.resources(label)))
        rules[name] = spec if label is None else {"node_group": label, "placement": spec}
    cluster: dict[str, Any] = {"component_placement": rules}
    if groups:
        cluster["node_groups"] = groups
    if draw(st.booleans()):
        cluster["num_nodes"] = len(inventory.nodes)
    return JobCase({"cluster": cluster}, inventory)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts in every mode, sound in themselves; a cluster may still be too small or not tile."""
    width = draw(st.sampled_from([1, 2, 4, 8, 12, 16]))
    servers = []
    for name in draw(st.lists(st.sampled_from(["default", "policy", "judge"]), unique=True, max_size=2)):
        groups = []
        for _ in range(draw(st.integers(1, 3))):
            own = draw(st.sampled_from([None, 1, 2, 4, 8]))
            kind = draw(st.sampled_from(["regular", "prefill", "decode", "encoder", "placeholder"]))
            count = draw(st.integers(0, 3)) * (own or width)
            groups.append(EngineGroup(kind=kind, num_gpus=count, gpus_per_engine=own))
        servers.append(Server(name=name, groups=tuple(groups)))
    flags = {name: draw(st.booleans()) for name in ("debug_rollout_only", "colocate", "use_critic")}
    flags |= {name: draw(st.integers(0, 5)) == 0 for name in ("debug_train_only", "rollout_external")}
    return Layout(
        actor_num_nodes=draw(st.integers(0, 2)),
        actor_num_gpus_per_node=draw(st.integers(0, 8)),
        rollout_num_gpus=None if servers else draw(st.integers(0, 4)) * width,
        rollout_num_gpus_per_engine=width,
        servers=tuple(servers),
        shares=draw(wishes(["actor", "critic", "rollout"])),
        **flags,
    )


def wishes(names: Sequence[str]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(names), st.floats(0.0001, 1), max_size=len(names))
