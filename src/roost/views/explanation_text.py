"""The explanation of a process or a component as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roost.config.ranks import ranges
from roost.errors import counted, excerpt
from roost.planning.explanation import Explanation, Neighbour, ProcessExplanation
from roost.views.style import printable


def render_explanation(found: Explanation, job: str) -> str:
    """`job` is the name of the file that the plan was made from."""
    lines = [_head(found), "", *_rule(found, job), "", "how ranks were counted:"]
    lines += [f"  {sentence}" for sentence in found.counting]
    if found.process is not None:
        lines += _process(found.process)
    return "\n".join(map(printable, lines)) + "\n"


def _head(found: Explanation) -> str:
    own = found.process
    if own is None:
        beside = f", on devices that {', '.join(found.shares_with)} use too" if found.shares_with else ""
        return f"{found.component}: {counted(found.world_size, 'process')}{beside}"
    host = f" ({own.host})" if own.host else ""
    held = ranges(own.devices)
    holds = f", {own.kind}{'s' * (not held.isdecimal())} {held}" if held else ""
    return f"{found.component}:{own.rank} of {found.world_size:,} sits on node {own.node}{host}{holds}"


def _rule(found: Explanation, job: str) -> Iterator[str]:
    through = f", through {', '.join(found.node_groups)}" if found.node_groups else ""
    yield f"rule: {found.rule}{through}" if found.rule else "no rule: a strategy placed it"
    if found.where is not None:
        yield f"  --> {found.where.source}:{found.where.line}:{found.where.column}"
        yield from excerpt(found.where, found.path)
    elif job:
        yield f"  in {job}, of which a saved plan keeps no positions"


def _process(own: ProcessExplanation) -> Iterator[str]:
    if own.engine:
        yield from ("", own.engine)
    place = "the same device" if own.devices else "the same node"
    yield from ("", f"also on {place}{'s' * (len(own.devices) > 1)}:")
    if not own.neighbours:
        yield "  nothing"
    yield from (f"  {line}" for line in _neighbours(own.neighbours, own.kind))
    if own.share not in (0, 1):
        yield f"  it is charged {own.share:g} of each"
    yield from ("", "environment:", f"  {' '.join(f'{name}={value}' for name, value in own.placed.items())}")
    names = ", ".join(own.variables) or "nothing"
    yield f"  and what the job sets on node {own.node} for group {own.group}: {names}"
    if own.interpreter:
        yield f"  under {own.interpreter}"


def _neighbours(neighbours: Sequence[Neighbour], kind: str) -> Iterator[str]:
    """The neighbours on each device. Devices with the same neighbours share a line."""
    devices: dict[tuple[str, tuple[int, ...], float], list[int]] = {}
    for one in neighbours:
        devices.setdefault((one.component, one.ranks, one.share), []).extend(
            () if one.device is None else (one.device,)
        )
    for (component, ranks, share), numbers in devices.items():
        where = f"{kind} {ranges(numbers)}: " if numbers else ""
        yield f"{where}{component} {ranges(ranks)}" + (f", charged {share:g}" if share else "")
