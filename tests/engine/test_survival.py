"""Processes that die, hang or loop: who is named, what is restarted, and what is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from frail import ExitsWhileStarting, Frail, FrailAsync, Listens
from remains import held_by
from running import eventually

import roost
from roost.engine.connection.actors import find_actor
from roost.engine.events import Event
from roost.engine.job.node_agent import agent_name
from roost.testing.faults import Faults
from roost.testing.soundness import assert_no_device_twice, assert_one_process_per_rank

pytestmark = pytest.mark.ray


def launched(cluster: roost.Cluster, worker: Any = Frail, ranks: str = "0-1", **policy: Any) -> roost.Run:
    plan = roost.plan({"cluster": {"component_placement": {"frail": ranks}}}, cluster)
    return cluster.launch(plan, {"frail": worker}, supervise={"frail": policy} if policy else None)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    psutil.Process(pid).send_signal(number)


def seen(run: roost.Run, check: Callable[[Event], bool], what: str) -> Event:
    """The first such event."""
    found: Event = eventually(lambda: next(filter(check, run.events), None), 30, what)
    return found


def pids_of(run: roost.Run) -> list[int]:
    return run["frail"].pid().wait(timeout=60)


def test_an_idle_death_is_announced_with_all_that_is_known(
    cluster: roost.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is called, and nothing is waited for."""
    with launched(cluster) as run:
        pids = pids_of(run)
        kill(pids[1])
        event = seen(run, lambda one: one.rank == 1, "the death is in the history")
        assert (event.component, event.node, event.cause, event.action) == ("frail", 0, "crash", "reported")
        assert f"accelerator 1; pid {pids[1]} was killed by SIGKILL; its log /" in event.detail
        assert event.detail.endswith("restart_ranks(1) starts it again")
        assert str(event) in caplog.text
        with pytest.raises(roost.WorkerDied) as caught:
            run["frail"].pid().wait(timeout=60)
        assert f"pid {pids[1]} was killed by SIGKILL" in caught.value.findings[0].what
        with pytest.raises(roost.WorkerDied, match="frail rank 1 is down") as down:  # and no wait without end
            run["frail"].wait_recovered(60)
        assert down.value.findings[0].remedy == "restart_ranks(1) starts it again"
        run["frail"].restart_ranks(1)  # the remedy works
        assert run["frail"].story().wait(timeout=60) == [(0, 0, []), (1, 1, [1])]
        assert pids_of(run)[0] == pids[0]
        assert len([one for one in run.events if one.cause]) == 1  # what is ended on purpose is no failure


def test_a_death_in_a_call_names_exit_code_and_last_words(cluster: roost.Cluster) -> None:
    with launched(cluster, ranks="0") as run:
        with pytest.raises(roost.WorkerDied) as caught:
            run["frail"].says_and_dies("no space left, HF_TOKEN=hf_123456").wait(timeout=60)
        finding = caught.value.findings[0]
        assert "died in or before says_and_dies: pid" in finding.what
        assert finding.what.endswith("ended with exit code 7")
        assert "ends: no space left, HF_TOKEN=***" in finding.why
        assert finding.remedy == "restart_ranks(0) starts it again"
        assert "hf_123456" not in "".join(map(str, run.events))


def test_one_for_one_brings_one_rank_back_as_it_was(cluster: roost.Cluster) -> None:
    with launched(cluster, policy="one_for_one") as run:
        group = run["frail"]
        before, pids = group.environment().wait(timeout=60), pids_of(run)
        busy = group.execute_on(0).blocks()
        kill(pids[0])
        with pytest.raises(roost.WorkerDied) as caught:
            busy.wait(timeout=60)
        assert caught.value.findings[0].remedy.startswith(
            "it is restarted (restart 1 of 3): wait_recovered()"
        )
        group.wait_recovered(60)
        assert group.story().wait(timeout=60) == [(0, 1, [1]), (1, 0, [])]
        assert group.environment().wait(timeout=60) == before
        assert pids_of(run)[1] == pids[1]
        assert [one.generation for one in run.status()] == [1, 0]
        assert_one_process_per_rank(run)
        assert_no_device_twice(run)
        seen(run, lambda one: one.action == "restarted", "the restart is in the history")


def test_one_for_all_replaces_everyone_and_refuses_old_handles(
    cluster: roost.Cluster, tmp_path: Path
) -> None:
    with launched(cluster, policy="one_for_all") as run:
        group, pids = run["frail"], pids_of(run)
        attached = roost.WorkerGroup.attach("frail", roost.Cluster(job=cluster.job))
        (tmp_path / "calls").touch()
        running = group.counts(str(tmp_path / "calls"))
        eventually(lambda: len((tmp_path / "calls").read_text().split()) == 2, 60, "both run")
        kill(pids[0])
        with pytest.raises(roost.WorkerDied):
            running.wait(timeout=60)
        group.wait_recovered(60)
        assert group.story().wait(timeout=60) == [(0, 1, [1]), (1, 1, [1])]
        assert set(pids_of(run)).isdisjoint(pids)
        assert (tmp_path / "calls").read_text().split().count("0") == 1  # the call did not run again
        with pytest.raises(roost.WorkerDied) as old:  # its handles are of the first generation
            attached.execute_on(1).pid().wait(timeout=60)
        assert old.value.findings[0].remedy.startswith("wait_recovered(), then call again")
        attached.wait_recovered(60)  # takes over the new ones
        assert attached.pid().wait(timeout=60) == pids_of(run)
        group.end_ranks(1)
        with pytest.raises(roost.WorkerDied, match="frail rank 1 is down, and nothing restarts it"):
            attached.wait_recovered(60)
        with pytest.raises(roost.WorkerDied):
            attached.pid().wait(timeout=60)


def test_a_crash_loop_ends_after_exactly_the_allowed_restarts(cluster: roost.Cluster) -> None:
    with launched(cluster, ranks="0", policy="one_for_one", restarts=1) as run:
        for last in ("restarted", "given up"):
            kill(pids_of(run)[0])
            seen(run, lambda one, last=last: one.action == last, f"it is {last}")  # type: ignore[misc]
        assert [one.action for one in run.events if one.cause] == ["restarting", "restarted", "given up"]
        with pytest.raises(roost.WorkerDied, match="given up") as caught:
            run["frail"].pid()
        assert caught.value.codes == ("RE127",)
        with pytest.raises(roost.WorkerDied, match="given up"):
            roost.WorkerGroup.attach("frail", roost.Cluster(job=cluster.job)).wait_recovered(60)
        run["frail"].restart_ranks(0)
        assert run["frail"].story().wait(timeout=60) == [(0, 2, [2])]


def test_a_restart_that_fails_is_a_cause_of_its_own(cluster: roost.Cluster) -> None:
    limits = {"crash": 3, "failed_start": 1}
    worker = Frail.create_group("no such model")
    with launched(cluster, worker, ranks="0", policy="one_for_one", restarts=limits) as run:
        kill(pids_of(run)[0])
        seen(run, lambda one: one.action == "given up", "it is given up")
        assert [(one.action, one.cause) for one in run.events if one.cause] == [
            ("restarting", "crash"),
            ("restarting", "failed start"),
            ("given up", "failed start"),
        ]
        assert "no such model" in run.events[-1].detail
        with pytest.raises(roost.WorkerDied, match="given up"):
            run["frail"].wait_recovered(60)


def test_hangs_are_hangs_and_hide_nothing(cluster: roost.Cluster) -> None:
    """One is stopped, one holds the interpreter, and a third dies meanwhile. The first goes on, and dies later."""
    with launched(cluster, ranks="0-2", ping="0.3s") as run:
        pids = pids_of(run)
        kill(pids[0], signal.SIGSTOP)
        try:
            run["frail"].execute_on(1).holds_the_interpreter()
            kill(pids[2])
            assert seen(run, lambda one: one.rank == 2, "the death").cause == "crash"
            assert seen(run, lambda one: one.rank == 0, "the stopped one").cause == "hang"
            assert seen(run, lambda one: one.rank == 1, "the held one").cause == "hang"
        finally:
            kill(pids[0], signal.SIGCONT)
        seen(run, lambda one: one.rank == 0 and one.action == "resumed", "it goes on")
        kill(pids[0])
        death = seen(run, lambda one: one.rank == 0 and one.cause == "crash", "its death")
        assert f"pid {pids[0]} was killed by SIGKILL" in death.detail


def test_a_hanging_process_is_replaced(cluster: roost.Cluster) -> None:
    with launched(cluster, ranks="0", policy="one_for_one", ping="0.3s") as run:
        (pid,) = pids_of(run)
        kill(pid, signal.SIGSTOP)
        seen(run, lambda one: one.action == "restarted", "it is restarted")
        assert run["frail"].story().wait(timeout=60) == [(0, 1, [1])]
        eventually(lambda: not psutil.pid_exists(pid), 20, "the stopped process is gone")


@pytest.mark.parametrize("how", ["restart_ranks", "end_ranks", "shutdown"])
def test_a_stopped_process_is_killed_by_roost(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Ray asks it to end, and kills it only 5 s later. Until then it would run beside its successor."""
    with launched(cluster, ranks="0") as run:
        (pid,), kill_actor = pids_of(run), ray.kill
        actor = run["frail"].handles[0]
        kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(
                ray, "kill", lambda one: kill_actor(one) if one._actor_id != actor._actor_id else None
            )
            if how == "end_ranks":
                run["frail"].end_ranks(0)
            elif how == "shutdown":
                run.shutdown()
            else:
                with contextlib.suppress(roost.LaunchError):  # the name is only free after Ray's part
                    run["frail"].restart_ranks(0)
            eventually(lambda: not psutil.pid_exists(pid), 20, "it ends")


def test_when_an_agent_dies_another_one_watches_its_workers(clusters: Callable[..., roost.Cluster]) -> None:
    made = clusters(num_nodes=1)
    with launched(made, ranks="3", policy="one_for_one", ping="0.3s") as run:
        pids = pids_of(run)
        ray.kill(find_actor(agent_name(made.node_infos[0].node_id), made.job))
        kill(pids[0])  # in between no agent watches
        seen(run, lambda one: "another one watches its workers" in one.detail, "another agent is there")
        seen(run, lambda one: one.action == "restarted", "it is restarted")
        kill(pids_of(run)[0], signal.SIGSTOP)
        seen(run, lambda one: one.cause == "hang" and one.action == "restarted", "the hang is found too")
        assert run["frail"].story().wait(timeout=60) == [(0, 2, [2])]
        assert not [one for one in run.events if "not watched any more" in one.detail]
        assert [one.state for one in run.status()] == ["idle"]
        roost.WorkerGroup.attach("frail", roost.Cluster(job=made.job)).pid().wait(timeout=60)
        with made.lease_ports(0) as lease:
            assert lease.ports
        with (
            pytest.raises(roost.ClusterError, match="cannot be locked any more"),
            made.device_lock(0, [0], timeout=5),
        ):
            pass
        pids = pids_of(run)
    eventually(lambda: not psutil.pid_exists(pids[0]), 20, "it ends with its group")


def test_the_history_is_kept_for_others_and_in_the_jobs_folder(cluster: roost.Cluster) -> None:
    with launched(cluster, ranks="0") as run:
        kill(pids_of(run)[0])
        event = seen(run, lambda one: one.cause == "crash", "the death")
        elsewhere = roost.Cluster(job=cluster.job)
        eventually(lambda: str(event) in map(str, elsewhere.events), 20, "an attached process reads it")
    file = Path(os.environ["ROOST_STATE"]) / "jobs" / cluster.job / "events.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert event.to_dict() in lines
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_port_that_is_stolen_before_use_is_named(cluster: roost.Cluster, tmp_path: Path) -> None:
    strategy = roost.NodePlacementStrategy([0])
    launcher = Listens.create_group(str(tmp_path))
    stolen, ports = Faults(), []

    def steal() -> None:
        ports.append(int(eventually((tmp_path / "port").read_text, 60, "the worker knows its port")))
        with stolen.port_stolen(ports[0]):
            (tmp_path / "stolen").touch()
            ended.wait(60)

    ended = threading.Event()
    (tmp_path / "port").touch()
    thief = threading.Thread(target=steal)
    thief.start()
    try:
        with pytest.raises(roost.LaunchError, match="Address already in use") as caught:
            launcher.launch(cluster, strategy, name="listens")
        assert f"something listens on port {ports[0]} of " in caught.value.findings[0].remedy
        with launcher.launch(cluster, strategy, name="listens") as group:  # the remedy works
            assert group.port().wait(timeout=60) != ports
    finally:
        ended.set()
        thief.join()


def test_shutting_down_while_a_rank_comes_back(cluster: roost.Cluster) -> None:
    run = launched(cluster, policy="one_for_all")
    pids = pids_of(run)
    kill(pids[0])
    seen(run, lambda one: one.action == "restarting", "it is being restarted")
    run.shutdown()
    run.shutdown()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 20, "the processes end")
    assert "given up" not in [one.action for one in run.events]


def test_recovery_goes_on_without_a_manager(clusters: Callable[..., roost.Cluster]) -> None:
    made = clusters(num_nodes=1)
    run = launched(made, ranks="3", policy="one_for_one")
    ray.kill(find_actor(roost.WorkerManager.NAME, made.job))
    for number in (1, 2):
        kill(pids_of(run)[0])
        restarted = seen(run, lambda one, number=number: f"restart {number} of 3 took" in one.detail, "again")  # type: ignore[misc]
        assert "other processes of the job cannot find it" in restarted.detail
        assert run["frail"].story().wait(timeout=60) == [(0, number, [number])]
    run.shutdown()
    assert held_by(made.job) == 0


def test_what_plain_and_async_workers_do_at_exits(cluster: roost.Cluster) -> None:
    """An exit in a worker with `async def` methods ends its process, as in any other worker."""
    for worker in (Frail, FrailAsync):
        with launched(cluster, worker, ranks="0") as run:
            group = run["frail"]
            with pytest.raises((roost.WorkerRaised, roost.WorkerDied)):
                group.interrupts().wait(timeout=60)
            with pytest.raises(roost.WorkerDied, match="ended with exit code 3"):
                group.exits(3).wait(timeout=60)
            with pytest.raises(roost.WorkerDied):
                group.pid().wait(timeout=60)
            group.restart_ranks(0)
            assert group.story().wait(timeout=60) == [(0, 1, [1])]
    with pytest.raises(roost.LaunchError) as caught:
        launched(cluster, ExitsWhileStarting, ranks="0")
    assert "could not start" in caught.value.findings[0].what
    assert "; its log /" in caught.value.findings[0].why


def test_an_exit_in_a_task_ends_the_process_and_not_only_its_event_loop(cluster: roost.Cluster) -> None:
    with (
        launched(cluster, FrailAsync, ranks="0") as run,
        pytest.raises(roost.WorkerDied, match="ended with exit code 6"),
    ):
        run["frail"].exits_in_a_task(6).wait(timeout=60)


@pytest.mark.parametrize("texts", [("no file", "a\udcff"), ("a\udcff", "no file")], ids=["text", "cause"])
def test_texts_that_utf8_cannot_write_end_no_worker(cluster: roost.Cluster, texts: tuple[str, str]) -> None:
    """As the names of files may be, which Python then has as surrogates."""
    with launched(cluster, ranks="0") as run:
        with pytest.raises(ValueError, match=r"no file|a\?") as caught:
            run["frail"].raises_from(*texts).wait(timeout=60)
        assert caught.value.__cause__ is not None
        assert caught.value.__cause__.args == texts[1:]
        str(caught.value).encode()
        assert run["frail"].story().wait(timeout=60) == [(0, 0, [])]


def test_a_forked_child_does_not_answer_and_long_messages_are_cut(cluster: roost.Cluster) -> None:
    with launched(cluster, ranks="0") as run:
        assert run["frail"].forks_and_returns().wait(timeout=60) == ["parent"]
        assert run["frail"].story().wait(timeout=60) == [(0, 0, [])]
        with pytest.raises(ValueError, match="cut from 50,000,000 characters") as caught:
            run["frail"].raises_at_length(50_000_000).wait(timeout=60)
        assert len(str(caught.value)) < 100_000
