"""The saved plan: JSON with a format version, read back identical."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from roost.errors import ConfigurationError, Finding
from roost.planning.plan import FORMAT_VERSION, Plan
from roost.planning.private_files import write_private

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
        "node_groups": [
            {
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
            for group in plan.inventory.groups.values()
        ],
        "components": {
            name: {
                "rule": component.rule,
                "node_groups": list(component.node_groups),
                "placements": [placement.to_dict() for placement in component.members],
            }
            for name, component in plan.components.items()
        },
        **({"shares": dict(plan.shares)} if plan.shares else {}),
        "findings": [finding.to_dict() for finding in plan.findings],
    }


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    from roost.planning.reading import Damage, read_plan

    version = data.get("format_version") if isinstance(data, Mapping) else None
    if isinstance(version, bool) or version != FORMAT_VERSION:
        raise _refuse(f"this is not a saved plan of format {FORMAT_VERSION}")
    try:
        plan = read_plan(data)
    except Damage as damage:
        raise _refuse("the plan is damaged", str(damage)) from None
    if plan.digest != data.get("digest"):
        raise _refuse("the plan does not match its digest", "it was edited after it was made")
    return plan


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    write_private(path, json.dumps(plan.to_dict(), indent=1) + "\n")


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
