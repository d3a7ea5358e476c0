"""The accelerators that a plan does not use, and the holders of those that other programs hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from roost.config.ranks import ranges
from roost.planning.plan import Plan
from roost.planning.preflight import Holder, holders_by_node

State = Literal["idle", "held", "perhaps held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """The accelerators of one node that no component of a plan uses."""

    held: Mapping[int, tuple[str, ...]]  # number to the names of its holders
    others: tuple[int, ...]  # `idle` of these are free; it may be unknown which ones
    idle: int

    @property
    def held_count(self) -> int:
        return len(self.held) + len(self.others) - self.idle

    @property
    def idle_numbers(self) -> str:
        """`4-7`, or `2 of 4-7` if it is unknown which ones."""
        numbers = ranges(self.others)
        return numbers if self.idle == len(self.others) else f"{self.idle} of {numbers}"

    def state_of(self, number: int) -> State | None:
        """The state of an accelerator; None if a component uses it."""
        if number in self.held:
            return "held"
        if number not in self.others:
            return None
        return "idle" if self.idle == len(self.others) else "perhaps held"


def unused_by_node(plan: Plan, holders: Sequence[Holder]) -> dict[int, Unused]:
    """The unused accelerators of each node that has any."""
    by_node = holders_by_node(holders)
    unused: dict[int, list[int]] = {}
    for device in plan.idle:
        unused.setdefault(device.node, []).append(device.number)
    return {node: _unused(numbers, by_node.get(node, ())) for node, numbers in unused.items()}


def _unused(numbers: Sequence[int], holders: Sequence[Holder]) -> Unused:
    held: dict[int, tuple[str, ...]] = {}
    for number in numbers if holders else ():
        if names := tuple(holder.name for holder in holders if number in (holder.devices or ())):
            held[number] = names
    others = tuple(number for number in numbers if number not in held)
    untold = {holder.name: untold_count(holder) for holder in holders if untold_count(holder)}
    idle = max(0, len(others) - ceil(sum(untold.values())))
    if not idle:
        held |= dict.fromkeys(others, tuple(untold))
        others = ()
    return Unused(held=held, others=others, idle=idle)


def untold_count(holder: Holder) -> float:
    """How many accelerators of a holder have unknown numbers."""
    return max(0, holder.count - len(holder.devices or ()))
