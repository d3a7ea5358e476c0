"""Hardware that is not an accelerator: robots, cameras, anything a node group declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from roost.errors import ConfigurationError, Finding, Path, close_to, nearest
from roost.secret_names import holds_login, looks_secret

_SCHEMAS: dict[str, tuple[Any, Any, frozenset[str]]] = {}  # schema, its validator, its fields


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
        return (
            {key: None if looks_secret(key, item) else _thawed(item) for key, item in items}
            if kind == "map"
            else [_thawed(item) for item in items]
        )
    return None if holds_login(value) else value


def register_hardware(type_name: str, schema: Any) -> None:
    """Check the `configs` of this hardware type against `schema`, a pydantic model or a dataclass.

    Hardware of an unregistered type may have any fields.
    """
    if type_name in _SCHEMAS and _SCHEMAS[type_name][0] is not schema:
        raise ConfigurationError(
            Finding(
                code="RI107", what=f"hardware type {type_name!r} is already registered with another schema"
            )
        )
    try:
        adapter = TypeAdapter(schema)
        known = frozenset(adapter.json_schema().get("properties", ()))
    except Exception as error:  # pydantic raises errors of many types
        raise ConfigurationError(
            Finding(
                code="RI107",
                what=f"the schema of hardware type {type_name!r} cannot be used",
                why=str(error).partition("\n")[0][:200],
                remedy="give a pydantic model or a dataclass of plain fields",
            )
        ) from None
    _SCHEMAS[type_name] = (schema, adapter, known)


def hardware_problems(type_name: str, entry: Mapping[str, Any]) -> list[tuple[Path, str, str]]:
    """The problems of an entry by the schema of its type: (path inside the entry, reason, remedy) each."""
    if type_name not in _SCHEMAS:
        return []
    _, adapter, known = _SCHEMAS[type_name]
    data = {key: item for key, item in entry.items() if key in known}
    problems: list[tuple[Path, str, str]] = [
        ((key,), f"unknown field {key!r}", nearest(key, known))
        for key in entry
        if key not in known and key != "node_rank"
    ]
    misspelt = {close_to(str(path[0]), known) for path, _, _ in problems}
    try:
        adapter.validate_python(data)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:20]:
            where = tuple(item["loc"])
            name = ".".join(map(str, where))
            if item["type"] != "missing":
                problems.append((where, f"{name}: {item['msg'].removeprefix('Value error, ')}", ""))
            elif name not in misspelt:
                problems.append(((), f"{name} is missing", f"add `{name}: ...`"))
    except Exception as error:  # raised by a validator of the schema
        problems.append(((), f"its schema raised {type(error).__name__}", ""))
    return problems
