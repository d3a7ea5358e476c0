"""The log of a worker's calls: a ring that other processes of the node can read."""

from __future__ import annotations

import os

import pytest

from roost.engine.workers.call_log import RAISED, RETURNED, CallLog, CallReader


def told(log: CallLog | CallReader) -> list[tuple[int, str, str]]:
    return [(call.number, call.method, call.outcome) for call in log.calls()]


def test_calls_are_read_while_they_run_and_after() -> None:
    log = CallLog(["train", "save"])
    reader = CallReader(os.getpid(), log.fd)
    first = log.begin("train", b"t" * 24)
    assert told(reader) == [(1, "train", "running")]
    assert log.seconds_of(b"t" * 24) is None
    log.end(first, RETURNED)
    log.end(log.begin("save"), RAISED)
    assert told(reader) == told(log) == [(1, "train", "returned"), (2, "save", "raised")]
    took = log.seconds_of(b"t" * 24)
    assert took is not None
    assert took >= 0


def test_the_oldest_calls_are_overwritten() -> None:
    log = CallLog(["step"], slots=4)
    for _ in range(10):
        log.end(log.begin("step"), RETURNED)
    assert [number for number, _, _ in told(log)] == [7, 8, 9, 10]


def test_a_call_that_runs_keeps_its_place() -> None:
    log = CallLog(["serve", "step"], slots=4)
    long = log.begin("serve")
    for _ in range(9):
        log.end(log.begin("step"), RETURNED)
    assert told(log)[0] == (1, "serve", "running")
    log.end(long, RETURNED)
    assert told(log)[0] == (1, "serve", "returned")
    assert {method for _, method, _ in told(log)[1:]} == {"step"}


def test_a_call_that_finds_no_place_is_not_logged() -> None:
    log = CallLog(["slow"], slots=2)
    *kept, lost = [log.begin("slow") for _ in range(3)]  # more at once than there are places
    before = told(log)
    assert len(before) == len(kept) == 2
    log.end(lost, RAISED)
    assert told(log) == before


def test_another_file_is_no_log() -> None:
    with open(os.devnull, "rb") as other, pytest.raises((OSError, ValueError)):  # noqa: PTH123
        CallReader(os.getpid(), other.fileno())
