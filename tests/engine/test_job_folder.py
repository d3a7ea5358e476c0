"""The folder of a job: only its owner reads it, and nothing is written elsewhere."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from roost.engine.events import Event
from roost.engine.job.job_folder import (
    JobHistory,
    StartedProcess,
    job_folder,
    past_jobs,
    read_history,
    read_processes,
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_events_are_lines_of_json_that_only_the_owner_reads(state: Path) -> None:
    history, event = JobHistory("job-1"), Event(action="launched", component="actor", detail="4 processes")
    history.write(event)
    history.write(event)
    file = state / "jobs" / "job-1" / "events.jsonl"
    assert [json.loads(line) for line in file.read_text().splitlines()] == [event.to_dict()] * 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_links_lead_nowhere(state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (state / "jobs").mkdir(parents=True)
    (state / "jobs" / "linked").symlink_to(elsewhere)
    JobHistory("linked").write(Event(action="launched"))
    assert not list(elsewhere.iterdir())
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (state / "jobs" / "plain").mkdir()
    (state / "jobs" / "plain" / "events.jsonl").symlink_to(victim)
    JobHistory("plain").write(Event(action="launched"))
    assert victim.read_text() == "kept"


def test_a_folder_that_cannot_be_written_is_no_failure(state: Path) -> None:
    state.write_text("a file")
    JobHistory("job-1").write(Event(action="launched"))


def test_the_folder_is_below_the_state(state: Path) -> None:
    assert Path(job_folder("a.b-c")) == state / "jobs" / "a.b-c"


def test_a_history_is_read_again_and_damaged_lines_are_left_out(state: Path) -> None:
    assert (past_jobs(), read_history("job-1")) == ([], [])
    first, second = Event(action="launched", time=1.0), Event(action="shut down", time=2.0)
    for job in ("job-1", "job-2"):
        JobHistory(job).write(first)
    file = state / "jobs" / "job-1" / "events.jsonl"
    with file.open("a") as damaged:
        damaged.write('{"action": 3\n[1]\n{"unknown": 1}\n')
    JobHistory("job-1").write(second)
    assert read_history("job-1") == [first, second]
    assert read_history("job-1", most=1) == [second]
    os.utime(file, (1, 1))
    assert past_jobs() == ["job-2", "job-1"]


def test_a_history_that_is_a_link_is_not_read(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "events.jsonl"
    other.write_text(json.dumps(Event(action="launched").to_dict()) + "\n")
    (state / "jobs" / "linked").mkdir(parents=True)
    (state / "jobs" / "linked" / "events.jsonl").symlink_to(other)
    assert read_history("linked") == []


def test_the_processes_of_the_last_run_can_be_read_back(state: Path) -> None:
    process = StartedProcess(
        component="actor",
        rank=0,
        generation=0,
        node=0,
        node_id="n",
        host="h",
        pid=1,
        started=2,
        logs=("e", "o"),
    )
    assert read_processes("job-1") is None
    for number in (1, 2):
        history = JobHistory("job-1")
        history.write_start({"token": f"run-{number}"})
        history.write_process(replace(process, pid=number))
    file = state / "jobs" / "job-1" / "processes.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open("a") as torn:
        torn.write('{"component": "ac')
    assert read_processes("job-1") == (
        {"token": "run-2"},
        [replace(process, pid=2).to_dict() | {"logs": ["e", "o"]}],
    )


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_blocks_nothing(state: Path, kind: str) -> None:
    folder = state / "jobs" / "job-1"
    folder.mkdir(parents=True)
    (os.mkfifo if kind == "pipe" else os.mkdir)(folder / "events.jsonl")
    history = JobHistory("job-1")
    history.write(Event(action="launched"))
    history.write_start({"token": "run-1"})
    assert read_history("job-1") == []
    assert read_processes("job-1") == ({"token": "run-1"}, [])


def test_a_line_that_was_cut_off_spoils_no_other(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the machine failed, and when the disk is full in the middle of a line."""
    first, second = Event(action="launched", time=1.0), Event(action="shut down", time=2.0)
    JobHistory("job-1").write(first)
    with (state / "jobs" / "job-1" / "events.jsonl").open("a") as torn:
        torn.write('{"action": "rest')
    history = JobHistory("job-1")
    history.write(first)
    with monkeypatch.context() as full:
        write = os.write
        full.setattr(os, "write", lambda file, data: write(file, data[:10]))
        history.write(second)
    history.write(second)
    assert read_history("job-1") == [first, first, second]


@pytest.mark.parametrize("damage", ["7", "[" * 100_000, '{"run": 3}', '{"component": "actor"}', "null"])
def test_damaged_processes_are_left_out(state: Path, damage: str) -> None:
    JobHistory("job-1").write_start({"token": "run-1"})
    with (state / "jobs" / "job-1" / "processes.jsonl").open("a") as damaged:
        damaged.write(f"{damage}\n")
    assert read_processes("job-1") == ({"token": "run-1"}, [])


@pytest.mark.parametrize(
    "wrong", [{"time": "now"}, {"time": 1e300}, {"time": float("nan")}, {"rank": "0"}, {"detail": None}]
)
def test_damaged_events_are_left_out(state: Path, wrong: dict[str, object]) -> None:
    JobHistory("job-1").write(Event(action="launched", time=1.0))
    with (state / "jobs" / "job-1" / "events.jsonl").open("a") as damaged:
        damaged.write(json.dumps({"action": "launched", **wrong}) + "\n")
    assert len(read_history("job-1")) == 1
