"""A rank is on the same node and device after every restart of the cluster."""

from __future__ import annotations

import pytest
from running import Program

pytestmark = pytest.mark.ray


def test_five_restarts_give_the_same_map() -> None:
    """Pitfall: node ids as the order change on every restart."""
    restarts = [Program("mapping", "2x2", env={"RAY_ADDRESS": None}) for _ in range(5)]
    try:
        said = [restart.answer(within=200) for restart in restarts]
        assert [restart.end() for restart in restarts] == [0] * 5
    finally:
        for restart in restarts:
            restart.kill()
    assert len({tuple(one["ids"]) for one in said}) == 5
    assert [one["seats"] for one in said] == [[["0", "0", "1"], ["1", "1", "0"]]] * 5
