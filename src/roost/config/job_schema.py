"""The JSON Schema of a job file, for editors, from the models that read it."""

from __future__ import annotations

from typing import Any

from roost.config.program import ProgramSections
from roost.config.schema import OLDER_KEYS, ClusterConfig
from roost.config.supervise import SupervisedJob

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"  # the draft that every editor knows
_INTERPOLATION = {"$ref": "#/$defs/Interpolation"}
_ABOUT = {
    "cluster": "the nodes of the job, and where its components run",
    "supervise": "what is done when processes of a component fail, by component",
    "workers": "the class of each component",
    "driver": "module:function, called as main(run, config)",
}
# Training code may have a section `workers` of its own; that of a job for roost names classes, or has a driver.
_HAS_CLASS = {"type": "object", "required": ["class"]}
_NAMES_CLASSES = {"type": "object", "not": {"additionalProperties": {"not": _HAS_CLASS}}}
_IS_PROGRAM = {
    "required": ["workers"],
    "anyOf": [
        {"properties": {"workers": {"type": "object"}, "driver": {"type": "string"}}, "required": ["driver"]},
        {"properties": {"workers": _NAMES_CLASSES}},
    ],
}


def job_schema() -> Schema:
    """The JSON Schema of a job. Every job that roost accepts fits it; roost may refuse more."""
    definitions: Schema = {"Interpolation": {"type": "string", "pattern": r"\$\{", "title": "${...}"}}
    found: Schema = {}
    for model in (SupervisedJob, ProgramSections):
        schema = tidied(model.model_json_schema())
        definitions |= schema.pop("$defs", {})
        found |= schema["properties"]
    cluster = tidied(ClusterConfig.model_json_schema())
    definitions |= cluster.pop("$defs")
    unused = {"deprecated": True, "description": "a key of an older system, which does nothing here"}
    cluster["properties"] |= {name: dict(unused) for name in sorted(OLDER_KEYS)}
    program = {name: found.pop(name) for name in ("workers", "driver")}
    schema = {
        "title": "A roost job",
        "type": "object",
        "required": ["cluster"],
        "properties": {
            "cluster": cluster,
            "supervise": {"anyOf": [found["supervise"], {"type": "null"}]},
            **{name: {} for name in program},
        },
        "if": _IS_PROGRAM,
        "then": {"properties": program},
        "$defs": definitions,
    }
    _allow_interpolations(schema)
    for name, words in _ABOUT.items():
        schema["properties"][name]["description"] = words
    return {"$schema": DRAFT, **schema}


def tidied(schema: Any) -> Any:
    """A schema from pydantic with the usual names of bounds, and without titles that only repeat a key.

    A union becomes `anyOf`, because for a validator a text may fit two members at once.
    """
    if isinstance(schema, list):
        return [tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    names = {"ge": "minimum", "le": "maximum", "oneOf": "anyOf"}
    kept = {names.get(key, key): value for key, value in schema.items() if not _is_title(key, value)}
    kept.pop("discriminator", None)
    return {key: tidied(value) for key, value in kept.items() if key != "default" or value is not None}


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)  # else it is a property of this name


def _allow_interpolations(schema: Schema) -> None:
    """Let every value be an interpolation such as ${sizes.actor}, which is resolved later."""
    if "properties" in schema:
        schema["properties"] = {name: _opened(part) for name, part in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = _opened(schema[key])
    inner = [schema["then"]] if "then" in schema else []
    for part in (*schema.get("$defs", {}).values(), *schema.get("anyOf", ()), *inner):
        _allow_interpolations(part)


def _opened(part: Schema) -> Schema:
    _allow_interpolations(part)
    if not part or _takes_text(part):
        return part
    about: Schema = {key: part.pop(key) for key in ("description", "default", "deprecated") if key in part}
    members = part["anyOf"] if set(part) == {"anyOf"} else [part] if part else []
    return {**about, "anyOf": [*members, _INTERPOLATION]} if members else about


def _takes_text(part: Schema) -> bool:
    kinds = part.get("type", ())
    plain = "string" in ([kinds] if isinstance(kinds, str) else kinds) and not {"enum", "pattern"} & set(part)
    return plain or any(map(_takes_text, part.get("anyOf", ())))
