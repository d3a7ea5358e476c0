"""The modes of a layout: how many accelerators it reserves, where its rollout starts, and what runs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any


class LayoutMode(Enum):
    """The first mode whose flags are all set applies.

    A counts the actor's accelerators, R those of the rollout. A layout `trains` or `serves` if its actor or
    its rollout engines run on the pool.
    """

    # fmt: off
    # mode                        flags                                       accelerators reserved, in words      rollout starts at  trains  serves  external
    DEBUG_TRAIN_ONLY            = ("debug_train_only",),                      lambda A, R: A,         "A",          lambda A: 0,       True,   False,  False
    EXTERNAL_DEBUG_ROLLOUT_ONLY = ("rollout_external", "debug_rollout_only"), lambda A, R: A,         "A",          lambda A: 0,       True,   False,  True
    EXTERNAL                    = ("rollout_external",),                      lambda A, R: A,         "A",          lambda A: A,       True,   False,  True
    DEBUG_ROLLOUT_ONLY          = ("debug_rollout_only",),                    lambda A, R: R,         "R",          lambda A: 0,       False,  True,   False
    COLOCATE                    = ("colocate",),                              lambda A, R: max(A, R), "the larger", lambda A: 0,       True,   True,   False
    DISAGGREGATED               = (),                                         lambda A, R: A + R,     "A + R",      lambda A: A,       True,   True,   False
    # fmt: on

    flags: tuple[str, ...]
    reserved: Callable[[int, int], int]
    formula: str
    rollout_offset: Callable[[int], int]
    trains: bool
    serves: bool
    is_external: bool

    def __new__(cls, flags: tuple[str, ...], *columns: Any) -> LayoutMode:
        mode = object.__new__(cls)
        mode._value_ = " and ".join(flags) or "disaggregated"
        mode.flags = flags
        mode.reserved, mode.formula, mode.rollout_offset = columns[:3]
        mode.trains, mode.serves, mode.is_external = columns[3:]
        return mode
