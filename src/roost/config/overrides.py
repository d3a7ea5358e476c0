"""Applies `key=value` overrides, in Hydra's spelling, to a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roost.config.fields import names_in
from roost.config.plain_data import PLACEMENTS, SECTIONS, values_in
from roost.config.yaml_text import MAX_DEPTH, Positions, read_yaml
from roost.errors import ConfigurationError, Finding, Path, Span, counted, dotted, error_for, nearest, shown
from roost.secret_names import hide_rest

_LINE_BREAK = re.compile("[\n\r\x85\u2028\u2029]")
_SPELLING = "write overrides as section.key=value"


def overridden(
    data: dict[str, Any], positions: Positions, overrides: Sequence[str]
) -> tuple[dict[str, Any], Positions]:
    """`a.b=value` sets a key, `+a.b=value` and `++a.b=value` set or add one, `~a.b` deletes one."""
    positions = Positions(*map(dict, positions.tables))
    findings: list[Finding] = []
    for override in overrides:
        try:
            data = _apply(override, data, positions)
        except ConfigurationError as error:
            findings += error.findings
    if findings:
        raise error_for(findings)
    return data, positions


def override_span(override: Any) -> Span:
    """The whole of an override, which must be one line of text."""
    if not isinstance(override, str):
        what = f"an override is text, not {type(override).__name__}"
        raise ConfigurationError(code="RC007", what=what, remedy=_SPELLING)
    line = Span(source="<override>", line=1, column=1, length=max(1, len(override)), excerpt=override)
    if _LINE_BREAK.search(override):
        what = f"{hide_rest(shown(override), bare=True)} is not an override"
        raise ConfigurationError(code="RC007", what=what, remedy=_SPELLING, where=line)
    return line


def _apply(override: str, data: dict[str, Any], positions: Positions) -> dict[str, Any]:
    line = override_span(override)

    def fail(
        what: str, remedy: str = _SPELLING, part: tuple[int, int] | None = None, why: str = ""
    ) -> ConfigurationError:
        where = line if part is None else line.part(*part)
        return ConfigurationError(code="RC007", what=what, why=why, remedy=remedy, where=where)

    mark = re.match(r"(\+\+|\+|~)?", override)[0]  # type: ignore[index]
    target, equals, text = override[len(mark) :].partition("=")
    name = target.strip()
    place = (len(mark) + len(target) - len(target.lstrip()), len(name))
    if not (equals or mark == "~") or not name:
        line = replace(line, excerpt=hide_rest(override, bare=True))
        raise fail(f"{hide_rest(shown(override), bare=True)} is not an override")
    keys = re.sub(r"\[(\w+)\]", r".\1", name).split(".")
    if len(keys) > MAX_DEPTH or any(not key.strip() or set(key) & set("[]") for key in keys):
        raise fail(f"{shown(name)} is not a path of keys", part=place)
    steps: list[Any] = _as_written(keys, data)  # numbers for the entries of lists
    if steps[0] not in data and steps[0] not in SECTIONS and not mark:
        known = nearest(steps[0], {*map(str, data), "cluster"})
        remedy = f"{known}; to add a section write +{override.partition('=')[0][:40]}=..."
        raise fail(f"there is no section {shown(steps[0])}", remedy, place)
    if not mark and (problem := _no_such_component(steps, data)):
        what, why, remedy = problem
        raise fail(what, remedy, place, why)
    root = dict(data)  # containers on the way are copied, never changed
    here: Any = root
    for depth, step in enumerate(steps):
        around = dotted(tuple(steps[:depth]))
        if isinstance(here, list):
            if not re.fullmatch("[0-9]{1,9}", str(step), re.ASCII) or int(step) >= len(here):
                raise fail(
                    f"{around} has {counted(len(here), 'entry')}, and no [{str(step)[:20]}]",
                    "entries are counted from 0",
                    place,
                )
            steps[depth] = step = int(step)
        elif not isinstance(here, dict):
            raise fail(f"{around} is a value, so it has no key {shown(step)}", f"set {around} itself", place)
        if depth < len(steps) - 1:
            if isinstance(here, dict) and step not in here:
                positions.keys[tuple(steps[: depth + 1])] = line.part(*place)
            inner = here[step] if isinstance(here, list) else here.get(step)
            inner = {} if inner is None else inner.copy() if isinstance(inner, (dict, list)) else inner
            here[step] = inner
            here = inner
    path, last = tuple(steps), steps[-1]
    there = isinstance(here, list) or last in here
    if mark == "~":
        if not there:
            raise fail(f"{name} is not there to delete", nearest(str(last), map(str, here)), place)
        if equals and _value(text, override, line)[0] != here[last]:
            raise fail(
                f"{name} has another value, so it is not deleted", f"write ~{name} to delete it anyway"
            )
        _forget(positions, path, here[last])
        if isinstance(here, list):
            _close_gap(positions, path, here)
        here.pop(last)
        return root
    value, found = _value(text, override, line)
    if there:
        _forget(positions, path, here[last])
    for table, new in zip(positions.tables, found.tables, strict=True):
        table.update({path + where: item for where, item in new.items()})
    positions.keys[path] = line.part(*place)
    here[last] = value
    return root


def _as_written(steps: list[str], here: Any) -> list[str]:
    """The steps of the path, joined where a key contains dots, such as a component `my.env`."""
    found = []
    while steps:
        keys = here if isinstance(here, dict) else {}
        together = (size for size in range(len(steps), 1, -1) if ".".join(steps[:size]) in keys)
        size = next(together, 1)
        step, steps = ".".join(steps[:size]), steps[size:]
        index = int(step) if isinstance(here, list) and step.isdecimal() and len(step) < 9 else -1
        here = here[index] if 0 <= index < len(here) else keys.get(step)
        found.append(step)
    return found


def _no_such_component(steps: Sequence[str | int], data: dict[str, Any]) -> tuple[str, str, str] | None:
    """The message about an override that would silently add a component: what, why, remedy."""
    here: Any = data
    for step in PLACEMENTS:
        here = (here.get(step) or {}) if isinstance(here, dict) else here
    if tuple(steps[:2]) != PLACEMENTS or len(steps) < 3 or not isinstance(here, dict):
        return None
    keys, section = list(map(str, here)), dotted(PLACEMENTS)
    if steps[2] in keys:
        return None
    inside = len(steps) > 3 and steps[-1] in ("placement", "node_group")
    name = ".".join(map(str, steps[2:-1] if inside else steps[2:]))
    for key in keys:
        together = next((one for one in names_in(name) if one in names_in(key)), None)
        if together is not None:
            return (
                f"there is no key {shown(name)} under component_placement",
                f"{shown(together)} is placed by the key {shown(key)}",
                f"write {section}.{key}=..., or delete that key with ~{section}.{key} and add others with +",
            )
    known = [one for key in keys for one in names_in(key)]
    what = f"there is no component {shown(name)} under component_placement"
    return what, "", f"{nearest(name, known)}; to add one write +{section}.{name[:40]}=..."


def _value(text: str, override: str, line: Span) -> tuple[Any, Positions]:
    """The YAML value, with the positions of its parts in the override. No text is "", unlike `null`."""
    if not text.strip():
        return "", Positions()
    shift = len(override) - len(text)

    def moved(span: Span) -> Span:
        return line.part(span.column - 1 + shift, span.length)

    try:
        value, found = read_yaml(text, line.source)
    except ConfigurationError as error:
        places = [moved(one.where) if one.where else line for one in error.findings]
        pairs = zip(error.findings, places, strict=True)
        raise error_for([replace(one, path=(), where=where) for one, where in pairs]) from None
    keys = {where: moved(span) for where, span in found.keys.items()}
    values = {where: moved(span) for where, span in found.values.items()}
    return value, Positions(keys, values, found.texts)


def _forget(positions: Positions, path: Path, value: Any) -> None:
    if not positions.values and not positions.keys:
        return
    for where, _ in values_in(value, path):
        for table in positions.tables:
            table.pop(where, None)


def _close_gap(positions: Positions, path: Path, items: list[Any]) -> None:
    """Moves the positions of the entries after a deleted one up by one."""
    level, gone = len(path) - 1, int(path[-1])
    for index in range(gone + 1, len(items)):
        for where, _ in values_in(items[index], (*path[:-1], index)):
            for table in positions.tables:
                if where in table:
                    moved = (*where[:level], index - 1, *where[level + 1 :])
                    table[moved] = table.pop(where)
