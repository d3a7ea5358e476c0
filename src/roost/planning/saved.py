"""The saved plan: JSON with a format version, written for its owner only, read back identical."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from roost.errors import ConfigurationError, Finding
from roost.planning.plan import FORMAT_VERSION, Plan

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
    """Write by rename, readable by its owner only."""
    target = FilePath(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".roost-")  # mode 0600
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plan.to_dict(), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())  # the rename must not be seen before the content
        FilePath(name).replace(target)
    except BaseException as error:
        FilePath(name).unlink(missing_ok=True)
        if isinstance(error, (OSError, ValueError)):
            raise _unwritable(target, error) from None
        raise


def _unwritable(target: FilePath, error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or str(error)
    return _refuse(f"{target}: cannot be written", reason, "choose another place")


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
