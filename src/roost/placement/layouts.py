"""Turns a layout into placement rules for a cluster: positions in the pool become resource ranks."""

from __future__ import annotations

from collections.abc import Sequence

from roost.config.document import Findings
from roost.config.job import ComponentRule
from roost.config.layout import Layout
from roost.config.layout_checks import count_key, width_key
from roost.config.layout_section import PLACE, EngineSlice, LayoutMode
from roost.config.ranks import Ranks, RankSpec, Segment, parse_ranks, ranges
from roost.errors import RoostError, counted
from roost.inventory.inventory import Inventory
from roost.inventory.resources import ACCELERATOR, Resources
from roost.placement.tiling import Misfit, Piece, PoolRanks, segments

_SHOWN = 4


def layout_rules(
    layout: Layout, inventory: Inventory, findings: Findings, granted: Sequence[int] | None
) -> tuple[dict[str, ComponentRule], dict[str, tuple[EngineSlice, int]]]:
    """A rule for each component that the layout runs on the pool, and how many processes form each of its engines.

    `granted` are the resource ranks of a pool that is reserved already.
    """
    rules: dict[str, ComponentRule] = {}
    engines: dict[str, tuple[EngineSlice, int]] = {}
    pool = _pool(layout, inventory, findings, granted) if layout.reserved else None
    if pool is None:
        return rules, engines

    def add(name: str, place: str, spec: tuple[Segment, ...]) -> None:
        # Rules of one path share their placements. If the file lacks the path, findings point to its section.
        path = (*PLACE, place)
        rules[name] = ComponentRule(name=name, labels=layout.node_group, spec=RankSpec(spec), path=path)

    trained = layout.slices()["actor"]
    for name in layout.components:
        if name in ("actor", "critic"):
            add(name, "actor", segments([(run.first, len(run), 1) for run in pool.ranks(trained)]))
    for part in layout.engine_groups():
        tiled = pool.tile(part.positions, part.gpus_per_engine)
        if isinstance(tiled, Misfit):
            _complain(layout, part, pool, tiled, findings)
        else:
            add(part.component, part.component, tiled)
            processes = sum(segment.num_processes for segment in tiled)
            engines[part.component] = (part, processes // part.num_engines)
    return rules, engines


def _pool(
    layout: Layout, inventory: Inventory, findings: Findings, granted: Sequence[int] | None
) -> PoolRanks | None:
    """The pool of a layout; None, and a finding, if there is none."""
    path = (*PLACE, "node_group")
    try:
        resources = inventory.resources(layout.node_group)
    except RoostError as error:
        findings += [findings.document.restated(problem, "layout", path) for problem in error.findings]
        return None
    hidden = resources.bare and any(slot.node.accelerators.count for slot in resources.slots)
    if hidden or any(slot.kind != ACCELERATOR for slot in resources.slots if not resources.bare):
        what = f"layout: the ranks of {resources.place} count {resources.noun}s, not accelerators"
        why = "a layout is a pool of accelerators"
        remedy = "use a group that has accelerators, or leave node_group out"
        findings.add("RP104", what, path, why=why, remedy=remedy)
        return None
    if granted is not None:
        return PoolRanks(resources, [Ranks(rank, rank) for rank in granted])
    there = 0 if resources.bare else resources.total
    spec = parse_ranks(layout.accelerators or "all")
    runs = [segment.resources for segment in spec.segments if segment.resources is not None]
    if runs and runs[-1].last >= there:
        _beyond(spec, there, resources, findings)
        return None
    pool = PoolRanks(resources, runs or [Ranks(0, there - 1)] * bool(there))
    if pool.size < layout.reserved:
        _too_small(layout, pool, there, findings)
        return None
    return pool


def _beyond(spec: RankSpec, there: int, resources: Resources, findings: Findings) -> None:
    segment = next(one for one in spec.segments if one.resources and one.resources.last >= there)
    last = segment.resources.last if segment.resources else 0
    findings.add(
        "RP101",
        f"accelerators: accelerator {last} does not exist",
        (*PLACE, "accelerators"),
        why=_holding(resources, there),
        remedy=f"stay within {Ranks(0, there - 1)}" if there else "take a cluster with accelerators",
        part=segment.place,
    )


def _holding(resources: Resources, there: int) -> str:
    return str(resources) if there else f"{resources.place} {resources.has} no accelerators"


def _too_small(layout: Layout, pool: PoolRanks, there: int, findings: Findings) -> None:
    actor, rollout, mode = layout.num_actor, layout.num_rollout, layout.mode
    trained = f"A = {layout.actor_num_nodes} x {layout.actor_num_gpus_per_node} = {actor:,}"
    sizes = ", ".join([trained] * mode.trains + [f"R = {rollout:,}"] * mode.serves)
    needed = f"{mode.value}: {sizes}; G = {mode.formula} = {layout.reserved:,}"
    listed = layout.accelerators is not None and pool.size < there
    remedies = [_smaller(layout, pool.size)] if pool.size else []
    if mode is LayoutMode.DISAGGREGATED and max(actor, rollout) <= pool.size:
        remedies.append("set colocate: true")
    remedies.append("list more accelerators" if listed else "take a larger cluster")
    if not there:
        remedies = ["take a cluster, or a group, that has accelerators"]
    has = _holding(pool.resources, there)
    has = f"accelerators {layout.accelerators} are {pool.size:,}" if listed else has
    findings.add(
        "RP112",
        f"the layout needs {counted(layout.reserved, 'accelerator')}, {has}",
        (*PLACE, "accelerators") if listed else PLACE,
        key=not listed,
        why=needed,
        remedy=", or ".join(remedies),
    )


def _smaller(layout: Layout, room: int) -> str:
    """The remedy that says which sizes to lower, and how far."""
    mode = layout.mode
    sizes = [("the actor", layout.num_actor)] * mode.trains
    sizes += [("the rollout", layout.num_rollout)] * mode.serves
    if mode is LayoutMode.COLOCATE:
        large = " and ".join(role for role, size in sizes if size > room)
        return f"give {large} {room:,} at most"
    return f"give {' or '.join(role for role, _ in sizes)} {layout.reserved - room:,} fewer"


def _complain(layout: Layout, part: EngineSlice, pool: PoolRanks, odd: Misfit, findings: Findings) -> None:
    width, held, subject = part.gpus_per_engine, odd.pieces, f"{part.component}: engine {odd.engine}"
    remedies = _remedies(layout, part, pool)
    where = [f"{piece.local} of node {piece.slot.node.rank}" for piece in held[:_SHOWN]]
    where += [f"{len(held) - _SHOWN} more"] if len(held) > _SHOWN else []
    sizes = sorted({piece.slot.count for piece in (*odd.first, *held)})
    if odd.first:
        before = odd.engine * width
        what = f"{subject} would lie on {_nodes(held)}, engine 0 on {_nodes(odd.first)}"
        why = (
            "the engines of a group span the same number of nodes;"
            f" these nodes have {sizes[0]} and {sizes[-1]} accelerators"
        )
        apart = (
            f"put the engines from {odd.engine} on into another group of `servers`"
            f" (groups of {before:,} and {len(part.positions) - before:,} accelerators)"
        )
        remedies.insert(0, apart)
    elif len({piece.slot.node.rank for piece in held}) == 1:
        what = f"{subject} would hold accelerators that are not consecutive ({' and '.join(where)})"
        why = "the accelerators of a process are consecutive"
    else:
        what = f"{subject} would straddle {_nodes(held)} (accelerators {', '.join(where)})"
        why = _reason(sizes, width)
    remedy = ", or ".join(remedies) or "choose other accelerators for the pool"
    findings.add("RP110", what, (*PLACE, *width_key(part)), why=why, remedy=remedy)


def _nodes(held: tuple[Piece, ...]) -> str:
    nodes = list(dict.fromkeys(piece.slot.node.rank for piece in held))
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    return f"nodes {' and '.join(map(str, nodes)) if len(nodes) == 2 else ranges(nodes)}"


def _reason(sizes: list[int], width: int) -> str:
    if width <= max(sizes):
        return f"an engine of {width} lies on one node"
    if len(sizes) > 1:
        return f"an engine wider than a node fills whole nodes of equal size; these have {sizes[0]} and {sizes[-1]}"
    if width % sizes[0]:
        return f"an engine wider than a node fills whole nodes; {width} is not a multiple of {sizes[0]}"
    return "an engine wider than a node fills whole nodes, from the first accelerator of one"


def _remedies(layout: Layout, part: EngineSlice, pool: PoolRanks) -> list[str]:
    """Remedies: widths with which the group tiles the nodes, and an actor size with which its present width does."""
    count, start, width = len(part.positions), part.positions.start, part.gpus_per_engine

    def works(other: int, at: int = start) -> bool:
        stop = at + max(1, count // other) * other
        return stop <= pool.size and isinstance(pool.tile(range(at, stop), other), tuple)

    sizes = {piece.slot.count for piece in pool.pieces(range(start, min(start + count + width, pool.size)))}
    likely = {size // number for size in sizes for number in range(1, size + 1) if not size % number}
    likely |= {size * number for size in sizes for number in (width // size, width // size + 1)}
    below = [other for other in sorted(likely) if 0 < other < width and works(other)][-2:]
    above = [other for other in sorted(likely) if other > width and works(other)][:1]
    remedies = []
    if below or above:
        choices = [str(other) for other in [*below, *above]]
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
        odd = any(count % other for other in [*below, *above])
        multiple = f" ({count_key(part)[-1]} must be a multiple of it)" if odd else ""
        remedies.append(f"use {listed} accelerators per engine{multiple}")
    actor = layout.num_actor
    if layout.mode is LayoutMode.DISAGGREGATED and start == actor:
        largest = max(sizes)
        for away in range(1, largest + 1):
            for other in (actor + away, actor - away):
                if other > 0 and works(width, other):
                    remedies.append(f"give the actor {counted(other, 'accelerator')}")
                    return remedies
    return remedies
