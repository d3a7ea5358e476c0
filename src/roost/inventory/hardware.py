"""Hardware that is not an accelerator: robots, cameras, anything a node group declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import ConfigurationError, Finding, looks_secret

_SCHEMAS: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUnit:
    """One declared piece of hardware, on one node. Its fields mean something only to its own driver."""

    node_rank: int
    fields: tuple[tuple[str, Any], ...]  # as written, without node_rank; values are plain data

    def to_dict(self) -> dict[str, Any]:
        """Without the values of fields that look like secrets."""
        shown = {key: None if looks_secret(key) else _thawed(value) for key, value in self.fields}
        return {"node_rank": self.node_rank, **shown}

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
        return (
            {key: _thawed(item) for key, item in items}
            if kind == "map"
            else [_thawed(item) for item in items]
        )
    return value


def register_hardware(type_name: str, schema: Any) -> None:
    """Check the `configs` of this hardware type against `schema`, a pydantic model or a dataclass.

    A type nobody registered takes any fields.
    """
    if _SCHEMAS.get(type_name, schema) is not schema:
        raise ConfigurationError(
            Finding(
                code="RI107", what=f"hardware type {type_name!r} is already registered with another schema"
            )
        )
    _SCHEMAS[type_name] = schema


def hardware_problems(type_name: str, entry: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """What a registered type has to say against an entry: (path inside it, reason) each."""
    schema = _SCHEMAS.get(type_name)
    if schema is None:
        return []
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(schema)
    known = set(adapter.json_schema().get("properties", ()))
    data = (
        dict(entry)
        if "node_rank" in known
        else {key: item for key, item in entry.items() if key != "node_rank"}
    )
    problems = [
        ((key,), "unknown field; known: " + ", ".join(sorted(known))) for key in data if key not in known
    ]
    try:
        adapter.validate_python({key: item for key, item in data.items() if key in known})
    except ValidationError as error:
        problems += [(item["loc"], item["msg"]) for item in error.errors()]  # type: ignore[misc]
    return problems  # type: ignore[return-value]
