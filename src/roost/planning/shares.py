"""The share of an accelerator that each component on it is charged.

Amounts are whole ten-thousandths, which is as fine as Ray counts, and are rounded down: the sum on an
accelerator never exceeds 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from roost.config.ranks import ranges
from roost.errors import Finding, PlacementError
from roost.placement.placement import Device
from roost.planning.occupancy import Use, Uses

WHOLE = 10_000
# The share of training on an accelerator that it shares with rollout only, unless the job sets one.
_TRAINING_TICKS = 8_000


def charge(uses: Iterable[Use], wishes: Mapping[str, float]) -> dict[str, float]:
    """The total share that each component on one accelerator is charged."""
    names = tuple(use.component for use in uses)
    problem = _problem(names, wishes)
    if problem is not None:
        raise PlacementError(problem)
    return {name: ticks / WHOLE for name, ticks in _ticks(names, wishes).items()}


def ticks_of(share: float) -> int:
    """A share in ten-thousandths, as written: 0.29 is 2900, although the nearest float is smaller."""
    return int(Decimal(repr(float(share))) * WHOLE)


def _ticks(names: Sequence[str], wishes: Mapping[str, float]) -> dict[str, int]:
    if len(names) == 1:
        return {names[0]: WHOLE}
    asked = {name: ticks_of(wishes[name]) for name in names if name in wishes}
    others = [name for name in names if name not in asked]
    training = [name for name in names if name in ("actor", "critic")]
    rollout = [name for name in names if name == "rollout" or name.startswith("rollout.")]
    if not asked and len(training) == len(rollout) == 1 and len(names) == 2:
        return {name: _TRAINING_TICKS if name in training else WHOLE - _TRAINING_TICKS for name in names}
    each = (WHOLE - sum(asked.values())) // len(others) if others else 0
    return {name: asked.get(name, each) for name in names}


def _problem(names: Sequence[str], wishes: Mapping[str, float]) -> Finding | None:
    asked = [name for name in names if name in wishes]
    if len(names) < 2 or not asked:
        return None
    total = sum(ticks_of(wishes[name]) for name in asked)
    others = [name for name in names if name not in wishes]
    listed = " + ".join(f"{name} {wishes[name]:g}" for name in asked)
    if total > WHOLE:
        what, remedy = f"the shares add up to {total / WHOLE:g}", "lower them until they add up to 1 at most"
        return Finding(code="RP111", what=what, why=listed, remedy=remedy)
    if others and (WHOLE - total) // len(others) == 0:
        what = f"the shares leave nothing for {' and '.join(others)}"
        remedy = "lower them, or give every component there a share"
        return Finding(code="RP111", what=what, why=f"{listed} = {total / WHOLE:g}", remedy=remedy)
    return None


def share_problems(occupancy: Mapping[Device, Uses], wishes: Mapping[str, float]) -> list[Finding]:
    """Accelerators on which the shares do not add up, once for each set of components."""
    where: dict[tuple[str, ...], list[Device]] = {}
    for device, uses in occupancy.items():
        if not device.group and len(uses) > 1:
            where.setdefault(tuple(use.component for use in uses), []).append(device)
    findings = []
    for names, devices in where.items():
        problem = _problem(names, wishes)
        if problem is not None:
            what, path = f"{_listed(devices)}: {problem.what}", ("cluster", "shares")
            findings.append(replace(problem, what=what, path=path))
    return findings


def _listed(devices: Sequence[Device]) -> str:
    """`node 0 accelerators 2-3 and 8 more`."""
    node = devices[0].node
    numbers = [device.number for device in devices if device.node == node]
    more = f" and {len(devices) - len(numbers):,} more" if len(devices) > len(numbers) else ""
    return f"node {node} accelerator{'s' * (len(numbers) > 1)} {ranges(numbers)}{more}"
