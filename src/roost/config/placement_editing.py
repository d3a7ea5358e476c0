"""Writes a `component_placement` into the text of a job file, and keeps its comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from roost.config.document import Document, parse
from roost.errors import ConfigurationError

_KEY = re.compile(r"""\s*(["']?)([\w.,\s-]+?)\1\s*:(?:\s|$)""")
_COMMENT = re.compile(r"\s#.*$")


def with_placement(text: str, document: Document, placement: Mapping[str, Any]) -> str:
    """The text with this placement. Raises if roost cannot edit the file's style safely."""
    lines, newline = text.splitlines(), "\r\n" if "\r\n" in text else "\n"
    cluster = document.data.get("cluster")
    if isinstance(cluster, dict) and cluster.get("layout") is not None:
        raise _cannot(document, "`layout` places components already", "remove the layout, and write again")
    if isinstance(document.data.get("defaults"), list):
        why = "Hydra composes the job from several files"
        raise _cannot(document, why, "copy the placement from --json into the right one")
    section = document.positions.keys.get(("cluster",))
    key = document.positions.keys.get(("cluster", "component_placement"))
    if section is not None and key is not None and section.line < key.line:
        edited = _replaced(lines, key.line - 1, placement)
    elif section is not None and key is None and lines[section.line - 1].split("#")[0].rstrip().endswith(":"):
        inner = next((line for line in lines[section.line :] if line.strip()), "  ")
        indent = " " * max(2, len(inner) - len(inner.lstrip()))
        entries = [_entry(indent + "  ", name, rule) for name, rule in placement.items()]
        edited = [*lines[: section.line], f"{indent}component_placement:", *entries, *lines[section.line :]]
    else:
        raise _cannot(document)
    new = newline.join([*edited, ""])
    try:
        found = parse(new, document.name).data["cluster"]["component_placement"]
    except (ConfigurationError, KeyError, TypeError):
        raise _cannot(document) from None
    if found != dict(placement):
        raise _cannot(document)
    return new


def _replaced(lines: list[str], at: int, placement: Mapping[str, Any]) -> list[str]:
    """The lines with the block of `component_placement`, which starts at this line, replaced entry by entry."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    stop = at + 1
    while stop < len(lines) and (not lines[stop].strip() or lines[stop][: indent + 1].isspace()):
        stop += 1
    while stop > at + 1 and not lines[stop - 1].strip():
        stop -= 1
    head = lines[at][:indent] + "component_placement:" + "".join(_COMMENT.findall(lines[at]))
    inner = next((line for line in lines[at + 1 : stop] if line.strip() and line.lstrip()[0] != "#"), None)
    deep = " " * (indent + 2 if inner is None else len(inner) - len(inner.lstrip()))
    left, block = dict(placement), [head]
    for line in lines[at + 1 : stop]:
        found = _KEY.match(line)
        if not line.strip() or line.lstrip().startswith("#"):
            block.append(line)
        elif found and len(line) - len(line.lstrip()) == len(deep):
            comment = "".join(_COMMENT.findall(line))
            if found[2] in left:
                block.append(_entry(deep, found[2], left.pop(found[2])) + comment)
            elif comment:
                block.append(deep + comment.strip())
    block += [_entry(deep, name, rule) for name, rule in left.items()]
    return [*lines[:at], *block, *lines[stop:]]


def _entry(indent: str, name: str, rule: Any) -> str:
    if isinstance(rule, str):
        return f"{indent}{name}: {json.dumps(rule)}"
    inside = ", ".join(f"{key}: {json.dumps(value)}" for key, value in rule.items())
    return f"{indent}{name}: {{{inside}}}"


def _cannot(
    document: Document,
    why: str = "`cluster` is not written as a block with one key on each line",
    remedy: str = "copy the placement from --json into the file",
) -> ConfigurationError:
    what = f"{document.name}: its component_placement cannot be replaced safely"
    return ConfigurationError(code="RS102", what=what, why=why, remedy=remedy)
