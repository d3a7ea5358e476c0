"""The saved plan: JSON with a format version, read back identical."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from roost.config.document import read_text
from roost.config.json_text import read_json
from roost.errors import ConfigurationError, Finding
from roost.planning.files import write_file
from roost.planning.plan import FORMAT_VERSION, Plan

MAX_BYTES = 1 << 30


def _refuse(
    what: str, why: str = "", remedy: str = "make it anew with `roost plan -o`"
) -> ConfigurationError:
    return ConfigurationError(Finding(code="RS101", what=what, why=why, remedy=remedy))


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    data = _content(plan)
    return {**data, "checksum": _checksum(data)}


def _checksum(data: Mapping[str, Any]) -> str:
    """Of all a saved plan says, in whatever order and spacing; the digest stands for its decisions only."""
    counted = {
        **{key: value for key, value in data.items() if key != "checksum"},
        "components": {
            name: {key: value for key, value in component.items() if key != "share"}  # which --json adds
            for name, component in data["components"].items()
        },
    }
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _content(plan: Plan) -> dict[str, Any]:
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
    if data.get("checksum") != _checksum(data):
        raise _refuse("the plan does not match its checksum", "it was edited after it was made")
    return plan


def plan_text(plan: Plan) -> str:
    return json.dumps(plan.to_dict(), indent=1) + "\n"


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    write_file(path, plan_text(plan), private=True)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    source = FilePath(path)
    try:
        text = read_text(source, MAX_BYTES)
    except ConfigurationError as error:
        problem = error.findings[0]
        raise _refuse(problem.what, problem.why, problem.remedy) from None
    try:
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        reason = error.findings[0].what if isinstance(error, ConfigurationError) else str(error)
        raise _refuse(f"{source}: this is not a saved plan", reason[:200]) from None
    return plan_from_dict(data)
