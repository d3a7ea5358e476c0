"""Other placements for a job: in its document, and in the text of its file, whose comments stay."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from roost.config.document import Document, parse
from roost.config.fields import names_in
from roost.config.plain_data import PLACEMENTS
from roost.config.yaml_text import Positions
from roost.errors import ConfigurationError

_KEY = re.compile(r"""\s*(["']?)([\w.,\s-]+?)\1\s*:(?:\s|$)""")
_COMMENT = re.compile(r"\s{1,8}#.*$")


def with_rules(document: Document, rules: Mapping[str, Any]) -> Document:
    """The document with this `component_placement`, without the positions of rules that are not as they were."""
    old = _placement(document)
    tables = (
        {
            path: found
            for path, found in table.items()
            if path[:2] != PLACEMENTS or len(path) == 2 or rules.get(str(path[2])) == old.get(str(path[2]))
        }
        for table in document.positions.tables
    )
    data = {**document.data, "cluster": {**document.data["cluster"], PLACEMENTS[1]: dict(rules)}}
    return Document(data, document.name, Positions(*tables))


def other_rules(document: Document, names: Collection[str]) -> dict[str, Any]:
    """The rules of a job without those of these components."""
    kept: dict[str, Any] = {}
    for key, rule in _placement(document).items():
        if others := [name for name in names_in(key) if name not in names]:
            kept[key if others == names_in(key) else ",".join(others)] = rule
    return kept


def with_placement(text: str, document: Document, placement: Mapping[str, Any]) -> str:
    """The text with these components placed so; the rules of other components stay as they are written.

    Raises if roost cannot edit the file's style safely.
    """
    lines, newline = text.splitlines(), "\r\n" if "\r\n" in text else "\n"
    cluster = document.data.get("cluster")
    if isinstance(cluster, dict) and cluster.get("layout") is not None:
        raise _cannot(document, "`layout` places components already", "remove the layout, and write again")
    if isinstance(document.data.get("defaults"), list):
        why = "Hydra composes the job from several files"
        raise _cannot(document, why, "copy the placement from --json into the right one")
    section = document.positions.keys.get(("cluster",))
    key = document.positions.keys.get(PLACEMENTS)
    wanted = {**rules_of(document), **placement}
    if section is not None and key is not None and section.line < key.line:
        edited = _replaced(lines, key.line - 1, placement, wanted)
    elif section is not None and key is None and lines[section.line - 1].split("#")[0].rstrip().endswith(":"):
        inner = next((line for line in lines[section.line :] if line.strip()), "  ")
        indent = " " * max(2, len(inner) - len(inner.lstrip()))
        entries = [_entry(indent + "  ", name, rule) for name, rule in placement.items()]
        edited = [*lines[: section.line], f"{indent}component_placement:", *entries, *lines[section.line :]]
    else:
        raise _cannot(document)
    new = newline.join([*edited, ""])
    try:
        found = rules_of(parse(new, document.name))
    except ConfigurationError:
        raise _cannot(document) from None
    if found != wanted:
        raise _cannot(document)
    return new


def rules_of(document: Document) -> dict[str, Any]:
    """The rule of each component, as the document has it."""
    return {name: rule for key, rule in _placement(document).items() for name in names_in(key)}


def _placement(document: Document) -> dict[str, Any]:
    cluster = document.data.get("cluster")
    rules = cluster.get(PLACEMENTS[1]) if isinstance(cluster, dict) else None
    return rules if isinstance(rules, dict) else {}


def _replaced(
    lines: list[str], at: int, placement: Mapping[str, Any], wanted: Mapping[str, Any]
) -> list[str]:
    """The lines with the block of `component_placement`, which starts at this line, edited entry by entry."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    stop = at + 1
    while stop < len(lines) and (not lines[stop].strip() or lines[stop][: indent + 1].isspace()):
        stop += 1
    while stop > at + 1 and not lines[stop - 1].strip():
        stop -= 1
    head = lines[at][:indent] + "component_placement:" + "".join(_COMMENT.findall(lines[at]))
    inner = next((line for line in lines[at + 1 : stop] if line.strip() and line.lstrip()[0] != "#"), None)
    deep = " " * (indent + 2 if inner is None else len(inner) - len(inner.lstrip()))
    is_block = _COMMENT.sub("", lines[at]).rstrip().endswith(":")
    left, block, stays = dict(wanted), [head], False
    for line in lines[at + 1 : stop]:
        found = _KEY.match(line) if len(line) - len(line.lstrip()) == len(deep) else None
        comment = "".join(_COMMENT.findall(line))
        if not line.strip() or line.lstrip().startswith("#"):
            block.append(line)
        elif found and is_block:
            names = names_in(found[2])
            others = [name for name in names if name not in placement]
            stays = bool(others)
            placed = [
                _entry(deep, name, left.pop(name)) for name in names if name in placement and name in left
            ]
            if stays:
                left = {name: rule for name, rule in left.items() if name not in others}
                rest = line[found.end(2) + len(found[1]) :]
                placed.append(line if others == names else deep + ",".join(others) + rest)
            elif placed:
                placed[0] += comment
            block += placed
        elif stays:
            block.append(line)
        elif comment:
            block.append(deep + comment.strip())
    block += [_entry(deep, name, rule) for name, rule in left.items()]
    return [*lines[:at], *block, *lines[stop:]]


def _entry(indent: str, name: str, rule: Any) -> str:
    if not isinstance(rule, dict):
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
