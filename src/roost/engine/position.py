"""One place in a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One accelerator of a pool."""

    node: int
    device: int  # its number on the node
    name: str  # what it is called there, as it was measured
    bundle: Any = None  # (placement group, index); None where nothing is reserved, as inline
