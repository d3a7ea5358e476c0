"""Explains why no arrangement fits: what is short, by how much, and what would do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from roost.errors import Finding, PlacementError, counted
from roost.suggesting.arrangement import cost_of
from roost.suggesting.memory_holders import listed, peak_holders
from roost.suggesting.problem import Problem
from roost.suggesting.solver import solve

_FEW_PAIRS = 3_000_000
_STEPS = 14  # halvings of the range of memory


def infeasible(problem: Problem) -> PlacementError:
    if solve(problem, check_memory=False, most_pairs=_FEW_PAIRS).tree is None:
        return PlacementError(*_too_few(problem))
    return PlacementError(_too_little_memory(problem))


def _too_few(problem: Problem) -> list[Finding]:
    """Accelerators are short even if all components take turns, which needs the fewest."""
    findings = []
    profile = problem.profile
    for name, part in profile.components.items():
        if part.needs_accelerators and not problem.curves[name]:
            _, least, most = min(
                (min(table) - group.total, min(table), group.total)
                for group in problem.groups
                if (table := part.measured.get(group.label) or part.measured.get(""))
            )
            findings.append(
                profile.document.finding(
                    "RP113",
                    f"{name}: its smallest measured size is {least}, {least - most} more than there are",
                    (*profile.at(name), "seconds"),
                    why=f"no size outside the measured range is used, and the group has {most}",
                    remedy=f"measure it on {most} or fewer, or plan for at least {least} accelerators",
                )
            )
    if findings:
        return findings
    total = sum(group.total for group in problem.groups)
    return [
        Finding(
            code="RP113",
            what=f"no arrangement fits {counted(total, 'accelerator')}: at least {_fewest(problem)} would do",
            why="even if all components take turns, the smallest measured sizes need more",
            remedy="add accelerators, or measure the components at smaller sizes",
        )
    ]


def _fewest(problem: Problem) -> int:
    """The fewest accelerators that hold every component at its smallest size, all of a group taking turns."""
    parts = [part for part in problem.profile.components.values() if part.needs_accelerators]
    labels = [group.label for group in problem.groups]
    choices = [
        [(label, part.width, min(part.measured.get(label) or part.measured[""])) for label in labels
         if label in part.measured or "" in part.measured]
        for part in parts
    ]  # fmt: skip
    totals = []
    for chosen in product(*choices):
        total = 0
        for label in labels:
            here = [(width, size) for where, width, size in chosen if where == label]
            widest = max((width for width, _ in here), default=1)
            total += -(-max((size for _, size in here), default=0) // widest) * widest
        totals.append(total)
    return min(totals)


def _too_little_memory(problem: Problem) -> Finding:
    """The least memory that would do, the same amount more on every accelerator, and who needs it."""
    profile = problem.profile
    enough = sum(max(part.memory_gib, part.resident_gib) for part in profile.components.values())
    little, much = 0.0, enough
    roomy, tree = problem, None
    for _ in range(_STEPS):
        more = (little + much) / 2
        groups = tuple(
            replace(group, memory_gib=None if group.memory_gib is None else group.memory_gib + more)
            for group in problem.groups
        )
        tried = replace(problem, groups=groups)
        found = solve(tried, most_pairs=_FEW_PAIRS).tree
        if found is None:
            little = more
        else:
            much, roomy, tree = more, tried, found
    if tree is None:
        roomy = replace(problem, groups=tuple(replace(group, memory_gib=None) for group in problem.groups))
        tree = solve(roomy, most_pairs=_FEW_PAIRS).tree
    assert tree is not None  # it fits without the limits
    peak = cost_of(tree, roomy).peak
    short = [
        group
        for group in problem.groups
        if group.memory_gib is not None and peak[group.label] > group.memory_gib
    ]
    group = max(short, key=lambda one: peak[one.label] - (one.memory_gib or 0))
    need, have = peak[group.label], group.memory_gib or 0.0
    who = listed(peak_holders(tree, roomy, group.label))
    return Finding(
        code="RP114",
        what=f"memory: {who} {need:.4g} of {have:g} GiB per accelerator of {group.label!r}, "
        f"{need - have:.3g} GiB too much",
        why="this is the arrangement that needs the least more",
        remedy="lower memory_gib or resident_gib, use accelerators with more memory, or add accelerators so that "
        "components need not take turns",
    )
