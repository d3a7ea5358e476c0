"""Hardware that is not an accelerator: robots, cameras, anything a node group declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.secret_names import holds_login, looks_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUnit:
    """One declared piece of hardware, on one node. Only its driver interprets its fields."""

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
