"""Checks of a layout that need no cluster."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from roost.config.document import Document
from roost.config.engines import KINDS, EngineSlice
from roost.config.fields import NAME
from roost.config.layout_section import LayoutSection
from roost.config.ranks import MAX_RANK, RankSyntaxError, parse_ranks
from roost.errors import Finding, Path, counted, nearest, shown

MAX_GROUPS = 1_000


def layout_problems(layout: LayoutSection, document: Document, path: Path) -> list[Finding]:
    groups = sum(len(server.groups) for server in layout.servers)
    if groups > MAX_GROUPS:
        remedy = f"at most {MAX_GROUPS:,} groups"
        return [document.finding("RL106", f"{groups:,} groups of engines", (*path, "servers"), remedy=remedy)]
    findings = [*_servers(layout, document, path), *_accelerators(layout, document, path)]
    if not findings:
        findings = [*_sizes(layout, document, path), *_engines(layout, document, path)]
    return findings


def _servers(layout: LayoutSection, document: Document, path: Path) -> list[Finding]:
    findings: list[Finding] = []
    names: dict[str, str] = {}
    for index, server in enumerate(layout.servers):
        here = (*path, "servers", index)
        if not NAME.fullmatch(server.name):
            findings.append(
                document.finding(
                    "RC105",
                    f"{shown(server.name)} is not a name for a server",
                    (*here, "name"),
                    remedy="use letters, digits, dot, dash and underscore, at most 40 of them",
                )
            )
        elif server.name in names:
            findings.append(
                document.finding(
                    "RC106",
                    f"server {server.name!r} is listed twice",
                    (*here, "name"),
                    remedy="give each server a name of its own",
                )
            )
        names[server.name] = ""
        for number, group in enumerate(server.groups):
            if group.kind not in KINDS:
                findings.append(
                    document.finding(
                        "RC104",
                        f"{shown(group.kind)} is not a kind of engines",
                        (*here, "groups", number, "kind"),
                        remedy=nearest(group.kind, KINDS),
                    )
                )
    if findings:
        return findings
    taken: set[str] = set()
    for part in layout.all_groups():
        if part.component in taken:
            findings.append(
                document.finding(
                    "RC106",
                    f"two groups of engines would be component {part.component!r}",
                    (*path, *part.path),
                    remedy="rename one of their servers",
                )
            )
        elif not NAME.fullmatch(part.component):
            findings.append(
                document.finding(
                    "RC105",
                    f"{part.component!r} is too long for a component",
                    (*path, *part.path[:2], "name"),
                    remedy="give the server a shorter name",
                )
            )
        taken.add(part.component)
    return findings


def _accelerators(layout: LayoutSection, document: Document, path: Path) -> list[Finding]:
    here = (*path, "accelerators")
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


def _sizes(layout: LayoutSection, document: Document, path: Path) -> list[Finding]:
    findings = []
    total = sum(group.num_gpus for server in layout.servers for group in server.groups)
    if layout.rollout_num_gpus is None:
        if not layout.servers and not layout.colocate and layout.mode.serves:
            findings.append(
                document.finding(
                    "RC102",
                    "layout: 'rollout_num_gpus' is missing",
                    (*path, "rollout_num_gpus"),
                    key=True,
                    why="only when colocated does the rollout take as many accelerators as the actor",
                    remedy="add `rollout_num_gpus: 8`, or `colocate: true`",
                )
            )
    elif layout.servers and total != layout.rollout_num_gpus:
        findings.append(
            document.finding(
                "RC104",
                f"rollout_num_gpus is {layout.rollout_num_gpus:,}, the groups of the servers have {total:,}",
                (*path, "rollout_num_gpus"),
                remedy=f"leave rollout_num_gpus out, or make it {total}",
            )
        )
    if layout.reserved > MAX_RANK:
        findings.append(
            document.finding(
                "RL106",
                f"a pool of {layout.reserved:,} accelerators",
                path,
                key=True,
                why=f"actor {layout.num_actor:,}, rollout {layout.num_rollout:,}",
                remedy="check for a digit too many",
            )
        )
    return findings


def _engines(layout: LayoutSection, document: Document, path: Path) -> list[Finding]:
    return [
        document.finding(
            "RP103",
            f"{part.component}: {counted(len(part.positions), 'accelerator')} cannot be cut into engines of {width}",
            (*path, *count_key(part)),
            remedy=f"use {_multiples(len(part.positions), width)} accelerators, or another {width_key(part)[-1]}",
        )
        for part in layout.engine_groups()
        for width in (part.gpus_per_engine,)
        if len(part.positions) % width
    ]


def count_key(part: EngineSlice) -> Path:
    """The key in the layout that sets how many accelerators the group has."""
    return (*part.path, "num_gpus") if part.path else ("rollout_num_gpus",)


def width_key(part: EngineSlice) -> Path:
    """The key in the layout that sets how many accelerators an engine of the group has."""
    return (*part.path, "gpus_per_engine") if part.path else ("rollout_num_gpus_per_engine",)


def _multiples(count: int, width: int) -> str:
    below, above = count // width * width, (count // width + 1) * width
    return f"{below} or {above}" if below else str(above)


def critic_problems(flags: Any) -> list[Finding]:
    """Problems of the flags that some programs have for the size of a critic."""
    findings = []
    defaults = {one.name: one.default for one in fields(LayoutSection)}
    for name in ("num_nodes", "num_gpus_per_node"):
        wanted = flags.get(f"critic_{name}")
        actor = flags.get(f"actor_{name}")
        actor = defaults[f"actor_{name}"] if actor is None else actor
        if wanted is not None and not (isinstance(wanted, (int, float, str)) and wanted == actor):
            findings.append(
                Finding(
                    code="RC104",
                    what=f"critic_{name} is {_scalar(wanted)}, actor_{name} is {_scalar(actor)}",
                    why="a critic shares the actor's accelerators",
                    remedy=f"leave critic_{name} out, or make both the same",
                    path=(f"critic_{name}",),
                )
            )
    return findings


def _scalar(value: Any) -> str:
    return shown(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
