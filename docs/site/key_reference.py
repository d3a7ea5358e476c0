"""The keys of a job file, from the JSON Schema that roost publishes."""

from __future__ import annotations

from typing import Any

from page_parts import WRITTEN, cell

from roost.config.job_schema import job_schema


def configuration() -> str:
    schema = job_schema()
    parts = [
        "# Keys of a job file\n",
        WRITTEN,
        "Every key that roost reads. [Configuration](../configuration.md) says what they mean and shows them in use. "
        "Any value may also be an interpolation such as `${nodes}`. Sections that are not listed belong to your program.\n",
        "## The file\n",
        keys(dict(schema, required=["cluster"]), schema),
        "## `cluster`\n",
        keys(object_in(schema["properties"]["cluster"]), schema),
    ]
    for name in ("supervise", "workers"):
        section = schema["properties"][name] if name == "supervise" else schema["then"]["properties"][name]
        parts.append(f"## `{name}`\n\nA mapping of component to {words(values_of(section), schema)}.\n")
    for name, definition in schema["$defs"].items():
        if "properties" in definition:
            about = f"{definition['description']}\n\n" if "description" in definition else ""
            parts.append(f"## {name}\n\n{about}{keys(definition, schema)}")
    return "\n".join(parts)


def object_in(part: dict[str, Any]) -> dict[str, Any]:
    """The member of a union that has keys."""
    return next(one for one in [part, *part.get("anyOf", ())] if one.get("type") == "object")


def values_of(part: dict[str, Any]) -> dict[str, Any]:
    inner = object_in(next((one for one in part.get("anyOf", ()) if "anyOf" in one), part))
    found: dict[str, Any] = inner["additionalProperties"]
    return found


def keys(section: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    required = section.get("required", ())
    for name, part in section["properties"].items():
        kind = words(
            schema.get("then", {}).get("properties", {}).get(name, part) if not part.get("anyOf") else part,
            schema,
        )
        default = (
            "required" if name in required else f"`{plain(part['default'])}`" if "default" in part else ""
        )
        if part.get("deprecated"):
            kind = "anything"
        rows.append(f"| `{name}` | {cell(kind)} | {default} | {cell(part.get('description', ''))} |")
    return "\n".join([*rows, ""])


def plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """A part of a schema in words, with links to its sections."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in part:
        return " or ".join(f"`{one}`" for one in part["enum"])
    if "anyOf" in part:
        members = [words(one, schema) for one in part["anyOf"] if not is_aside(one)]
        return " or ".join(dict.fromkeys(members))
    kind = part.get("type")
    if kind == "array":
        return f"list of {words(part.get('items', {}), schema)}"
    if kind == "object":
        inner = part.get("additionalProperties")
        if "properties" in part:
            return "section"
        return f"mapping to {words(inner, schema)}" if isinstance(inner, dict) and inner else "mapping"
    if kind in ("integer", "number"):
        named = {"minimum": "from", "maximum": "to", "exclusiveMinimum": "above"}
        bounds = [f"{word} {part[key]:,}" for key, word in named.items() if key in part]
        return " ".join(["whole number" if kind == "integer" else "number", *bounds])
    if kind == "boolean":
        return "`true` or `false`"
    return "text" if kind == "string" or kind == ["string", "integer"] else "anything"


def is_aside(part: dict[str, Any]) -> bool:
    return part.get("type") == "null" or part.get("$ref", "").endswith("/Interpolation")
