"""Verifies a suggestion: every claim, by methods that share no code with the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import Finding, error_for
from roost.suggesting.checker import Checker, Tree
from roost.suggesting.counterexamples import Counterexamples
from roost.suggesting.problem import Problem
from roost.suggesting.relaxation import relaxed

_TIE = 1e-9
_MOST_TREES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked. No arrangement is faster than `proven`, by the second method alone."""

    seconds: float
    bound: float  # that was claimed
    proven: float
    method: str  # "relaxation" or "enumeration"

    @property
    def complete(self) -> bool:
        """Whether the second method proves all of the claimed bound."""
        return self.proven >= self.bound * (1 - 2 * _TIE)

    @property
    def gap(self) -> float:
        """What the second method leaves open, relative; 0 when it proves the arrangement to be the best."""
        return 0.0 if self.proven >= self.seconds * (1 - 2 * _TIE) else 1 - self.proven / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return {"proven": self.proven, "gap": self.gap, "complete": self.complete, "method": self.method}


def verify(
    problem: Problem,
    tree: Tree,
    *,
    seconds: float,
    bound: float,
    gap: float,
    accelerators: int,
    placement: Mapping[str, Any],
) -> Verification:
    """Check every claim of a suggestion. One error holds all that do not hold.

    A relaxation bounds the seconds of every arrangement at any size. Where it leaves a gap, all arrangements are
    tried if they are few; otherwise faster ones are looked for, which can refute a bound but not prove it.
    """
    checker = Checker(problem)
    wrong = list(checker.problems(tree))
    if not wrong:
        state = checker.state(tree)
        wrong += checker.overflows(state)
        wrong += checker.misplaced(tree, placement)
        value = checker.value(tree)
        if not abs(value - seconds) <= _TIE * value:
            wrong.append(f"the arrangement takes {value:.9g} s, not {seconds:.9g} s")
        if sum(state.n) != accelerators:
            wrong.append(f"the arrangement uses {sum(state.n)} accelerators, not {accelerators}")
        consistent = bound <= seconds * (1 + _TIE) and abs(gap - max(0.0, 1 - bound / seconds)) <= 2 * _TIE
        if not consistent:
            wrong.append(f"bound {bound:.9g}, seconds {seconds:.9g} and gap {gap:.3g} do not go together")
    if not wrong:
        second = relaxed(problem, checker.tables, seconds)
        proven, method = second.bound, "relaxation"
        if proven < bound * (1 - _TIE):
            others = Counterexamples(checker)
            if others.count() <= _MOST_TREES:
                proven, method = others.least(), "enumeration"
                refuted = proven < bound * (1 - _TIE)
            else:
                starts = [start for start in (second.tree, tree) if start and checker.stands(start)]
                refuted = any(others.improved(start, bound * (1 - _TIE)) for start in starts)
            if refuted:
                wrong.append(f"the bound of {bound:.9g} s does not hold: there is a faster arrangement")
    if wrong:
        remedy = "ask for it again; a suggestion holds only for the profile and the cluster it was made for"
        raise error_for([Finding(code="RS105", what=what, remedy=remedy) for what in wrong])
    return Verification(seconds=seconds, bound=bound, proven=proven, method=method)
