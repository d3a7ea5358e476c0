"""The saved plan: JSON with a format version, written for its owner only, read back identical."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from roost.errors import ConfigurationError, Finding, Span
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.hardware import HardwareUnit
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Accelerators, Node
from roost.placement.placement import Placement
from roost.planning.plan import FORMAT_VERSION, ComponentPlan, Plan

MAX_BYTES = 1 << 30


def _refuse(
    what: str, why: str = "", remedy: str = "make it anew with `roost plan -o`"
) -> ConfigurationError:
    return ConfigurationError(Finding(code="RS101", what=what, why=why, remedy=remedy))


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "digest": plan.digest,
        "nodes": [asdict(node) for node in plan.inventory.nodes],
        "node_groups": [_group_to_dict(group) for group in plan.inventory.groups.values()],
        "components": {
            name: {
                "rule": component.rule,
                "node_groups": list(component.node_groups),
                "placements": [placement.to_dict() for placement in component.members],
            }
            for name, component in plan.components.items()
        },
        "findings": [finding.to_dict() for finding in plan.findings],
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    if not isinstance(data, Mapping) or data.get("format_version") != FORMAT_VERSION:
        version = data.get("format_version") if isinstance(data, Mapping) else None
        raise _refuse(f"not a saved plan of format {FORMAT_VERSION} (format_version is {version!r})")
    try:
        plan = _rebuild(data)
        digest = plan.digest
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise _refuse("a damaged plan", f"{type(error).__name__}: {error}"[:200]) from None
    if digest != data.get("digest"):
        raise _refuse("the plan does not match its digest", "it was edited after it was made")
    return plan


def _rebuild(data: Mapping[str, Any]) -> Plan:
    nodes = tuple(
        Node(**{**entry, "accelerators": Accelerators(**entry["accelerators"])}) for entry in data["nodes"]
    )
    groups = {entry["label"]: _group_from_dict(entry) for entry in data["node_groups"]}
    components = {
        name: ComponentPlan(
            name=name,
            rule=entry["rule"],
            node_groups=tuple(entry["node_groups"]),
            members=tuple(map(Placement.from_dict, entry["placements"])),
        )
        for name, entry in data["components"].items()
    }
    for component in components.values():
        for rank, place in enumerate(component.members):
            if place.rank != rank or not 0 <= place.cluster_node_rank < len(nodes):
                raise ValueError(f"{component.name} rank {rank} is not on a node of the plan")
    return Plan(
        inventory=Inventory(nodes=nodes, groups=MappingProxyType(groups)),
        components=MappingProxyType(components),
        findings=tuple(map(_finding_from_dict, data["findings"])),
    )


def _finding_from_dict(entry: Mapping[str, Any]) -> Finding:
    where = entry["where"]
    return Finding(
        code=entry["code"],
        what=entry["what"],
        why=entry["why"],
        remedy=entry["remedy"],
        path=tuple(entry["path"]),
        where=Span(excerpt="", **where) if where else None,
    )


def _group_to_dict(group: NodeGroup) -> dict[str, Any]:
    return {
        "label": group.label,
        "node_ranks": list(group.node_ranks),
        "hardware_type": group.hardware_type,
        "hardware": [unit.to_dict() for unit in group.hardware],
        "ignore_hardware": group.ignore_hardware,
        "environments": [
            {
                "node_ranks": list(env.node_ranks),
                "env_vars": dict(env.env_vars),
                "python_interpreter_path": env.python_interpreter_path,
            }
            for env in group.environments
        ],
    }


def _group_from_dict(entry: Mapping[str, Any]) -> NodeGroup:
    return NodeGroup(
        label=entry["label"],
        node_ranks=tuple(entry["node_ranks"]),
        hardware_type=entry["hardware_type"],
        hardware=tuple(map(HardwareUnit.from_dict, entry["hardware"])),
        ignore_hardware=entry["ignore_hardware"],
        environments=tuple(
            NodeEnvironment(
                node_ranks=tuple(env["node_ranks"]),
                env_vars=tuple(env["env_vars"].items()),
                python_interpreter_path=env["python_interpreter_path"],
            )
            for env in entry["environments"]
        ),
    )


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write by rename, readable by its owner only."""
    target = FilePath(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
    except OSError as error:
        raise _refuse(f"{target}: cannot be written", error.strerror or "", "choose another place") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plan.to_dict(), file, indent=1)
            file.write("\n")
        FilePath(name).replace(target)
    except BaseException as error:
        FilePath(name).unlink()
        if isinstance(error, OSError):
            raise _refuse(
                f"{target}: cannot be written", error.strerror or "", "choose another place"
            ) from None
        raise


def load_plan(path: str | os.PathLike[str]) -> Plan:
    source = FilePath(path)
    try:
        if source.stat().st_size > MAX_BYTES:
            raise _refuse(f"{source}: larger than {MAX_BYTES:,} bytes")
        data = json.loads(source.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ConfigurationError):
            raise
        reason = getattr(error, "strerror", None) or str(error)[:200]
        raise _refuse(f"{source}: cannot be read", reason, "check the path") from None
    return plan_from_dict(data)
