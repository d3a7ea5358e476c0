"""Node groups: named sets of nodes with their hardware and environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from roost.errors import shown
from roost.secret_names import SecretText, hide_rest, hide_secrets, holds_login, looks_secret

SEPARATOR = re.compile("[=:]")  # of a variable's name and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUnit:
    """A robot, a camera or other hardware that a group declares, on one node. Only its driver interprets its fields."""

    node_rank: int
    fields: tuple[tuple[str, Any], ...]  # as written, without node_rank; values are plain data

    def to_dict(self) -> dict[str, Any]:
        """The unit as plain data, without the values of fields that look like secrets."""
        return {"node_rank": self.node_rank, **_thawed(("map", self.fields))}

    def __repr__(self) -> str:  # reprs end up in logs
        return f"HardwareUnit({self.to_dict()})"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HardwareUnit:
        fields = tuple((key, _frozen(value)) for key, value in data.items() if key != "node_rank")
        return cls(node_rank=int(data["node_rank"]), fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnvironment:
    """Environment and interpreter of the processes that a group places on some nodes."""

    node_ranks: tuple[int, ...]
    env_vars: tuple[tuple[str, str | None], ...] = ()  # None: a secret that was not saved
    python_interpreter_path: str | None = None

    def __repr__(self) -> str:  # values may be secrets, and reprs end up in logs
        names = ", ".join(name for name, _ in self.env_vars)
        return f"NodeEnvironment(node_ranks={self.node_ranks}, env_vars=({names}))"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A named set of nodes, and the resources that ranks count on them."""

    label: str
    node_ranks: tuple[int, ...]  # ascending
    hardware_type: str | None = None
    hardware: tuple[HardwareUnit, ...] = ()  # in order of node, then of listing
    ignore_hardware: bool = False
    environments: tuple[NodeEnvironment, ...] = ()

    def limited(self, num_nodes: int) -> NodeGroup:
        """The group with only its nodes among the first `num_nodes` of the cluster."""
        return replace(
            self,
            node_ranks=tuple(rank for rank in self.node_ranks if rank < num_nodes),
            hardware=tuple(unit for unit in self.hardware if unit.node_rank < num_nodes),
            environments=tuple(
                replace(env, node_ranks=tuple(rank for rank in env.node_ranks if rank < num_nodes))
                for env in self.environments
            ),
        )

    def places_like(self, other: NodeGroup) -> bool:
        """Whether both groups number the same resources. Their environments may differ."""

        def decisive(group: NodeGroup) -> tuple[object, ...]:
            units = tuple(unit.node_rank for unit in group.hardware)
            return group.node_ranks, group.hardware_type, units, group.ignore_hardware

        return decisive(self) == decisive(other)

    def without_secrets(self) -> NodeGroup:
        environments = tuple(
            replace(
                env,
                env_vars=tuple((name, _unless_secret(name, value)) for name, value in env.env_vars),
                python_interpreter_path=env.python_interpreter_path
                and _without_secret(env.python_interpreter_path),
            )
            for env in self.environments
        )
        hardware = tuple(HardwareUnit.from_dict(unit.to_dict()) for unit in self.hardware)
        return replace(self, environments=environments, hardware=hardware)


def variable_problem(name: str, value: Any) -> str:
    """What is wrong with a variable for a process; empty if nothing is."""
    cut = SEPARATOR.split(name, maxsplit=1)[0]  # the rest may be a secret
    if cut != name and value is None:
        return f"{shown(cut)} without a value"
    if not name or "=" in name or "\0" in name:
        return f"{shown(cut + '=...' if cut != name else name)} is not a variable name"
    if value is None or isinstance(value, (dict, list)):
        return f"the value of {name} must be text or a number"
    return f"the value of {name} holds a NUL character" if "\0" in str(value) else ""


def _unless_secret(name: str, value: str | None) -> str | None:
    """The value, or None if it is secret: `--api-key=x` is, under any name."""
    if not value:  # nothing to hide; it may switch something off
        return value
    if looks_secret(name, value):
        return None
    return value if hide_secrets(value) == value else None


def _without_secret(path: str) -> str:
    return "***" if isinstance(path, SecretText) else hide_rest(path)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ("map", tuple((str(key), _frozen(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_frozen(item) for item in value))
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple):
        kind, items = value
        if kind == "list":
            return [_thawed(item) for item in items]
        return {key: None if looks_secret(key, item) else _thawed(item) for key, item in items}
    return None if holds_login(value) else value
