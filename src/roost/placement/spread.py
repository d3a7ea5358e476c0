"""Turns a rank spec into the resource ranks of every process."""

from __future__ import annotations

from collections.abc import Iterator

from roost.config.document import Findings
from roost.config.job import ComponentRule
from roost.config.ranks import (
    MOST_PROBLEMS,
    Ranks,
    RankSpec,
    RankSyntaxError,
    Segment,
    numbered,
    parse_ranks,
)
from roost.errors import counted, errors_in
from roost.inventory.resources import Resources

_MOST_ADVICE = 10  # segments of a job with suggestions: each has to be written and read a few times


def spread(rule: ComponentRule, resources: Resources, findings: Findings, most: int) -> list[range] | None:
    """The resource ranks of each process, at most `most`, in process order; None if they cannot be spread.

    On bare nodes each process has one rank.
    """
    processes: list[range] = []
    known = len(findings)
    if not resources.total:
        what = f"{rule.name}: nothing to place on, {resources.place} {resources.has} no hardware"
        remedy = "list the hardware under `configs`, or place through another group"
        findings.add("RP104", what, rule.path, remedy=remedy)
        return None
    following = 0
    for segment in rule.spec.segments:
        if len(errors_in(findings[known:])) >= MOST_PROBLEMS:
            break
        held = segment.resources or Ranks(0, resources.total - 1)
        if held.last >= resources.total:
            _beyond(rule, segment, held, resources, findings)
            continue
        count = len(held) if segment.processes is None else len(segment.processes)
        if following + count > most:
            findings.add(
                "RL106",
                f"{rule.name}: {following + count:,} processes are too many",
                rule.path,
                why=f"roost places at most {most:,} more on a cluster of this size",
                remedy="check for a digit too many",
                part=segment.place,
            )
            break
        _divide(rule, segment, held, count, resources, findings)
        if not errors_in(findings[known:]):
            processes += _share_out(held, count)
        following += count
    return None if errors_in(findings[known:]) else processes


def _share_out(held: Ranks, count: int) -> Iterator[range]:
    """Equal shares. If the processes do not divide evenly over bare nodes, the first nodes take one more."""
    size = len(held)
    if size >= count:
        width = size // count
        return (range(first, first + width) for first in range(held.first, held.last + 1, width))
    each, extra = divmod(count, size)
    return (range(rank, rank + 1) for index, rank in enumerate(held) for _ in range(each + (index < extra)))


def _beyond(
    rule: ComponentRule, segment: Segment, held: Ranks, resources: Resources, findings: Findings
) -> None:
    alone = rule.spec.segments == (segment,) and segment.processes is None
    if findings.document.value_span(rule.path) is None and alone and len(held) == 1:
        sixty, rest = divmod(held.first, 60)
        if sixty:
            what = f"{rule.name}: {resources.noun} {held.first} does not exist"
            why = f"{resources}; YAML turns an unquoted {sixty}:{rest} into {held.first}"
            remedy = f'if {sixty}:{rest} was meant, quote it: "{sixty}:{rest}"'
            return findings.add("RP108", what, rule.path, why=why, remedy=remedy)
    last = resources.total - 1
    left, count = last - held.first + 1, len(segment.processes or ())
    even = left > 0 and (not count or left % count == 0 or count % left == 0)
    within = f"use {Ranks(held.first, last)}" if even else f"stay within {Ranks(0, last)}"
    nodes = Ranks(held.first if left > 0 else 0, last)
    if resources.bare and alone and len(held) % len(nodes) == 0:
        where_they_sit = f"the {len(nodes)} nodes" if len(nodes) > 1 else f"node {nodes}"
        within += f", or {nodes}:0-{len(held) - 1} for {len(held)} processes on {where_they_sit}"
    all_nodes = resources.labels in (("cluster",), ("node",))
    where = "take a larger cluster" if all_nodes else "enlarge the group"
    findings.add(
        "RP101",
        f"{rule.name}: {resources.noun} {held.last} does not exist",
        rule.path,
        why=f"{resources}",
        remedy=f"{within}, or {where if len(resources.labels) < 2 else 'name more groups'}",
        part=segment.place,
    )


def _divide(
    rule: ComponentRule, segment: Segment, held: Ranks, count: int, resources: Resources, findings: Findings
) -> None:
    """Report a segment whose processes and resources do not divide."""
    size = len(held)
    if resources.bare and count < size:
        code = "RP102"
        what = f"{counted(count, 'process')} on {counted(size, 'node')} would have to span nodes"
        why = "a process runs on one node"
        remedy = f"use {counted(count, 'node')}, or at least {counted(size, 'process')}"
    elif resources.bare and count % size:
        code, what = "RW101", f"{count} processes over {size} nodes are uneven"
        take = "node takes" if count % size == 1 else f"{count % size} nodes take"
        why = f"the first {take} {count // size + 1}, the rest {count // size}"
        remedy = f"{count - count % size} or {count + size - count % size} processes would be even"
    elif not resources.bare and size % count and count % size:
        code, what = "RP103", f"{count} processes cannot share {counted(size, resources.noun)} evenly"
        why = "one of the two counts must divide the other"
        advised = sum(known.code == code for known in findings) < _MOST_ADVICE
        better = _suggestions(rule.spec, segment, held, count, resources) if advised else []
        remedy = "use " + ", or ".join(better) if better else ""
    else:
        return
    findings.add(code, f"{rule.name}: {what}", rule.path, why=why, remedy=remedy, part=segment.place)


def _suggestions(
    spec: RankSpec, segment: Segment, held: Ranks, count: int, resources: Resources
) -> list[str]:
    """The nearest valid spellings: fewer processes, more processes, and another number of resources."""
    size = len(held)

    def fits(resources_used: int, processes: int) -> bool:
        return resources_used % processes == 0 or processes % resources_used == 0

    fewer = [(size, number) for number in range(count - 1, 0, -1) if fits(size, number)]
    more = [(size, number) for number in range(count + 1, count + size + 1) if fits(size, number)]
    other = [
        (number, count)
        for away in range(1, 64)  # a larger change is no help
        for number in (size + away, size - away)
        if number > 0 and fits(number, count)
    ]
    found = []
    for candidates in (fewer, more, other):
        texts = (_rewritten(spec, segment, held, *one, resources) for one in candidates[:8])
        found += [text for text in texts if text][:1]
    return found


def _rewritten(
    spec: RankSpec, segment: Segment, held: Ranks, size: int, count: int, resources: Resources
) -> str:
    """The spec with this segment changed and the process ranks after it moved; empty if that is not valid."""
    last, width = held.first + size - 1, max(1, size // count)
    if last >= resources.total or any(
        resources.slot_of(first) is not resources.slot_of(first + width - 1)
        for first in range(held.first, min(last + 1, held.first + 64 * width), width)
    ):
        return ""
    changed = Segment(Ranks(held.first, last), Ranks(0, count - 1))
    segments = [changed if one is segment else one for one in spec.segments]
    text = str(numbered(segments, [one.num_processes for one in segments]))
    try:
        parse_ranks(text)
    except RankSyntaxError:
        return ""
    return text
