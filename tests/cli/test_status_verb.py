"""`roost status` from other processes than the job's, while its driver is busy, stopped and dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from running import eventually, new_job, roost_command

import roost
from roost.cli.output_schemas import output_schema
from roost.cli.status import Show, _watch
from roost.engine.events import Event
from roost.engine.job.job_folder import JobHistory
from roost.engine.job_snapshot import JobSnapshot
from roost.errors import ClusterGone


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Ray and no history."""
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("roost.cli.running_job.own_cluster_address", lambda: None)


@pytest.mark.usefixtures("elsewhere")
def test_without_a_ray_there_are_only_histories(cli: Any) -> None:
    done = cli("status")
    assert (done.code, done.out) == (4, "")
    assert "error[RE101]: there is no Ray to ask" in done.err
    assert cli("status", "old", "--json").data["findings"][0]["code"] == "RE101"
    JobHistory("old").write(Event(action="shut down"))
    done = cli("status", "old")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("job old: ended, its last event ")
    done = cli("status", "--json")
    assert (done.code, [job["job"] for job in done.data["jobs"]]) == (4, ["old"])
    jsonschema.validate(done.data, output_schema("status"))


@pytest.mark.installed
@pytest.mark.usefixtures("elsewhere")
def test_a_history_is_shown_though_its_ray_cannot_be_reached() -> None:
    JobHistory("old").write(Event(action="shut down"))
    words = roost_command("status", "old", "--address", "127.0.0.1:1")  # nothing listens there
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "cannot connect to Ray" in done.stderr) == (4, True)
    assert done.stdout.startswith("job old: ended")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "1"], "add --web"),
        (["--open"], "add --web"),
        (["--web", "--watch"], "give one of them"),
        (["--web", "--json"], "give one of them"),
        (["--every", "0"], "--every"),
        (["--every", "2"], "add --watch"),
        (["a/b"], "is not the name of a job"),
        (["job:actor"], "is not the name of a job"),
    ],
)
def test_wrong_usage(cli: Any, arguments: list[str], said: str) -> None:
    done = cli("status", *arguments)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("as_json", [False, True])
def test_watching_ends_when_its_reader_leaves(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    reading, writing = os.pipe()
    quiet = [JobSnapshot(job="quiet", time=0, state="running")]  # nothing of it changes
    looks: list[int] = []

    def read() -> list[JobSnapshot]:
        looks.append(len(looks))
        assert len(looks) < 3
        if len(looks) == 2:
            os.close(reading)
        return quiet

    with open(writing, "w", encoding="utf-8") as stdout:  # noqa: PTH123
        monkeypatch.setattr("sys.stdout", stdout)
        show = Show(one=True, show_all=False, as_json=as_json)
        _watch(read, quiet, "quiet", show, every=0)


@pytest.mark.parametrize("as_json", [False, True])
def test_watching_ends_with_the_job_when_its_ray_ends_too(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    found = [JobSnapshot(job="short", time=0, state="running")]

    def read() -> list[JobSnapshot]:
        raise ClusterGone(code="RE128", what="the Ray cluster is gone")

    _watch(read, found, "short", Show(one=True, show_all=False, as_json=as_json), every=0)
    *_, last = capsys.readouterr().out.splitlines()
    if as_json:
        assert json.loads(last)["jobs"][0]["state"] == "ended"
    else:
        assert last.endswith("job short: running -> ended")
    with pytest.raises(ClusterGone):  # nothing says that all jobs have ended in order
        _watch(read, found, None, Show(one=False, show_all=False, as_json=as_json), every=0)


def by_name(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['component']}:{one['rank']}": one for one in job["processes"]}


@pytest.mark.ray
def test_a_job_is_seen_while_its_driver_is_busy_stopped_and_dead(
    cli: Any, run: Callable[..., Any], address: str, cluster: roost.Cluster, tmp_path: Path
) -> None:
    job = new_job("watched")
    driver = run("watched", job, str(tmp_path / "gate"))
    said = driver.answer()
    pids = said["pids"]

    def look(*arguments: str) -> dict[str, Any]:
        done = cli("status", job, "--address", address, "--json", *arguments)
        assert done.code == 0, done.err
        jsonschema.validate(done.data, output_schema("status"))
        (found,) = done.data["jobs"]
        return found  # type: ignore[no-any-return]

    # The driver is busy.
    found = eventually(
        lambda: (one := look())["processes"][0]["state"] == "busy" and one, 30, "a call in flight"
    )
    assert (found["job"], found["state"], found["silent"]) == (job, "running", [])
    assert found["plans"] == [
        {"digest": said["plan"], "job_file": "", "components": ["source", "engine", "spare"]}
    ]
    assert found["driver"] == {"pid": driver.process.pid, "node": 0, "state": "running"}
    assert [node["state"] for node in found["nodes"]] == ["up", "up"]
    assert found["nodes"][0]["machine"]["cpus"] == os.cpu_count()
    processes = by_name(found)
    assert [one["state"] for one in processes.values()] == ["busy", "idle", "idle", "idle", "not started"]
    assert [one["pid"] for one in processes.values()] == [*pids, None]
    blocked, engine = processes["source:0"], processes["engine:0"]
    assert (blocked["calls_in_flight"], blocked["node"], blocked["devices"]) == (["blocks"], 0, [0])
    assert blocked["busy_for"] > 0
    assert (engine["planned_node"], engine["devices"], engine["visible"]) == (1, [0, 1], "0,1")
    assert engine["last_call"] == "pid returned"
    (channel,) = found["channels"]
    assert (channel["name"], channel["length"], channel["capacity"]) == ("samples", 3, 5)
    assert [(event["action"], event["detail"]) for event in found["events"]] == [
        ("launched", "3 processes"),
        ("launched", "1 process"),
    ]

    # It is stopped, and so is a worker; another one is killed.
    driver.signal(signal.SIGSTOP)
    psutil.Process(pids[1]).send_signal(signal.SIGSTOP)
    psutil.Process(pids[2]).kill()

    def struck() -> Any:
        found = look()
        states = [one["state"] for one in (found["driver"], *found["processes"][1:3])]
        return states == ["stopped", "stopped", "dead"] and found

    found = eventually(struck, 30, "the stopped driver and worker, and the dead worker")
    assert [one["state"] for one in found["processes"]] == ["busy", "stopped", "dead", "idle", "not started"]
    assert found["processes"][0]["busy_for"] > blocked["busy_for"]
    shown = cli("status", job, "--address", address).out
    assert f"driver pid {driver.process.pid} on node 0, stopped; 2 nodes up" in shown
    # The agent of the node tells of the loss, since the driver does not.
    found = eventually(lambda: (one := look())["events"][-1]["cause"] and one, 30, "an event of the crash")
    assert found["events"][-1]["action"] == "found; the driver does not answer"

    # Two jobs side by side, and one that nobody knows.
    both = cli("status", "--address", address, "--json").data["jobs"]
    assert {cluster.job, job} <= {one["job"] for one in both if one["state"] == "running"}
    unknown = cli("status", "nobody", "--address", address)
    assert (unknown.code, unknown.out) == (4, "")
    assert "no job 'nobody' is running" in unknown.err
    assert cluster.job in unknown.err

    # It dies, and who watches is told.
    words = roost_command("status", job, "--address", address, "--watch", "--every", "0.2")
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(f"job {job}: running")
        driver.signal(signal.SIGKILL)
        rest = watching.stdout.read()  # until it ends by itself
        assert watching.wait(60) == 0
    finally:
        watching.kill()
    assert rest.splitlines()[-1].endswith(f"job {job}: running -> ended")
    ended = look()  # from its history
    assert (ended["state"], ended["processes"]) == ("ended", [])
    assert ended["events"][-1]["cause"] == "crash"
    assert json.dumps(ended["events"]).count("launched") == 2
