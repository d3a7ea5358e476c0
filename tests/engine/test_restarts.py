"""A rank is on the same node and device, and a pool in the same order, after every restart of the job or of Ray."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from running import Program

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def one_ray(jobs: int) -> Any:
    """What each of some jobs found, on a Ray that was started for them."""
    program = Program("mapping", "2x12", str(jobs), env={"RAY_ADDRESS": None})
    try:
        said = program.answer(within=180)
        assert program.end() == 0
    finally:
        program.kill()
    return said


def test_five_restarts_give_the_same_map() -> None:
    """Pitfalls: node ids as the order change on every restart; GPU "10" sorts before "2"."""
    with ThreadPoolExecutor(2) as side_by_side:
        rays = list(side_by_side.map(one_ray, (3, 2)))
    assert len({tuple(run["ids"]) for runs in rays for run in runs}) == 2  # other nodes, by their ids
    runs = [run for runs in rays for run in runs]
    assert [run["seats"] for run in runs] == [[["0", "0", "1"], ["1", "1", "0"]]] * 5
    order = [["0", str(device)] for device in range(12)] + [["1", str(device)] for device in range(6)]
    assert [run["pool"] for run in runs] == [order] * 5
