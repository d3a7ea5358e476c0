"""`roost logs`, `stacks` and `down` on jobs of other processes, whose drivers answer, are stopped, or are dead."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from jsonschema import Draft202012Validator
from remains import assert_gone
from running import Program, eventually, new_job

from roost.cli import main
from roost.cli.output_schemas import output_schema
from roost.engine.connection.actors import find_actor
from roost.engine.events import Event
from roost.engine.job import managers
from roost.engine.job.job_folder import JobHistory, StartedProcess, read_history
from roost.engine.job.node_agent import agent_name
from roost.engine.operating.job_access import JobAccess
from roost.engine.operating.taking_down import _user

pytestmark = pytest.mark.ray
SCRIPT = str(Path(sys.executable).parent / "roost")
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(connected: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    """`shell("logs", job)` in this process, which is neither the driver nor a process of the job."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        said = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, said.out, said.err

    return run


def lines_of(out: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in out.splitlines()]
    for one in found:
        Draft202012Validator(output_schema("logs")).validate(one)
    return found


def said_by(out: str) -> list[tuple[int, int, str, str]]:
    return [(one["rank"], one["generation"], one["stream"], one["text"]) for one in lines_of(out)]


def assert_taken_down(program: Program, job: str) -> None:
    """The driver ended with one error, which says that the job was taken down and names no worker."""
    assert program.end() == 1, program.output
    assert program.output.count("error[") == 1, program.output
    assert f"error[RE150]: job {job!r} was taken down by " in program.output
    assert "During handling" not in program.output
    assert "rank" not in program.output.partition("Traceback")[2]


def test_two_jobs_with_drivers_that_answer_and_that_are_stopped(
    run: Callable[..., Program], shell: Shell, connected: str, tmp_path: Path
) -> None:
    one, two = new_job("one"), new_job("two")
    first, second = run("chatting", "listens", one, "0-1"), run("chatting", "waits", two, "4")
    facts, others = first.answer(), second.answer()

    # The logs of one job, from each rank and stream, and nothing of the other job.
    code, out, _ = shell("logs", one, "--json")
    expected = [
        (rank, 0, *said) for rank in (0, 1) for said in (("err", f"warned {rank}"), ("out", f"built {rank}"))
    ]
    assert (code, said_by(out)) == (0, expected)
    assert [line["pid"] for line in lines_of(out)][::2] == facts["workers"]
    assert shell("logs", f"{one}:talker:1", "--out")[:2] == (0, "talker:1 | built 1\n")
    assert shell("logs", f"{one}:talker:1", "--err", "--tail", "1")[1] == "talker:1 ! warned 1\n"

    # Names that do not exist.
    assert "did you mean 'talker'" in shell("logs", f"{one}:taker")[2]
    assert shell("logs", f"{one}:talker:7")[0] == 2
    code, _, err = shell("down", "nowhere")
    assert code == 4
    assert one in err
    assert two in err

    # Following goes on over a restart.
    follow = tmp_path / "follow"
    with follow.open("w") as file:
        following = subprocess.Popen(
            [SCRIPT, "logs", f"{one}:talker:0", "-f", "--json", "--out"],
            stdout=file,
            env={**os.environ, "RAY_ADDRESS": connected},
        )
    try:
        first.tell("hello")
        assert first.answer() == "hello"
        eventually(lambda: "hello" in follow.read_text(), 60, "the line is followed")
        os.kill(facts["workers"][0], signal.SIGKILL)
        eventually(lambda: '"generation": 1' in follow.read_text(), 60, "the restarted process is followed")
        first.tell("again")
        assert first.answer() == "again"
        eventually(lambda: "again" in follow.read_text(), 60, "its lines are followed")
        assert [(one[1], one[3]) for one in said_by(follow.read_text())][-2:] == [
            (1, "built 0"),
            (1, "again"),
        ]

        # Of the process that died, and of its successor.
        generations = [one[1] for one in said_by(shell("logs", f"{one}:talker:0", "--json")[1])]
        assert generations == [0, 0, 0, 1, 1, 1]

        # What they do.
        code, out, err = shell("stacks", one, "--json")
        told = json.loads(out)
        Draft202012Validator(output_schema("stacks")).validate(told)
        assert (code, [one["component"] for one in told["processes"]]) == (
            0,
            ["(driver)", "talker", "talker"],
        ), err
        assert [one["how"] for one in told["processes"]] == ["py-spy"] * 3
        functions = [frame["function"] for frame in told["processes"][2]["threads"][0]["frames"]]
        assert any(name.endswith("wait_forever") for name in functions), functions
        assert "waits for calls" in shell("stacks", f"{one}:talker:0")[1]

        # A stopped driver, which replaces no agent, and a stopped process are in no way of these.
        second.signal(signal.SIGSTOP)
        os.kill(others["workers"][0], signal.SIGSTOP)
        for node in ray.nodes():
            with contextlib.suppress(ValueError):
                ray.kill(find_actor(agent_name(node["NodeID"]), two))
        assert [line["text"] for line in lines_of(shell("logs", two, "--json")[1])] == ["warned 0", "built 0"]
        text = shell("stacks", two)[1]
        assert "pid" in text
        assert text.count("  stopped  read by py-spy") == 2, text
        assert "wait_forever" in text

        # It is taken down from outside, with its children. The other job goes on.
        code, out, err = shell("down", two, "--grace", "0.2", "--json")
        told = json.loads(out)
        Draft202012Validator(output_schema("down")).validate(told)
        assert (code, told["orderly"], told["driver"]) == (0, False, "stopped"), err
        assert told["processes"] >= len(others["pids"]), told  # it knew them all, and waited for their end
        assert_gone(two, others["pids"], others["ports"])
        first.tell("still here")
        assert first.answer() == "still here"
        second.signal(signal.SIGCONT)
        assert_taken_down(second, two)

        # The driver of the other one ends it in order.
        done = subprocess.run(
            [SCRIPT, "down", one, "--json", "--grace", "60"],
            env={**os.environ, "RAY_ADDRESS": connected},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["driver"] == "ended"
        assert json.loads(done.stdout)["orderly"] is True
        assert_gone(one, facts["pids"], facts["ports"])
        assert_taken_down(first, one)
        assert following.wait(60) == 0
    finally:
        following.kill()

    # The histories say who took them down.
    for job in (one, two):
        (taken,) = [event for event in read_history(job) if event.action == "taken down"]
        assert taken.detail == f"by {_user()}@{socket.gethostname()}"

    # The logs outlive the job.
    code, out, err = shell("logs", f"{one}:talker:0", "--json", "--out", "--tail", "1")
    assert (code, [one[3] for one in said_by(out)]) == (0, ["hello", "still here"]), err
    assert "has ended" in err
    assert shell("stacks", one)[0] == 4
    code, _, err = shell("down", one)
    assert (code, "had ended already" in err) == (0, True)


def test_a_driver_that_was_killed(run: Callable[..., Program], shell: Shell) -> None:
    job = new_job("killed")
    program = run("chatting", "waits", job, "0")
    facts = program.answer()
    program.kill()
    assert_gone(job, facts["pids"], facts["ports"])
    code, out, err = shell("logs", job)
    assert (code, out) == (0, "talker:0 ! warned 0\ntalker:0 | built 0\n"), err
    assert shell("down", job)[0] == 0


def test_a_job_of_another_ray_has_not_ended(shell: Shell, connected: str) -> None:
    job = new_job("elsewhere")
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        history = JobHistory(job)  # locks the files, as a manager does
        history.write_start({"token": "t", "address": where})
        history.write(Event(action="launched"))
        for verb in ("down", "logs", "stacks", "status"):
            code, out, err = shell(verb, job, "--address", connected)
            assert (code, out) == (4, ""), verb
            assert f"help: --address {where}" in err, verb
        code, out, err = shell("status", "--address", connected, "--json")
        told = json.loads(out)
        Draft202012Validator(output_schema("status")).validate(told)
        states = {one["job"]: one["state"] for one in told["jobs"]}
        assert (code, states[job]) == (0, "elsewhere")
        assert f"job {job} runs on the Ray at {where}" in err
    states = {one["job"]: one["state"] for one in json.loads(shell("status", "--json")[1])["jobs"]}
    assert states[job] == "ended"  # its Ray is gone


def test_processes_of_nodes_that_are_gone_are_not_counted(shell: Shell, connected: str) -> None:
    job = new_job("past")
    history = JobHistory(job)
    history.write_start({"token": "t", "address": connected})
    history.write_process(
        StartedProcess(
            component="a", rank=0, generation=0, node=0, node_id="gone", host="h", pid=1, started=1
        )
    )
    code, _, err = shell("down", job)
    assert (code, f"job {job} had ended already" in err) == (0, True), err


def test_the_doctor_asks_every_node(shell: Shell, connected: str) -> None:
    code, out, err = shell("doctor", "--address", connected, "--json")
    told = json.loads(out)
    Draft202012Validator(output_schema("doctor")).validate(told)
    assert [one["is_head"] for one in told["machines"]] == [True, False, False], err
    codes = {finding["code"] for finding in told["findings"]}
    assert codes.isdisjoint({"RE102", "RE104", "RE105", "RE152", "RE153", "RE154", "RW201", "RW220"})
    assert code == (1 if codes else 0)


@pytest.mark.slow
def test_a_launch_that_hangs_in_a_constructor_shows_where(
    shell: Shell, connected: str, run: Callable[..., Program], tmp_path: Path
) -> None:
    job = new_job("hangs")
    program = run("hanging", job)
    program.answer()
    text = eventually(
        lambda: "never_ready" in (said := shell("stacks", job)[1]) and said, 60, "the constructor is seen"
    )
    assert "stuck:0  node 0" in text
    assert ", 1 process starting" in shell("status", job)[1].splitlines()[0]
    told = json.loads(shell("status", job, "--json")[1])
    Draft202012Validator(output_schema("status")).validate(told)
    assert told["jobs"][0]["starting"] == 1
    assert "stuck:0 | about to hang\n" in eventually(lambda: shell("logs", job)[1], 60, "its log is seen")
    code, out, err = shell("logs", f"{job}:stuck:0")
    assert (code, "about to hang" in out, "no processes" in err) == (0, True, False), err
    assert shell("down", job, "--grace", "20")[0] == 0
    assert_taken_down(program, job)
    assert_gone(job, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["the driver", "the manager"])
def test_what_does_not_notice_is_killed_by_force(
    run: Callable[..., Program], shell: Shell, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    monkeypatch.setattr(managers, "ANSWER_WITHIN", 3.0)
    job = new_job("forced")
    program = run("chatting", "waits", job, "0")
    facts = program.answer()
    driver = psutil.Process(program.process.pid)
    if stopped == "the driver":
        program.signal(signal.SIGSTOP)
    else:
        with JobAccess(job) as access:
            os.kill(access.actors()["NodeManager"].pid, signal.SIGSTOP)
    code, out, err = shell("down", job, "--force", "--json")
    assert (code, json.loads(out)["driver"]) == (0, "ended"), err
    assert_gone(job, facts["pids"], facts["ports"])
    assert program.end() == -signal.SIGKILL
    assert not driver.is_running()
