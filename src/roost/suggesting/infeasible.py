"""Explains why no arrangement fits: what is short, by how much, and what would do.

Whether something fits depends on the smallest sizes only: a larger one needs more accelerators, and as much memory
of each. So all questions here are asked about a problem in which each component has its smallest size alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from roost.errors import Finding, PlacementError, counted
from roost.suggesting.arrangement import Arrangement, cost_of
from roost.suggesting.cost_curves import cost_curve
from roost.suggesting.memory_holders import listed, peak_holders
from roost.suggesting.problem import Problem
from roost.suggesting.profile import ComponentProfile
from roost.suggesting.solver import solve

_CLOSE = 1e-3  # GiB; how exactly the least memory that would do is found


def smallest_arrangement(problem: Problem, *, check_memory: bool = True) -> Arrangement | None:
    """An arrangement of the smallest sizes. There is one if any arrangement fits."""
    return _fitting(problem, problem.totals, check_memory=check_memory)


def infeasible(problem: Problem) -> PlacementError:
    if smallest_arrangement(problem, check_memory=False) is None:
        return PlacementError(*_too_few(problem))
    return PlacementError(_too_little_memory(problem))


def _fitting(problem: Problem, totals: Mapping[str, int], *, check_memory: bool) -> Arrangement | None:
    """An arrangement of the smallest sizes that fits groups of these totals."""
    groups = tuple(replace(group, total=totals[group.label]) for group in problem.groups)
    curves = {
        name: {
            label: cost_curve({size: part.table(label)[size]}, part.width, totals[label])
            for label, size in _smallest(problem, part).items()
            if size <= totals[label]
        }
        for name, part in problem.profile.components.items()
    }
    return solve(replace(problem, groups=groups, curves=curves), check_memory=check_memory).tree


def _smallest(problem: Problem, part: ComponentProfile) -> dict[str, int]:
    """The smallest measured size of a component on each group."""
    return {group.label: min(table) for group in problem.groups if (table := part.table(group.label))}


# -- accelerators ------------------------------------------------------------------------------------------


def _too_few(problem: Problem) -> list[Finding]:
    """Accelerators are short, for one component by itself or for all together."""
    profile = problem.profile
    have = problem.totals
    enough = _would_do(problem)
    more = sum(enough.values()) - sum(have.values())
    wanted = f"plan for at least {_amounts(enough)}"
    findings = []
    for name, part in profile.components.items():
        if part.needs_accelerators and not problem.curves[name]:
            label, size = min(_smallest(problem, part).items(), key=lambda one: one[1] - have[one[0]])
            on = f" on {label!r}" if len(have) > 1 else ""
            than = f"{label!r} has" if len(have) > 1 else "there are"
            findings.append(
                profile.document.finding(
                    "RP113",
                    f"{name}: its smallest measured size{on} is {size}, {size - have[label]} more than {than}",
                    (*profile.at(name), "seconds"),
                    why=f"no size outside the measured range is used, and there are {_amounts(have)}",
                    remedy=f"measure it on {have[label]} or fewer{on}, or {wanted}",
                )
            )
    return findings or [
        Finding(
            code="RP113",
            what=f"no arrangement fits {_amounts(have)}: at least {_amounts(enough)} would do, {more} more",
            why="even if components take turns, their smallest measured sizes need more",
            remedy="add accelerators, or measure the components at smaller sizes",
        )
    ]


def _amounts(totals: Mapping[str, int]) -> str:
    """Totals in words; of several groups with their names."""
    if len(totals) == 1:
        return counted(next(iter(totals.values())), "accelerator")
    first, *others = (f"{total} of {label!r}" for label, total in totals.items())
    return " and ".join([first.replace(" of", " accelerators of", 1), *others])


def _would_do(problem: Problem) -> dict[str, int]:
    """Totals of the groups that would do, with as few more accelerators as possible."""
    have = problem.totals

    def more(totals: tuple[int, ...]) -> tuple[int, int]:
        return sum(totals) - sum(have.values()), sum(
            a != b for a, b in zip(totals, have.values(), strict=True)
        )

    candidates = sorted(set(_needs(problem)), key=more)
    for totals in candidates[:-1]:
        named = dict(zip(have, totals, strict=True))
        if _fitting(problem, named, check_memory=False) is not None:
            return named
    return dict(zip(have, candidates[-1], strict=True))


def _needs(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Totals of the groups that may do: the components of each group take turns there.

    That needs the largest of their sizes, rounded up to the width of some component of the tree. Running beside each
    other on the same group never needs fewer.
    """
    parts = [part for part in problem.profile.components.values() if part.needs_accelerators]
    widths = sorted({1, *(part.width for part in parts)})
    choices = [_smallest(problem, part).items() for part in parts]
    largest = {
        tuple(
            max((size for where, size in chosen if where == group.label), default=0)
            for group in problem.groups
        )
        for chosen in product(*choices)
    }
    for sizes in largest:
        for rounding in product(widths, repeat=len(sizes)):
            yield tuple(
                max(group.total, -(-size // width) * width)
                for group, size, width in zip(problem.groups, sizes, rounding, strict=True)
            )


# -- memory ------------------------------------------------------------------------------------------------


def _too_little_memory(problem: Problem) -> Finding:
    """The least memory that would do, the same amount more on every accelerator, and who needs it."""
    limits = {group.label: group.memory_gib for group in problem.groups if group.memory_gib is not None}

    def short(tree: Arrangement) -> dict[str, float]:
        peak = cost_of(tree, problem).peak
        return {label: peak[label] - limit for label, limit in limits.items()}

    tree = smallest_arrangement(problem, check_memory=False)
    assert tree is not None  # accelerators are not what is short
    little, much, slightly = 0.0, max(short(tree).values()), True
    while much - little > _CLOSE:
        more = much - _CLOSE if slightly else (little + much) / 2  # often the first is enough already
        groups = tuple(
            replace(group, memory_gib=None if group.memory_gib is None else group.memory_gib + more)
            for group in problem.groups
        )
        found = smallest_arrangement(replace(problem, groups=groups))
        if found is None:
            little = more
        else:
            much, tree = max(short(found).values()), found
        slightly = not slightly
    label = max(short(tree), key=short(tree).__getitem__)
    have, lacking = limits[label], short(tree)[label]
    who = listed(peak_holders(tree, problem, label))
    return Finding(
        code="RP114",
        what=f"memory: {who} {have + lacking:.4g} of {have:g} GiB per accelerator of {label!r}, "
        f"{lacking:.3g} GiB too much",
        why="this is the arrangement that needs the least more",
        remedy="lower memory_gib or resident_gib, use accelerators with more memory, or add accelerators so that "
        "components need not take turns",
    )
