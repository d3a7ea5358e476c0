"""Schemas of hardware types. They are apart from the units: processes of a job load those without pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from roost.errors import ConfigurationError, Path, close_to, first_line, nearest

_SCHEMAS: dict[str, tuple[Any, Any, frozenset[str]]] = {}  # schema, its validator, its fields


def register_hardware(type_name: str, schema: Any) -> None:
    """Check the `configs` of this hardware type against `schema`, a pydantic model or a dataclass.

    Hardware of an unregistered type may have any fields.
    """
    if type_name in _SCHEMAS and _SCHEMAS[type_name][0] is not schema:
        what = f"hardware type {type_name!r} is already registered with another schema"
        raise ConfigurationError(code="RI107", what=what)
    try:
        adapter = TypeAdapter(schema)
        known = frozenset(adapter.json_schema().get("properties", ()))
    except Exception as error:  # pydantic raises errors of many types
        raise ConfigurationError(
            code="RI107",
            what=f"the schema of hardware type {type_name!r} cannot be used",
            why=first_line(error, 200),
            remedy="give a pydantic model or a dataclass of plain fields",
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
