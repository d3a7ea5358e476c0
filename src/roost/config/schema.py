"""The pydantic schema of the `cluster` section, and `validate`, which puts pydantic's errors into our words.

The rest of roost uses its own records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, Field, Tag, ValidationError

from roost.config.document import Document, Findings
from roost.config.fields import TAGS, Count, Section, Share, Text, TextOrTexts, by_kind
from roost.config.layout_section import LayoutSection
from roost.config.ranks import RankSyntaxError, parse_ranks
from roost.errors import Finding, Path, close_to, nearest, shown
from roost.secret_names import hide_secrets

OLDER_KEYS = frozenset(
    (
        "profiling",
        "nsight",
        "tracer",
        "net_emulation",
        "auto_scheduler",
        "use_pre_process_policy",
        "use_wait_before_last_iter_policy",
        "recreate_nccl_groups",
    )
)
_PRIVATE = frozenset(("env_vars", "hardware"))  # messages do not quote these values: they may be secrets
_MOST_PROBLEMS = 100
MAX_PATH = 4_096  # characters; the limit of Linux
_EXAMPLES = {
    "placement": "0-7",
    "node_ranks": "0-1",
    "label": "a800",
    "node_group": "a800",
    "type": "Franka",
    "num_gpus": "8",
    "groups": "[{num_gpus: 8}]",
    "sglang": "[{name: policy, server_groups: [{num_gpus: 8}]}]",
    "name": "policy",
    "nodes": "[{accelerators: 8}]",
    "count": "8",
    "class": "my.module:Actor",
}
_ALIASES = dict.fromkeys(("gpu", "gpus", "num_gpus"), "accelerators")
_WHOLE = ("it should be a whole number", "write digits only, such as 4")
_NUMBER = ("it should be a number", "write a number, such as 80")
_TRUTH = ("it should be true or false", "write true or false")
_LIST = ("it should be a list", "write its entries after dashes, one on each line, or in [...]")
_MAPPING = ("it should be a mapping", "write `key: value` lines under it")
_ELSEWHERE: dict[Path, str] = {
    ("layout", "shares"): "write `shares` under `cluster`, beside `layout`",
    ("layout", "component_placement"): "write `component_placement` under `cluster`, beside `layout`",
    ("layout", "prefill_num_servers"): "list `servers` with groups of kind prefill and decode",
    ("layout", "sglang_config"): "list its servers under `servers`",
}
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # in a model, in a dataclass
_FORMS = {  # for each error type of pydantic: the form we want, and how to write it
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), _NUMBER),
    **dict.fromkeys(("bool_parsing", "bool_type"), _TRUTH),
    "string_type": ("it should be text", "put it in quotes"),
    "string_too_short": ("it is empty", "write its name"),
    "string_too_long": ("it is longer than a path can be", "write the path of a Python"),
    "too_short": ("it is empty", "list at least one entry"),
    **dict.fromkeys(("list_type", "tuple_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type"), _MAPPING),
}


class PlacementRule(Section):
    """A component's placement on node groups."""

    node_group: TextOrTexts | None = Field(
        None, description="a label, `a,b`, or a list; omitted: the whole cluster"
    )
    placement: Text = Field(description="ranks, such as 0-7 or 0-3:0-7")


WrittenPlacement = Annotated[
    Annotated[Text, Tag("text")] | Annotated[PlacementRule, Tag("rule")],
    by_kind((dict, PlacementRule), "rule", "text"),
]
EnvVars = Annotated[
    Annotated[dict[str, Any], Tag("map")] | Annotated[list[dict[str, Any]], Tag("maps")],
    by_kind(list, "maps", "map"),
]


class EnvConfig(Section):
    node_ranks: TextOrTexts = Field(description="nodes of the group, or `all` of them")
    env_vars: EnvVars | None = Field(
        None,
        repr=False,
        description="variables and their values: a mapping, or a list of mappings of one key",
    )
    python_interpreter_path: str | None = Field(
        None, max_length=MAX_PATH, description="the Python that runs processes there"
    )


class HardwareConfig(Section):
    type: str = Field(min_length=1, description="the kind of hardware, such as Franka; ranks count its units")
    configs: list[dict[str, Any]] | None = Field(
        None, repr=False, description="one entry a unit: its `node_rank`, and fields for its driver"
    )


class NodeGroupConfig(Section):
    label: Text = Field(description="the group's name; `cluster` and `node` are taken")
    node_ranks: TextOrTexts = Field(description="3, 0-3, `0,2`, `all`, or a list of these")
    env_configs: list[EnvConfig] | None = Field(
        None, description="environment of processes placed through the group"
    )
    hardware: HardwareConfig | None = Field(None, description="robots and the like, which ranks then count")
    ignore_hardware: bool = Field(False, description="count nodes, whatever is in them")


class ClusterConfig(Section):
    num_nodes: Count | None = Field(None, description="the first so many nodes; omitted: all")
    component_placement: dict[str, WrittenPlacement] = Field(
        default_factory=dict,
        description="a placement such as 0-7, or node_group and placement, by component; "
        "`actor,rollout: 0-7` places two alike",
    )
    layout: LayoutSection | None = Field(
        None, description="one pool of accelerators, cut among training and rollout"
    )
    shares: dict[str, Share] | None = Field(
        None, description="how much of an accelerator each component is charged where it shares one"
    )
    node_groups: list[NodeGroupConfig] | None = Field(
        None, description="named sets of nodes that components are placed on"
    )


Model = TypeVar("Model", bound=BaseModel)


def validate(
    model: type[Model], data: Any, document: Document, path: Path, ignored: Iterable[str] = ()
) -> tuple[Model | None, Findings]:
    """The data as `model`, or all its problems with their positions."""
    findings = Findings(document)
    if isinstance(data, dict):
        for key in ignored:
            if key in data:
                what = f"`{key}` belongs to the older system and does nothing here"
                findings.add("RW106", what, (*path, key), key=True, remedy="remove it when convenient")
        data = {key: value for key, value in data.items() if key not in set(ignored)}
    try:
        return model.model_validate(data), findings
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)[:_MOST_PROBLEMS]
    located = [(problem, _steps(data, problem["loc"])) for problem in problems]
    unknown = [steps for problem, steps in located if problem["type"] in _UNKNOWN_KEY]
    for problem, steps in located:
        if problem["type"] != "missing" or not any(
            other[:-1] == steps[:-1] and close_to(str(other[-1]), _keys_at(model, steps[:-1])) == steps[-1]
            for other in unknown
        ):  # do not report a misspelt key as missing too
            findings.append(_explain(model, problem, document, path, steps))
    return None, findings


def _steps(data: Any, loc: tuple[Any, ...]) -> Path:
    """Pydantic's path without the tags of unions: the path in the data."""
    steps: list[str | int] = []
    for step in loc:
        if (isinstance(data, Mapping) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and step < len(data)
        ):
            data = data[step]
        elif step in TAGS:
            continue
        steps.append(step)
    return tuple(steps)


def _explain(model: type[BaseModel], problem: Any, document: Document, path: Path, steps: Path) -> Finding:
    here = (*path, *steps)
    name = str(here[-1]) if here else document.name
    if here[-2:-1] == ("shares",):
        name = f"share of {name}"
    kind = problem["type"]
    value = problem.get("input")
    if kind in _UNKNOWN_KEY:
        known = _keys_at(model, steps[:-1])
        alias = _ALIASES.get(name)
        meant = f"did you mean {alias!r}?" if alias in known else _space(name, value)
        if not meant and model is ClusterConfig and not steps[1:]:
            meant = _misplaced_component(name, value, known)
        remedy = _ELSEWHERE.get(here[-2:]) or meant or nearest(name, known)
        return document.finding("RC101", f"unknown key {name!r}", here, key=True, remedy=remedy)
    if kind == "missing":
        example = _EXAMPLES.get(name, "...")
        owner = f"{here[-2]}: " if len(here) > 1 and isinstance(here[-2], str) else ""
        what, remedy = f"{owner}{name!r} is missing", f"add `{name}: {example}`"
        return document.finding("RC102", what, here, key=True, remedy=remedy)
    if kind in ("greater_than_equal", "less_than_equal", "greater_than"):
        wanted = problem["msg"].replace("Input should be", "it must be")
        wanted = wanted.replace("greater than or equal to", "at least")
        wanted = wanted.replace("less than or equal to", "at most")
        return document.finding("RC104", f"{name}: {_seen(value, here)} is out of range", here, remedy=wanted)
    form, example = _FORMS.get(kind, (problem["msg"].removeprefix("Value error, "), ""))
    label = f"entry {name} of {here[-2]}" if _is_index(here) else name
    if kind == "literal_error":
        form = problem["msg"].replace("Input should be", "it should be")
        example = form.replace("it should be", "write")
    if here[-2:-1] == ("component_placement",):
        name = "placement"
    if kind == "string_type" and (
        name in ("placement", "node_ranks", "class") or isinstance(value, (dict, list))
    ):
        example = f"write it as `{here[-1]}: {_EXAMPLES.get(name, 'text')}`"
        if _is_index(here):
            around = str(here[-2])
            example = f"write one value for each entry, such as `{around}: [{_EXAMPLES.get(around, 'text')}]`"
    elif here[-2:-1] == ("shares",):
        example = "write a number above 0, at most 1, such as 0.5"
    elif kind == "dict_type" and "env_vars" in here:
        form, example = "it should be a variable and its value", "write `NAME: value`"
    elif kind == "dict_type" and isinstance(value, str) and (unspaced := _UNSPACED.match(value)):
        example = f"put a space after `{unspaced[1]}:`"
    if value is None or value == "":
        if kind == "string_type":
            example = f"write it, such as `{here[-1]}: {_EXAMPLES.get(name, 'text')}`"
            example = "write a value, or remove the entry" if _is_index(here) else example
        slip = _space(str(here[-1]), value)
        what, remedy = f"{label}: the value is missing", slip or example
        return document.finding("RC103", what, here, key=bool(slip), why=form, remedy=remedy)
    written = document.positions.texts.get(here)
    seen = (
        f"`{hide_secrets(written)[:60]}`"
        if written and not _PRIVATE.intersection(here)
        else _seen(value, here)
    )
    return document.finding("RC103", f"{label}: {seen} does not fit", here, why=form, remedy=example)


_UNSPACED = re.compile(r"([\w.,-]{1,60}):\S")  # a key and its value that YAML read as one text


def _space(name: str, value: Any) -> str:
    """The remedy for a key such as `actor:0-7` without a value; empty for any other key."""
    key, colon, _ = name.partition(":")
    return f"put a space after `{key}:`" if colon and value in (None, "") else ""


def _misplaced_component(name: str, value: Any, known: Iterable[str]) -> str:
    """The remedy for a component written directly under `cluster`; empty for any other key."""
    if isinstance(value, dict):
        if "placement" not in value:
            return ""
    elif close_to(name, known) == "num_nodes" or not _is_placement(value):
        return ""
    key = f"'{name}'" if "," in name else name
    rule = "{...}" if isinstance(value, dict) else value
    return f"if it is a component, write it under `component_placement`: `component_placement: {{{key}: {rule}}}`"


def _is_placement(value: Any) -> bool:
    try:
        parse_ranks(str(value))
    except RankSyntaxError:
        return False
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _is_index(path: Path) -> bool:
    return len(path) > 1 and isinstance(path[-1], int)


def _seen(value: Any, path: Path) -> str:
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return "this text" if isinstance(value, str) and _PRIVATE.intersection(path) else shown(value)


def _keys_at(model: type, steps: Path) -> set[str]:
    """The keys that the schema knows at a path of the data."""
    keys = _annotations(model)
    for step in steps:
        # An index, or a key of a mapping, is no field: the item's model was found with the list or mapping.
        inner = _model_in(keys.get(step))
        keys = keys if inner is None else _annotations(inner)
    return set(keys)


def _annotations(model: Any) -> dict[Any, Any]:
    """The fields of a model or of a dataclass, with their types."""
    if is_dataclass(model):
        return get_type_hints(model)
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> Any:
    """The first model or dataclass in an annotation such as `list[Model] | None`."""
    if parts := getattr(annotation, "__args__", ()):  # not `get_args`: it adds the metadata of `Annotated`
        return next(filter(None, map(_model_in, parts)), None)
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model or is_dataclass(annotation) else None
