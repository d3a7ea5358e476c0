"""Reads inventories from text, files and dicts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import BaseModel, Field, GetPydanticSchema, Tag
from pydantic_core import core_schema

from roost.config.document import Document, parse, read_file
from roost.config.fields import Count, NonNegativeInt, Rank, Section, Text, by_kind
from roost.config.plain_data import plain_mapping, read_json
from roost.config.schema import validate
from roost.config.text_files import read_text
from roost.errors import ConfigurationError, Finding, Span, counted, dotted, error_for, nearest, shown
from roost.inventory.accelerators import AcceleratorType, known_accelerators
from roost.inventory.nodes import NO_ACCELERATORS, Accelerators, Node

MAX_NODES = 200_000
MAX_ACCELERATORS = 4_096  # on one node
MAX_FILE_BYTES = 32 << 20
MAX_PLACED = 1 << 20  # characters; longer JSON is not read again to find the positions of its problems
FORMAT_VERSION = 1
AN_INVENTORY = ("an inventory is a mapping with `nodes`", "write nodes: [{accelerators: 8}, ...]")
_SHAPE = re.compile(r"\s*([0-9]{1,7})\s*[xX]\s*([0-9]{1,4})\s*(?::\s*([\w. -]{1,40}?)\s*)?", re.ASCII)
# The fields of nodes are checked here: worker processes load nodes, but not pydantic.
AcceleratorCount = Annotated[Rank, Field(le=MAX_ACCELERATORS)]


def _read_as(record: type, fields: type[BaseModel]) -> GetPydanticSchema:
    """Check the fields, then make the record of them."""

    def schema(_: Any, handler: Any) -> Any:
        checked = handler.generate_schema(fields)
        return core_schema.no_info_after_validator_function(lambda one: record(**dict(one)), checked)

    return GetPydanticSchema(schema)


class _AcceleratorFields(Section):
    count: AcceleratorCount
    type: str = AcceleratorType.NV_GPU.value
    model: Text = ""
    memory_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


CheckedAccelerators = Annotated[Accelerators, _read_as(Accelerators, _AcceleratorFields)]


class _NodeFields(Section):
    rank: Rank
    ip: Text = ""
    hostname: Text = ""
    cpus: NonNegativeInt | None = None
    accelerators: CheckedAccelerators = NO_ACCELERATORS


CheckedNode = Annotated[Node, _read_as(Node, _NodeFields)]


class NodeEntry(Section):
    ip: Text = ""
    hostname: Text = ""
    cpus: Count | None = None
    accelerators: Annotated[
        Annotated[AcceleratorCount, Tag("one")] | Annotated[CheckedAccelerators, Tag("map")],
        by_kind(dict, "map", "one"),
    ] = 0


class InventoryFile(Section):
    format_version: int = FORMAT_VERSION
    nodes: list[NodeEntry]


def parse_shape(text: str) -> tuple[Node, ...]:
    nodes: list[Node] = []
    if not isinstance(text, str):
        what = f"a cluster is described by text such as 4x8, not {shown(text)}"
        raise ConfigurationError(code="RI101", what=what)
    for piece in text.split(","):
        match = _SHAPE.fullmatch(piece)
        if match is None:
            raise ConfigurationError(
                code="RI101",
                what=f"{text[:80]!r} does not describe a cluster",
                remedy="write NODESxACCELERATORS, such as 4x8, or several: 2x8:A800,1x4:4090,2x0",
            )
        count, accelerators, model = int(match[1]), int(match[2]), match[3] or ""
        if model and not accelerators:
            raise ConfigurationError(
                code="RI101",
                what=f"{piece.strip()[:80]!r} names a model, but a node without accelerators has none",
                remedy=f"write {count}x0 for the nodes, and declare robots as a node group with `hardware`, "
                "such as `hardware: {type: Franka, configs: [{node_rank: 0}]}`",
            )
        nodes += uniform_nodes(count, accelerators, model=model, first=len(nodes))
    return tuple(nodes)


def uniform_nodes(
    num_nodes: int,
    accelerators: int,
    *,
    type: str = "nvidia_gpu",
    model: str = "",
    memory_gib: float | None = None,
    cpus: int | None = None,
    first: int = 0,
) -> tuple[Node, ...]:
    if not (isinstance(num_nodes, int) and isinstance(accelerators, int)):
        what = f"a cluster of {shown(num_nodes)} nodes of {shown(accelerators)} each"
        raise ConfigurationError(code="RI101", what=what)
    if num_nodes < 1 or not 0 <= accelerators <= MAX_ACCELERATORS or first + num_nodes > MAX_NODES:
        raise ConfigurationError(
            code="RI101",
            what=f"a cluster of {counted(first + num_nodes, 'node')} of {accelerators:,} accelerators each",
            remedy=f"between 1 and {MAX_NODES:,} nodes, with 0 to {MAX_ACCELERATORS:,} accelerators each",
        )
    held = {"count": accelerators, "type": type, "model": model, "memory_gib": memory_gib}
    (node,) = read_mapping({"nodes": [{"cpus": cpus, "accelerators": held}]}, "<inventory>")
    return tuple(replace(node, rank=rank) for rank in range(first, first + num_nodes))


def read_mapping(data: Any, name: str) -> tuple[Node, ...]:
    if not isinstance(data, Mapping):
        what = f"{name}: {AN_INVENTORY[0]}, not {type(data).__name__}"
        raise ConfigurationError(code="RI101", what=what, remedy=AN_INVENTORY[1])
    return read_nodes(Document(plain_mapping(data, ("nodes",), ("nodes",), 5 * MAX_NODES), name))


def read_nodes(document: Document) -> tuple[Node, ...]:
    entries, findings = validate(InventoryFile, document.data, document, ())
    if entries is None:
        raise error_for(findings)
    if entries.format_version != FORMAT_VERSION:
        what = f"an inventory of format {entries.format_version:,}"
        findings.add("RI101", what, ("format_version",), remedy=f"this roost reads format {FORMAT_VERSION}")
    findings += _type_problems(entries, document)
    if findings:
        raise error_for(findings)
    if not 1 <= len(entries.nodes) <= MAX_NODES:
        what = f"an inventory of {counted(len(entries.nodes), 'node')}"
        remedy = f"list between 1 and {MAX_NODES:,} nodes"
        raise ConfigurationError(document.finding("RI101", what, ("nodes",), remedy=remedy))
    return tuple(_node(rank, entry) for rank, entry in enumerate(entries.nodes))


def _type_problems(entries: InventoryFile, document: Document) -> Iterator[Finding]:
    """Problems of types that look like a known one misspelt, each once. Other types may be registered elsewhere."""
    first: dict[str, int] = {}
    for rank, entry in enumerate(entries.nodes):
        if isinstance(entry.accelerators, Accelerators) and entry.accelerators.count:
            first.setdefault(entry.accelerators.type, rank)
    known = [kind.name for kind in known_accelerators()]
    for name, rank in first.items():
        if name not in known and (name == NO_ACCELERATORS.type or _misspelt(name, known)):
            path = ("nodes", rank, "accelerators", "type")
            what = f"unknown accelerator type {shown(name)}"
            yield document.finding("RI101", what, path, remedy=nearest(name, known))


def _misspelt(name: str, known: Sequence[str]) -> bool:
    """Whether the name differs from a known name in a letter or two, or is one word of it."""
    plain = name.lower().replace("-", "_")
    words = {word for one in known for word in one.split("_")}
    return plain in words or bool(get_close_matches(plain, known, n=1, cutoff=0.85))


def _node(rank: int, entry: NodeEntry) -> Node:
    given = entry.accelerators
    held = Accelerators(count=given) if isinstance(given, int) else given
    return Node(**{**dict(entry), "rank": rank, "accelerators": held if held.count else NO_ACCELERATORS})


def read_inventory_file(path: FilePath) -> tuple[Node, ...]:
    """The nodes of a file: JSON if its name ends in `.json`, else YAML."""
    if path.suffix != ".json":
        return read_nodes(read_file(path, MAX_FILE_BYTES, 20 * MAX_NODES, AN_INVENTORY))
    text = read_text(path, MAX_FILE_BYTES)
    try:
        return read_mapping(read_json(text), str(path))
    except ConfigurationError as error:
        raise _placed(error, text, str(path)) from None
    except (ValueError, RecursionError) as error:
        what, why = f"{path}: cannot be read", str(error)[:200]
        raise ConfigurationError(
            code="RC001", what=what, why=why, remedy="check that it holds JSON"
        ) from None


def _placed(error: ConfigurationError, text: str, name: str) -> ConfigurationError:
    """The error with lines and columns, from the YAML reader: nearly all JSON is YAML too."""
    if len(text) <= MAX_PLACED:
        try:
            read_nodes(parse(text, name, wanted=AN_INVENTORY))
        except ConfigurationError as placed:
            if placed.codes == error.codes:
                return placed
    top = Span(source=name, line=1, column=1, length=1)
    named = [(": ".join(filter(None, [dotted(one.path), one.what])), one) for one in error.findings]
    return ConfigurationError(*(replace(finding, what=what, where=top) for what, finding in named))
