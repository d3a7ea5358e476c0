"""Checks of a layout that need no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from roost.config.document import Document
from roost.config.fields import NAME, NAME_RULE
from roost.config.layout_section import KINDS, PLACE, EngineSlice, LayoutSection
from roost.config.ranks import MAX_RANK, RankSyntaxError, parse_ranks
from roost.errors import Finding, Path, counted, nearest, shown

MAX_GROUPS = 1_000


def layout_problems(layout: LayoutSection, document: Document) -> list[Finding]:
    groups = sum(len(server.groups) for server in layout.servers)
    if groups > MAX_GROUPS:
        what, remedy = f"{groups:,} groups of engines", f"at most {MAX_GROUPS:,} groups"
        return [document.finding("RL106", what, (*PLACE, "servers"), remedy=remedy)]
    names = list(_servers(layout, document)) or list(_components(layout, document))
    findings = [*names, *_accelerators(layout, document)]
    return findings or [*_sizes(layout, document), *_engines(layout, document)]


def _servers(layout: LayoutSection, document: Document) -> Iterator[Finding]:
    """Problems of the names of servers and the kinds of their groups."""
    names: set[str] = set()
    for index, server in enumerate(layout.servers):
        here = (*PLACE, "servers", index)
        if not NAME.fullmatch(server.name):
            what = f"{shown(server.name)} is not a name for a server"
            yield document.finding("RC105", what, (*here, "name"), remedy=NAME_RULE)
        elif server.name in names:
            what, remedy = f"server {server.name!r} is listed twice", "give each server a name of its own"
            yield document.finding("RC106", what, (*here, "name"), remedy=remedy)
        names.add(server.name)
        for number, group in enumerate(server.groups):
            if group.kind not in KINDS:
                what, remedy = f"{shown(group.kind)} is not a kind of engines", nearest(group.kind, KINDS)
                yield document.finding("RC104", what, (*here, "groups", number, "kind"), remedy=remedy)


def _components(layout: LayoutSection, document: Document) -> Iterator[Finding]:
    """Problems of the names that the groups of engines have as components."""
    taken: set[str] = set()
    for part in layout.all_groups():
        if part.component in taken:
            what = f"two groups of engines would be component {part.component!r}"
            yield document.finding("RC106", what, (*PLACE, *part.path), remedy="rename one of their servers")
        elif not NAME.fullmatch(part.component):
            what, place = f"{part.component!r} is too long for a component", (*PLACE, *part.path[:2], "name")
            yield document.finding("RC105", what, place, remedy="give the server a shorter name")
        taken.add(part.component)


def _accelerators(layout: LayoutSection, document: Document) -> list[Finding]:
    here = (*PLACE, "accelerators")
    text = layout.accelerators
    if text is None:
        return []
    if ":" in text:
        start = text.rfind(",", 0, text.index(":")) + 1
        stop = (text + ",").index(",", start)
        return [
            document.finding(
                "RL104",
                "accelerators: process ranks have no meaning here",
                here,
                why="the layout says who sits on the pool",
                remedy="leave the colon and what follows it out",
                part=(start, stop - start),
            )
        ]
    try:
        parse_ranks(text)
    except RankSyntaxError as error:
        return document.findings_in(here, "accelerators", error.problems)
    return []


def _sizes(layout: LayoutSection, document: Document) -> Iterator[Finding]:
    total = sum(group.num_gpus for server in layout.servers for group in server.groups)
    wanted, here = layout.rollout_num_gpus, (*PLACE, "rollout_num_gpus")
    if wanted is None and not layout.servers and not layout.colocate and layout.mode.serves:
        yield document.finding(
            "RC102",
            "layout: 'rollout_num_gpus' is missing",
            here,
            key=True,
            why="only when colocated does the rollout take as many accelerators as the actor",
            remedy="add `rollout_num_gpus: 8`, or `colocate: true`",
        )
    if wanted is not None and layout.servers and total != wanted:
        what = f"rollout_num_gpus is {wanted:,}, the groups of the servers have {total:,}"
        remedy = f"leave rollout_num_gpus out, or make it {total}"
        yield document.finding("RC104", what, here, remedy=remedy)
    if layout.reserved > MAX_RANK:
        what = f"a pool of {layout.reserved:,} accelerators"
        why = f"actor {layout.num_actor:,}, rollout {layout.num_rollout:,}"
        yield document.finding("RL106", what, PLACE, key=True, why=why, remedy="check for a digit too many")


def _engines(layout: LayoutSection, document: Document) -> Iterator[Finding]:
    for part in layout.engine_groups():
        count, width = len(part.positions), part.gpus_per_engine
        if count % width:
            what = f"{part.component}: {counted(count, 'accelerator')} cannot be cut into engines of {width}"
            remedy = f"use {_multiples(count, width)} accelerators, or another {width_key(part)[-1]}"
            yield document.finding("RP103", what, (*PLACE, *count_key(part)), remedy=remedy)


def count_key(part: EngineSlice) -> Path:
    """The key in the layout that sets how many accelerators the group has."""
    return (*part.path, "num_gpus") if part.path else ("rollout_num_gpus",)


def width_key(part: EngineSlice) -> Path:
    """The key in the layout that sets how many accelerators an engine of the group has."""
    return (*part.path, "gpus_per_engine") if part.path else ("rollout_num_gpus_per_engine",)


def _multiples(count: int, width: int) -> str:
    below, above = count // width * width, (count // width + 1) * width
    return f"{below} or {above}" if below else str(above)


def critic_problems(flag: Callable[[str], Any]) -> Iterator[Finding]:
    """Problems of the flags that some programs have for the size of a critic."""
    defaults = {one.name: one.default for one in fields(LayoutSection)}
    for name in ("num_nodes", "num_gpus_per_node"):
        wanted, actor = flag(f"critic_{name}"), flag(f"actor_{name}")
        actor = defaults[f"actor_{name}"] if actor is None else actor
        if wanted is not None and not (isinstance(wanted, (int, float, str)) and wanted == actor):
            yield Finding(
                code="RC104",
                what=f"critic_{name} is {_scalar(wanted)}, actor_{name} is {_scalar(actor)}",
                why="a critic shares the actor's accelerators",
                remedy=f"leave critic_{name} out, or make both the same",
                path=(f"critic_{name}",),
            )


def _scalar(value: Any) -> str:
    return shown(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
