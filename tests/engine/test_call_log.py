"""The log of a worker's calls: a ring that other processes of the node can read."""

from __future__ import annotations

import os

import pytest

from roost.engine.workers.call_log import FOR_CHANNEL, RAISED, RETURNED, CallLog, CallReader
from roost.engine.workers.call_summary import COLUMNS, STEP, CallFollower


def told(log: CallLog | CallReader) -> list[tuple[int, str, str]]:
    pages = log.pages() if isinstance(log, CallLog) else log
    return [(call.number, call.method, call.outcome) for call in pages.calls()]


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


def test_totals_outlast_the_ring() -> None:
    log = CallLog(["step", "save", "never"], slots=4)
    reader = CallReader(os.getpid(), log.fd)
    for _ in range(10):
        log.end(log.begin("step"), RETURNED)
    log.end(log.begin("save"), RAISED)
    step, save = reader.totals()
    assert (step.method, step.returned, step.raised, sum(step.lasting)) == ("step", 10, 0, 10)
    assert (save.method, save.returned, save.raised, sum(save.lasting)) == ("save", 0, 1, 1)
    assert step.seconds >= 0


class Timed:
    """A log whose calls begin and end when the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int = 64) -> None:
        self._patch, self.log = monkeypatch, CallLog(["train", "serve"], slots=slots)
        self.follower = CallFollower(self.log.pages())

    def begin(self, method: str, at: float) -> int:
        self._patch.setattr("time.time", lambda: at)
        return self.log.begin(method)

    def end(self, place: int, at: float, outcome: int = RETURNED) -> None:
        self._patch.setattr("time.time", lambda: at)
        self.log.end(place, outcome)

    def call(self, method: str, start: float, end: float) -> None:
        self.end(self.begin(method, start), end)


NOW = 1_000_000 * STEP + STEP / 2  # in the middle of a column


def test_a_summary_has_calls_in_flight_the_last_call_and_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    timed.call("train", NOW - 20, NOW - 18)
    timed.end(timed.begin("serve", NOW - 10), NOW - 9, RAISED)
    running, waiting = timed.begin("train", NOW - 5), timed.begin(FOR_CHANNEL, NOW - 2)
    found = timed.follower.summary(NOW, runs=True)
    assert [(call.method, call.seconds) for call in found.in_flight] == [("train", 5)]
    assert (found.waits, found.last_call) == (FOR_CHANNEL, "serve raised")
    assert [(one.method, one.returned, one.raised) for one in found.totals] == [
        ("train", 1, 0),
        ("serve", 0, 1),
    ]
    assert (found.totals[0].seconds, found.totals[0].lasting) == (2, (0, 0, 0, 0, 1, 0, 0, 0))
    timed.end(waiting, NOW + 1)
    timed.end(running, NOW + 2)
    later = timed.follower.summary(NOW + 3, runs=True)
    assert (later.in_flight, later.waits, later.last_call) == ((), "", "train returned")


def test_the_recent_use_is_work_without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    column = NOW - STEP / 2  # the last one begins
    timed.call("train", column - 2 * STEP, column - STEP)  # all of a column
    timed.call("train", column - COLUMNS * 2 * STEP, column - COLUMNS * STEP)  # too long ago
    timed.begin("train", column - STEP / 2)
    timed.begin(FOR_CHANNEL, column)
    use = timed.follower.summary(NOW, runs=True).use
    assert len(use) == COLUMNS
    assert use[-3:] == (1.0, 0.5, 0.0)
    assert not any(use[:-3])
    working = Timed(monkeypatch)
    working.begin("train", column)
    assert working.follower.summary(NOW, runs=True).use[-2:] == (
        0.0,
        1.0,
    )  # all of what is over of the last one
    # How long a dead process was at work is not known.
    assert timed.follower.summary(NOW, runs=False).use[-3:] == (1.0, 0.0, 0.0)


def test_many_looks_see_what_one_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch, slots=8)
    long = timed.begin("serve", NOW - 100)
    for number in range(30):  # overlapping with the long one, and more than there are places
        timed.call("train", NOW - 90 + number, NOW - 89.5 + number)
        timed.follower.summary(NOW - 89 + number, runs=True)
    timed.end(long, NOW - 50)
    many = timed.follower.summary(NOW, runs=True)
    assert (many.in_flight, many.last_call) == ((), "serve returned")
    assert sum(many.use) * STEP == pytest.approx(50, abs=0.05)  # shares are rounded
    # Whoever looks for the first time finds only what the ring still has.
    assert CallFollower(timed.log.pages()).summary(NOW, runs=True).totals == many.totals
