"""The saved form of a plan: the decisions, as plain data. Everything else is rebuilt from them.

A file may be damaged or forged, so everything in it is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, ValidationError
from typing_extensions import TypedDict

from roost.codes import CODES
from roost.config.fields import NAME
from roost.config.job import RESERVED_LABELS
from roost.config.ranks import RankSyntaxError, parse_ranks
from roost.config.supervise import RestartPolicy
from roost.errors import Finding, Span, dotted
from roost.inventory.groups import HardwareUnit, NodeEnvironment, NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.reading import CheckedNode
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Slot
from roost.placement.placement import Assignment, make_placements
from roost.planning.component_plan import ComponentPlan, Engines

if TYPE_CHECKING:
    from roost.planning.plan import Plan

FORMAT_VERSION = 2
# `roost plan --json` adds these to each component; both follow from the rest.
SHOWN_ONLY = ("placements", "share")
_Number = Annotated[StrictInt, Field(ge=0, le=10**9)]


class Damage(Exception):
    """A saved plan cannot be used; the message gives the reason."""


class _Saved(BaseModel):
    # Not strict: a strict model takes records as instances only.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _SavedEnvironment(_Saved):
    node_ranks: tuple[_Number, ...]
    env_vars: dict[str, str | None]
    python_interpreter_path: str | None


class _SavedGroup(_Saved):
    label: str
    node_ranks: tuple[_Number, ...]
    hardware_type: str | None
    hardware: list[dict[str, Any]]
    ignore_hardware: StrictBool
    environments: list[_SavedEnvironment]


class _SavedProcess(TypedDict):  # plans have many, and a dict costs less than a model
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    node: _Number
    devices: list[_Number]
    group: str


class _SavedComponent(_Saved):
    rule: str
    node_groups: tuple[str, ...]
    isolate_accelerator: StrictBool
    engines: Engines | None = None
    processes: list[_SavedProcess]
    placements: list[dict[str, Any]] | None = None
    share: list[float] | None = None


class SavedFinding(_Saved):
    code: str
    severity: str
    what: str
    why: str
    remedy: str
    path: tuple[str | int, ...]
    where: Span | None


class SavedPlan(_Saved):
    format_version: StrictInt
    digest: str
    job_file: str
    nodes: Annotated[list[CheckedNode], Field(min_length=1)]
    node_groups: list[_SavedGroup]
    components: dict[str, _SavedComponent]
    shares: dict[str, Annotated[StrictFloat, Field(ge=0.0001, le=1)]] = {}
    supervise: dict[str, RestartPolicy] = {}
    findings: list[SavedFinding]
    checksum: str


# -- writing -----------------------------------------------------------------------------------------------


def to_plain_data(plan: Plan, digest: str) -> dict[str, Any]:
    """The plan as data for JSON, with a checksum."""
    data = {
        "format_version": FORMAT_VERSION,
        "digest": digest,
        "job_file": plan.job_file,
        "nodes": [asdict(node) for node in plan.inventory.nodes],
        "node_groups": [_plain_group(group) for group in plan.inventory.groups.values()],
        "components": {name: _plain_component(one) for name, one in plan.components.items()},
        "shares": dict(plan.shares),
        "supervise": {name: one.to_dict() for name, one in plan.supervise.items()},
        "findings": [finding.to_dict() for finding in plan.findings],
    }
    data = {key: value for key, value in data.items() if value or key not in ("shares", "supervise")}
    return {**data, "checksum": checksum(data)}


def _plain_group(group: NodeGroup) -> dict[str, Any]:
    return {
        **asdict(group),
        "node_ranks": list(group.node_ranks),
        "hardware": [unit.to_dict() for unit in group.hardware],
        "environments": [
            {**asdict(env), "node_ranks": list(env.node_ranks), "env_vars": dict(env.env_vars)}
            for env in group.environments
        ],
    }


def _plain_component(component: ComponentPlan) -> dict[str, Any]:
    return {
        "rule": component.rule,
        "node_groups": list(component.node_groups),
        "isolate_accelerator": component.members[0].isolate_accelerator,
        **({"engines": asdict(component.engines)} if component.engines else {}),
        "processes": [
            {"node": p.cluster_node_rank, "devices": list(p.hardware), "group": p.node_group_label}
            for p in component.members
        ],
    }


def checksum(data: Mapping[str, Any]) -> str:
    """A hash of the whole saved plan, in any order and spacing. The digest covers the decisions only."""
    counted = {
        **{key: value for key, value in data.items() if key != "checksum"},
        "components": {
            name: {key: value for key, value in component.items() if key not in SHOWN_ONLY}
            for name, component in data["components"].items()
        },
    }
    try:
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    except TypeError:  # bytes, or keys of several types
        raise Damage("it is not plain data") from None
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# -- reading -----------------------------------------------------------------------------------------------


def from_plain_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Plan`."""
    try:
        saved = SavedPlan.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Damage(f"{dotted(first['loc'])[:100] or 'the plan'}: {first['msg']}") from None
    except RecursionError:
        raise Damage("nested too deep") from None
    nodes = tuple(saved.nodes)
    _expect(all(node.rank == index for index, node in enumerate(nodes)), "the nodes are not in order")
    groups = {group.label: _group(group, len(nodes)) for group in saved.node_groups}
    _expect(len(groups) == len(saved.node_groups), "a node group is there twice")
    inventory = Inventory(nodes=nodes, groups=groups)
    components = {
        name: _component(name, component, inventory) for name, component in saved.components.items()
    }
    _expect(components.keys() >= saved.shares.keys(), "a share of a component that is not in the plan")
    _expect(components.keys() >= saved.supervise.keys(), "a policy of a component that is not in the plan")
    for name, policy in saved.supervise.items():
        spare = _ascending(policy.spare_nodes, len(nodes))
        _expect(spare, f"{name}: spare nodes that are not there, or twice")
    return {
        "inventory": inventory,
        "components": components,
        "findings": tuple(map(_finding, saved.findings)),
        "shares": saved.shares,
        "job_file": saved.job_file,
        "supervise": saved.supervise,
    }


def _expect(right: bool, otherwise: str) -> None:
    if not right:
        raise Damage(otherwise)


def _ascending(ranks: Iterable[int], stop: int) -> bool:
    known = list(ranks)
    return not known or (known[-1] < stop and known == sorted(set(known)))


def _holds(ranks: Sequence[int], rank: int) -> bool:
    """Whether ascending ranks hold this one. A search, because a group may have many nodes."""
    index = bisect_left(ranks, rank)
    return index < len(ranks) and ranks[index] == rank


def _group(saved: _SavedGroup, num_nodes: int) -> NodeGroup:
    subject = f"node group {saved.label[:64]!r}"
    _expect(bool(NAME.fullmatch(saved.label)) and saved.label not in RESERVED_LABELS, f"{subject}: its label")
    for ranks in (saved.node_ranks, *(env.node_ranks for env in saved.environments)):
        _expect(_ascending(ranks, num_nodes), f"{subject} names nodes that are not there, or twice")
    _expect(saved.hardware_type not in (ACCELERATOR, BARE_NODE), f"{subject}: its hardware type")
    for unit in saved.hardware:
        node = unit.get("node_rank")
        _expect(isinstance(node, int) and node in saved.node_ranks, f"{subject} has hardware elsewhere")
        _expect(_plain(unit, 0), f"{subject} has hardware that is not plain data")
    environments = tuple(
        NodeEnvironment(**{**dict(env), "env_vars": tuple(env.env_vars.items())})
        for env in saved.environments
    )
    hardware = tuple(map(HardwareUnit.from_dict, saved.hardware))
    return NodeGroup(**{**dict(saved), "hardware": hardware, "environments": environments})


def _plain(value: Any, depth: int) -> bool:
    if depth > 50:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_plain(item, depth + 1) for item in value)
    if isinstance(value, float):
        return not math.isnan(value)
    return value is None or isinstance(value, (str, bool)) or (isinstance(value, int) and abs(value) < 10**18)


def _component(name: str, saved: _SavedComponent, inventory: Inventory) -> ComponentPlan:
    _expect(bool(NAME.fullmatch(name)), f"{name[:64]!r} is not a component name")
    try:
        parse_ranks(saved.rule or "0")  # a strategy has no rule
    except RankSyntaxError:
        raise Damage(f"{name}: its rule cannot be read") from None
    labels = frozenset(saved.node_groups or ("cluster",))
    _expect(labels <= {*inventory.groups, *RESERVED_LABELS}, f"{name}: its node groups are not in the plan")
    _expect(bool(saved.processes), f"{name} has no processes")
    slots: dict[tuple[int, str, bool], Slot] = {}
    assignments: list[Assignment] = []
    for rank, process in enumerate(saved.processes):
        node, group, devices = process["node"], process["group"], tuple(process["devices"])
        _expect(node < len(inventory.nodes), f"{name} rank {rank} is not on a node of the plan")
        _expect(group in labels, f"{name} rank {rank} is in a node group that {name} does not name")
        key = (node, group, bool(devices))
        if key not in slots:
            slots[key] = _slot(inventory, *key)
        if not _ascending(devices, slots[key].count):
            raise Damage(f"{name} rank {rank} is on devices that do not exist")
        assignments.append((slots[key], devices))
    members = tuple(make_placements(assignments, saved.isolate_accelerator))
    same = saved.placements is None or saved.placements == [place.to_dict() for place in members]
    _expect(same, f"{name} shows other placements")
    whole = saved.engines is None or len(members) % saved.engines.processes == 0
    _expect(whole, f"{name}: its processes do not form whole engines")
    return ComponentPlan(
        name=name, rule=saved.rule, node_groups=saved.node_groups, members=members, engines=saved.engines
    )


def _slot(inventory: Inventory, node: int, label: str, holds_devices: bool) -> Slot:
    """The slot of a process that this group places on this node."""
    group, there = inventory.groups.get(label), inventory.nodes[node]
    _expect(group is None or _holds(group.node_ranks, node), f"node {node} is not in node group {label!r}")
    if not holds_devices:
        return Slot(there, label, BARE_NODE, 0, 1)
    if group is not None and group.hardware_type:
        units = sum(unit.node_rank == node for unit in group.hardware)
        return Slot(there, label, group.hardware_type, 0, units)
    return Slot(there, label, ACCELERATOR, 0, there.accelerators.count)


def _finding(saved: SavedFinding) -> Finding:
    _expect(saved.code in CODES, f"an unknown code {saved.code[:20]!r}")
    return Finding(**{name: value for name, value in saved if name != "severity"})
