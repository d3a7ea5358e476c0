"""Records of runs: when processes worked, and what an iteration costs them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.engine.run_measures import iterations_of, seconds_of
from roost.engine.run_record import ProcessRecord, RunRecord
from roost.engine.workers.call_log import FOR_CHANNEL, FOR_LOCK, Call
from roost.engine.workers.spans import merged, without

spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair))))


def moments(found: Any) -> set[int]:
    return {at for start, end in found for at in range(int(start), int(end))}


@given(spans, spans)
def test_spans_are_sets_of_moments(some: Any, others: Any) -> None:
    assert moments(merged(some)) == moments(some)
    left = without(merged(some), merged(others))
    assert moments(left) == moments(some) - moments(others)
    assert left == sorted(left)


def process(component: str, rank: int, *calls: tuple[str, float, float | None], **more: Any) -> ProcessRecord:
    noted = tuple(
        Call(
            number=number,
            method=method,
            start=start,
            end=end,
            outcome="running" if end is None else "returned",
        )
        for number, (method, start, end) in enumerate(calls, start=1)
    )
    return ProcessRecord(
        component=component, rank=rank, generation=0, node=0, devices=(rank,), calls=noted, **more
    )


def record_of(*processes: ProcessRecord, until: float = 100.0) -> RunRecord:
    plan = roost.plan({"cluster": {"component_placement": {"actor": "0-1", "rollout": "0-1"}}}, "1x2")
    return RunRecord(job="job", plan=plan, processes=processes, events=(), until=until)


def test_waits_are_no_work_and_the_call_of_a_dead_process_counts_as_nothing() -> None:
    one = process("actor", 0, ("train", 0, 10), (FOR_CHANNEL, 1, 4), (FOR_LOCK, 5, 6), ("train", 12, None))
    assert one.busy(20) == [(0, 1), (4, 5), (6, 10), (12, 20)]
    dead = process("actor", 0, ("train", 0, 10), ("train", 12, None), alive=False)
    assert moments(dead.busy(20)) == set(range(10))


def test_what_an_iteration_costs() -> None:
    def calls(slow: float) -> list[tuple[str, float, float | None]]:
        found: list[tuple[str, float, float | None]] = []
        for step in range(6):
            at = 10.0 * step
            found += [
                ("load", at, at + 2),
                (FOR_LOCK, at, at + 1),
                ("act", at + 3, at + 4),
                ("end", at + 5, at + 6 + slow),
            ]
        return found

    record = record_of(process("rollout", 0, *calls(0)), process("rollout", 1, *calls(1)))
    iterations = iterations_of(record, "rollout", "load")
    assert iterations is not None
    assert iterations.seconds == 10
    assert (
        seconds_of(record, "rollout", iterations, ["load", "end"]) == 6
    )  # of the slow rank, without the wait
    assert seconds_of(record, "rollout", iterations, ["act"]) == 1
    assert seconds_of(record, "rollout", iterations) == pytest.approx(4, abs=0.5)  # 1 + 1 + 2 in calls
    assert seconds_of(record, "actor", iterations) is None
    assert iterations_of(record, "rollout", "train") is None
