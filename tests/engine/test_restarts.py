"""A rank is on the same node and device, and a pool in the same order, after every restart of the cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from running import Program

pytestmark = pytest.mark.ray


def one_run(_: int) -> Any:
    """Where the ranks were, on a cluster that was started for this."""
    program = Program("mapping", "2x12", env={"RAY_ADDRESS": None})
    try:
        said = program.answer(within=120)
        assert program.end() == 0
    finally:
        program.kill()
    return said


def test_five_restarts_give_the_same_map() -> None:
    """Pitfalls: node ids as the order change on every restart; GPU "10" sorts before "2"."""
    with ThreadPoolExecutor(2) as two_at_a_time:
        runs = list(two_at_a_time.map(one_run, range(5)))
    assert len({tuple(run["ids"]) for run in runs}) == 5
    assert [run["seats"] for run in runs] == [[["0", "0", "1"], ["1", "1", "0"]]] * 5
    order = [["0", str(device)] for device in range(12)] + [["1", str(device)] for device in range(6)]
    assert [run["pool"] for run in runs] == [order] * 5
