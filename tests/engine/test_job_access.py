"""Commands on a job whose agents have died: Ray still finds a dead actor by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError

from roost.engine.job.job_folder import StartedProcess
from roost.engine.operating import job_access, job_logs
from roost.engine.operating.job_access import JobAccess
from roost.engine.operating.job_logs import JobLogs
from roost.engine.processes.log_files import LogPiece
from roost.errors import JobEnded

pytestmark = pytest.mark.installed
PROCESS = StartedProcess(
    component="actor",
    rank=0,
    generation=0,
    node=0,
    node_id="dead",
    host="10.0.0.1",
    pid=5,
    started=5,
    logs=("/logs/err", ""),
)


class Reference:
    def __init__(self, state: str, answers: list[Any]) -> None:
        self.state, self.answers = state, answers


class Job:
    """A job with an agent that answers, one that died, and one that is silent. Counts the questions to each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.alive = {"fine": True, "dead": True, "silent": True}  # nodes
        self.access = JobAccess.__new__(JobAccess)  # its constructor connects
        self.access.job, self.access.running = "job", True
        self.access._own, self.access._agentless = {}, set()
        monkeypatch.setattr(job_access, "agent_on", lambda _, node: self._agent("job", node, node))
        monkeypatch.setattr(job_access, "start_agents", self._start_agents)
        monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": k, "Alive": v} for k, v in self.alive.items()])
        monkeypatch.setattr(ray, "wait", self._wait)
        monkeypatch.setattr(ray, "get", self._get)

    def _start_agents(self, nodes: Sequence[dict[str, str]], _: str) -> dict[str, Any]:
        return {node["NodeID"]: self._agent("command", node["NodeID"], "fine") for node in nodes}

    def _agent(self, whose: str, node: str, state: str) -> Any:
        def answers(answer: Callable[[Any], Any]) -> Any:
            def remote(about: Sequence[Any], *_: float) -> Reference:
                self.asked.append(f"{whose}: {node}")
                assert len(self.asked) < 20, "it asks without end"
                return Reference(state, [answer(one) for one in about])

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(
            states=answers(lambda _: "running"),
            read_logs=answers(lambda position: LogPiece(next=position, data=b"said\n", size=5)),
        )

    def _wait(self, refs: Sequence[Reference], **_: Any) -> tuple[list[Reference], list[Reference]]:
        ready = [ref for ref in refs if ref.state != "silent"]
        return ready, [ref for ref in refs if ref.state == "silent"]

    def _get(self, ref: Reference, timeout: float | None = None) -> Any:
        if ref.state == "fine":
            return ref.answers
        raise ActorDiedError if ref.state == "dead" else GetTimeoutError


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def test_an_agent_that_is_found_dead_is_replaced_by_one_of_the_command(job: Job) -> None:
    about = [("dead", 1), ("fine", 2), ("silent", 3)]
    assert job.access.ask_about("states", about) == ["running", "running", None]
    assert job.asked == ["job: dead", "job: fine", "job: silent", "command: dead"]
    job.asked.clear()
    assert job.access.ask_about("states", about[:1]) == ["running"]
    assert job.asked == ["command: dead"]


def test_a_node_that_is_gone_is_asked_once(job: Job) -> None:
    job.alive["dead"] = False
    assert job.access.ask_about("states", [("dead", 1)]) == [None]
    assert job.access.ask_about("states", [("dead", 1)]) == [None]
    assert job.asked == ["job: dead"]


def test_following_logs_goes_on_with_another_agent(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[PROCESS], [PROCESS]])

    def processes() -> list[StartedProcess]:
        for found in looks:
            return found
        raise JobEnded(code="RE106", what="the job has ended")

    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(job.access, "processes", processes)
    monkeypatch.setattr(job_logs, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=wait))
    monkeypatch.setattr(JobLogs, "read", lambda logs, **_: logs._find(None) or ())
    lines = JobLogs(access=job.access, chosen=lambda _: True).follow()
    assert next(lines).text == "said"
    assert job.asked == ["job: dead", "command: dead"]
