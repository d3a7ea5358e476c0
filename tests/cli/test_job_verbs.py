"""`roost logs`, `stacks` and `down`: what needs no Ray. tests/engine/test_shell_commands.py has the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roost.cli import running_job
from roost.cli.chosen_process import Target
from roost.cli.ending import FAILED, code_of, emit
from roost.engine.job.job_folder import StartedProcess
from roost.engine.operating.job_logs import LogLine
from roost.engine.operating.job_stacks import SeenProcess
from roost.engine.processes.python_stacks import Frame, ProcessStacks, ThreadStack
from roost.errors import JobTakenDown
from roost.views.process_text import log_text, stacks_text

ACTOR = StartedProcess(
    component="actor", rank=3, generation=1, node=2, node_id="n", host="10.0.0.3", pid=77, started=1
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs"], "Missing argument"),
        (["logs", "job:actor:x"], "'x' is not a rank"),
        (["logs", "job:actor:1:2"], "is not JOB, JOB:component or JOB:component:rank"),
        (["stacks", "../x"], "is not JOB"),
        (["logs", "job", "--tail", "-1"], "--tail"),
        (["down", "job", "--timeout", "0"], "--timeout"),
        (["down", "../job"], "is not the name of a job"),
    ],
)
def test_wrong_usage(cli: Any, words: list[str], said: str) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_without_a_cluster_the_job_is_unknown(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    for verb in ("logs", "stacks", "down"):
        done = cli(verb, "nowhere")
        assert (done.code, "RE101" in done.err) == (4, True), verb
        assert "name one with --address" in done.err, verb
    for words in (["doctor", "--live"], ["up", "wait", "--nodes", "1"]):
        assert "name one with --address" in cli(*words).err
    done = cli("plan", "job.yaml", "--live")
    assert (done.code, "help: set RAY_ADDRESS to its HOST:PORT" in done.err) == (4, True)


def test_an_unknown_job_is_looked_for_on_the_ray_of_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name, found in {"own_cluster_address": None, "latest_address": "h:1", "past_jobs": ["run"]}.items():
        monkeypatch.setattr(running_job, name, lambda found=found: found)
    monkeypatch.setattr(running_job, "address_of", {"run": "h:2"}.get)
    monkeypatch.setattr(running_job, "read_processes", lambda job: None)
    assert [running_job.address_for(None, job) for job in ("runn", "run")] == ["h:1", "h:2"]
    monkeypatch.setattr(running_job, "address_of", lambda job: None)
    assert running_job.chosen_address(None, "run") is None  # it has ended, and its history tells the rest


def test_a_job_whose_ray_is_gone_is_down(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    folder = tmp_path / "jobs" / "past"
    folder.mkdir(parents=True)
    (folder / "processes.jsonl").write_text('{"run": {"token": "t", "address": "127.0.0.1:1"}}\n')
    done = cli("down", "past", "--json")
    assert (done.code, done.data["was_running"]) == (0, False)
    done = cli("logs", "past")
    assert (done.code, "the Ray at 127.0.0.1:1 on which it ran is gone" in done.err) == (4, True)


def test_what_a_target_covers() -> None:
    covering = [
        Target(job="j"),
        Target(job="j", component="actor"),
        Target(job="j", component="actor", rank=3),
    ]
    assert all(target.covers(ACTOR) for target in covering)
    assert not Target(job="j", component="env").covers(ACTOR)
    assert not Target(job="j", component="actor", rank=2).covers(ACTOR)


def test_lines_and_stacks_as_text() -> None:
    line = LogLine(process=ACTOR, stream="err", text="lost it")
    assert log_text(line) == "actor:3+1 ! lost it\n"
    assert log_text(line, colour=True).endswith("actor:3+1 !\033[0m lost it\n")
    host, mine = (
        Frame(function="forward", file="/x/roost/engine/ray_backend/worker_host.py", line=9),
        Frame(function="Actor.step", file="/srv/a.py", line=12),
    )
    threads = (
        ThreadStack(name="MainThread", frames=(mine, host), holds_interpreter=True),
        ThreadStack(name="loader", frames=()),
        ThreadStack(name="roost-heartbeat", frames=(host,)),
    )
    seen = [
        SeenProcess(process=ACTOR, stacks=ProcessStacks(state="running", threads=threads, how="py-spy")),
        SeenProcess(process=ACTOR, stacks=ProcessStacks(state="unknown", problem="no answer")),
    ]
    assert stacks_text(seen) == (
        "actor:3+1  node 2 (10.0.0.3)  pid 77  running  read by py-spy\n"
        "  MainThread, holds the interpreter\n    Actor.step (/srv/a.py:12)\n"
        "  loader: waits for calls\n\n"
        "actor:3+1  node 2 (10.0.0.3)  pid 77  unknown\n  not read: no answer\n"
    )
    assert "roost-heartbeat" in stacks_text(seen, show_all=True)
    assert "forward" in stacks_text(seen, show_all=True)


def test_stacks_show_the_code_of_the_job_alone() -> None:
    packages, roost = "/venv/lib/python3.11/site-packages", "/srv/roost/src/roost"
    driver = [
        ("Worker.get_objects", f"{packages}/ray/_private/worker.py"),
        ("patient_get", f"{roost}/engine/connection/cluster_watch.py"),
        ("RayResult.wait", f"{roost}/engine/ray_backend/ray_result.py"),
        ("main", "/srv/job/program.py"),
        ("drive", f"{roost}/cli/driver.py"),
        ("run_job", f"{roost}/cli/launch.py"),
        ("Context.invoke", f"{packages}/click/core.py"),
        ("run", f"{roost}/cli/verbs.py"),
        ("main", f"{roost}/cli/__init__.py"),
        ("<module>", "/venv/bin/roost"),
    ]
    frames = tuple(Frame(function=function, file=file, line=3) for function, file in driver)
    stacks = ProcessStacks(state="running", threads=(ThreadStack(name="MainThread", frames=frames),))
    seen = [SeenProcess(process=ACTOR, stacks=stacks)]
    assert stacks_text(seen).splitlines()[2:] == [
        f"    RayResult.wait ({roost}/engine/ray_backend/ray_result.py:3)",
        "    main (/srv/job/program.py:3)",
    ]
    assert stacks_text(seen, show_all=True).count(":3)") == len(driver)


def test_a_job_that_is_taken_down_is_an_error_of_the_job() -> None:
    assert code_of(JobTakenDown(code="RE150", what="job 'j' was taken down by someone")) == FAILED


def test_a_reader_that_stops_early_is_noticed() -> None:
    program = (
        "import sys\nfrom roost.cli.ending import emit\n"
        "while emit('line\\n'):\n    pass\nprint('stopped', file=sys.stderr)"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, check=True
    )
    os.close(writing)
    assert done.stderr == "stopped\n"
    assert emit("")
