"""A saved plan back into a `Plan`. A file may be damaged or made up, so everything in it is checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from roost.config.job import RESERVED_LABELS
from roost.config.ranks import RankSyntaxError, parse_ranks
from roost.config.schema import NAME
from roost.errors import CODES, Finding, Span, dotted
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.hardware import HardwareUnit
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Accelerators, Node
from roost.placement.placement import Placement
from roost.planning.plan import ComponentPlan, Plan
from roost.planning.shares import share_problems

_Number = Annotated[int, Field(ge=0, le=10**9)]


class Damage(Exception):
    """Why a saved plan cannot be used."""


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _SavedAccelerators(_Saved):
    count: Annotated[int, Field(ge=0, le=4096)]
    type: str
    model: str
    memory_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


class _SavedNode(_Saved):
    rank: _Number
    ip: str
    hostname: str
    cpus: _Number | None
    accelerators: _SavedAccelerators


class _SavedEnvironment(_Saved):
    node_ranks: list[_Number]
    env_vars: dict[str, str | None]
    python_interpreter_path: str | None


class _SavedGroup(_Saved):
    label: str
    node_ranks: list[_Number]
    hardware_type: str | None
    hardware: list[dict[str, Any]]
    ignore_hardware: bool
    environments: list[_SavedEnvironment]


class _SavedPlacement(TypedDict):  # there are many: a dict costs less than a model
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    rank: _Number
    cluster_node_rank: _Number
    placement_node_rank: _Number
    local_accelerator_rank: Annotated[int, Field(ge=-1, le=4096)]
    accelerator_type: str
    local_rank: _Number
    local_world_size: _Number
    visible_accelerators: list[str]
    isolate_accelerator: bool
    local_hardware_ranks: list[_Number]
    node_group_label: str


class _SavedComponent(_Saved):
    rule: str
    node_groups: list[str]
    placements: list[_SavedPlacement]
    share: list[float] | None = None  # shown by `roost plan --json`; follows from the rest


class _SavedSpan(_Saved):
    source: str
    line: _Number
    column: _Number
    length: _Number


class _SavedFinding(_Saved):
    code: str
    severity: str
    what: str
    why: str
    remedy: str
    path: list[str | int]
    where: _SavedSpan | None


class _SavedPlan(_Saved):
    format_version: int
    digest: str
    nodes: Annotated[list[_SavedNode], Field(min_length=1)]
    node_groups: list[_SavedGroup]
    components: dict[str, _SavedComponent]
    shares: dict[str, Annotated[float, Field(ge=0.0001, le=1)]] = {}
    findings: list[_SavedFinding]
    checksum: str


_FORMAT = TypeAdapter(_SavedPlan)


def read_plan(data: Mapping[str, Any]) -> Plan:
    try:
        saved = _FORMAT.validate_python(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Damage(f"{dotted(first['loc'])[:100] or 'the plan'}: {first['msg']}") from None
    except RecursionError:
        raise Damage("nested too deep") from None
    nodes = tuple(
        Node(
            rank=node.rank,
            ip=node.ip,
            hostname=node.hostname,
            cpus=node.cpus,
            accelerators=Accelerators(**node.accelerators.model_dump()),
        )
        for node in saved.nodes
    )
    _expect(all(node.rank == index for index, node in enumerate(nodes)), "the nodes are not in order")
    groups = {group.label: _group(group, len(nodes)) for group in saved.node_groups}
    _expect(len(groups) == len(saved.node_groups), "a node group is there twice")
    inventory = Inventory(nodes=nodes, groups=groups)
    components = {
        name: _component(name, component, inventory) for name, component in saved.components.items()
    }
    findings = tuple(_finding(finding) for finding in saved.findings)
    _expect(components.keys() >= saved.shares.keys(), "a share of a component that is not in the plan")
    plan = Plan(inventory=inventory, components=components, findings=findings, shares=saved.shares)
    _expect(not share_problems(plan), "its shares do not add up")
    return plan


def _expect(right: bool, otherwise: str) -> None:
    if not right:
        raise Damage(otherwise)


def _ascending(ranks: Iterable[int], stop: int) -> bool:
    known = list(ranks)
    return not known or (known[-1] < stop and known == sorted(set(known)))


def _group(saved: _SavedGroup, num_nodes: int) -> NodeGroup:
    subject = f"node group {saved.label[:64]!r}"
    _expect(bool(NAME.fullmatch(saved.label)) and saved.label not in RESERVED_LABELS, f"{subject}: its label")
    for ranks in (saved.node_ranks, *(env.node_ranks for env in saved.environments)):
        _expect(_ascending(ranks, num_nodes), f"{subject} names nodes that are not there, or twice")
    for unit in saved.hardware:
        node = unit.get("node_rank")
        _expect(isinstance(node, int) and node in saved.node_ranks, f"{subject} has hardware elsewhere")
        _expect(_plain(unit, 0), f"{subject} has hardware that is not plain data")
    return NodeGroup(
        label=saved.label,
        node_ranks=tuple(saved.node_ranks),
        hardware_type=saved.hardware_type,
        hardware=tuple(map(HardwareUnit.from_dict, saved.hardware)),
        ignore_hardware=saved.ignore_hardware,
        environments=tuple(
            NodeEnvironment(
                node_ranks=tuple(env.node_ranks),
                env_vars=tuple(env.env_vars.items()),
                python_interpreter_path=env.python_interpreter_path,
            )
            for env in saved.environments
        ),
    )


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
        parse_ranks(saved.rule)
    except RankSyntaxError:
        raise Damage(f"{name}: its rule cannot be read") from None
    known = {*inventory.groups, *RESERVED_LABELS}
    _expect(known.issuperset(saved.node_groups), f"{name}: its node groups are not in the plan")
    _expect(bool(saved.placements), f"{name} has no processes")
    on_node: dict[int, int] = {}
    members = []
    for rank, place in enumerate(saved.placements):
        node = place["cluster_node_rank"]
        seen = on_node[node] = on_node.get(node, 0) + 1
        wrong = _misplaced(place, rank, seen, known, inventory)
        if wrong:
            raise Damage(f"{name} rank {rank} {wrong}")
        fields: Any = {
            key: item
            for key, item in place.items()
            if key not in ("visible_accelerators", "local_hardware_ranks")
        }
        visible, hardware = tuple(place["visible_accelerators"]), tuple(place["local_hardware_ranks"])
        members.append(Placement(visible=visible, hardware=hardware, **fields))
    order = {node: index for index, node in enumerate(on_node)}
    for placement in members:
        node = placement.cluster_node_rank
        if (placement.placement_node_rank, placement.local_world_size) != (order[node], on_node[node]):
            raise Damage(f"{name} rank {placement.rank} counts its nodes differently")
    return ComponentPlan(
        name=name, rule=saved.rule, node_groups=tuple(saved.node_groups), members=tuple(members)
    )


def _misplaced(place: _SavedPlacement, rank: int, seen: int, known: set[str], inventory: Inventory) -> str:
    """What is wrong with a placement by itself."""
    if place["rank"] != rank or place["local_rank"] != seen - 1:
        return "is not where its number says"
    if place["cluster_node_rank"] >= len(inventory.nodes):
        return "is not on a node of the plan"
    if place["node_group_label"] not in known:
        return "is in a group that is not in the plan"
    held = inventory.nodes[place["cluster_node_rank"]].accelerators
    group = inventory.groups.get(place["node_group_label"])
    count = held.count
    if group is not None and group.hardware_type:
        count = sum(unit.node_rank == place["cluster_node_rank"] for unit in group.hardware)
    if (
        not _ascending(place["local_hardware_ranks"], count)
        or place["local_accelerator_rank"] >= held.count
        or place["accelerator_type"] != held.type
        or not _numbers(held.count).issuperset(place["visible_accelerators"])
    ):
        return "is on devices that do not exist"
    return ""


@lru_cache(maxsize=64)
def _numbers(count: int) -> frozenset[str]:
    return frozenset(map(str, range(count)))


def _finding(saved: _SavedFinding) -> Finding:
    _expect(saved.code in CODES, f"an unknown code {saved.code[:20]!r}")
    where = None if saved.where is None else Span(excerpt="", **saved.where.model_dump())
    return Finding(
        code=saved.code,
        what=saved.what,
        why=saved.why,
        remedy=saved.remedy,
        path=tuple(saved.path),
        where=where,
    )
