"""`roost doctor` asks nodes that answer, and nodes that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from sound_machine import MACHINE

from roost.engine.operating import cluster_inspection
from roost.engine.operating.cluster_inspection import inspect_cluster

pytestmark = pytest.mark.installed
SILENT, TAKES = "10.0.0.2", 0.5  # the node that never answers, and the seconds that the others take


class Answer:
    def __init__(self, ready: float, value: Any) -> None:
        self.ready, self.value = ready, value


class Cluster:
    """Three nodes, and a clock that goes on while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes = [
            {"NodeID": host, "NodeManagerAddress": host, "Resources": {}}
            for host in ("10.0.0.1", SILENT, "10.0.0.3")
        ]

    def agent(self, node: str) -> Any:
        def answers(value: Callable[[], Any]) -> Any:
            takes = float("inf") if node == SILENT else TAKES
            return SimpleNamespace(remote=lambda: Answer(self.now + takes, value()))

        return SimpleNamespace(
            __ray_ready__=answers(lambda: True),
            inspect=answers(lambda: MACHINE),
            clock=answers(lambda: self.now + TAKES / 2 + 7.0),
        )

    def wait(self, refs: Sequence[Answer], num_returns: int, timeout: float) -> None:
        self.now = max(self.now, min(self.now + timeout, *(ref.ready for ref in refs)))
        if any(ref.ready > self.now for ref in refs):
            self.now += timeout

    def get(self, ref: Answer, timeout: float) -> Any:
        if ref.ready > self.now + timeout:
            self.now += timeout
            raise ray.exceptions.GetTimeoutError("Get timed out")
        self.now = max(self.now, ref.ready)
        return ref.value


def test_a_silent_node_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    connection = SimpleNamespace(address="10.0.0.1:6379", close=lambda: None)
    monkeypatch.setattr(cluster_inspection, "connect", lambda *_, **__: connection)
    monkeypatch.setattr(cluster_inspection, "wait_for_nodes", lambda *_: cluster.nodes)
    monkeypatch.setattr(
        cluster_inspection,
        "start_agents",
        lambda nodes, _: {node["NodeID"]: cluster.agent(node["NodeID"]) for node in nodes},
    )
    monkeypatch.setattr(cluster_inspection, "network_warning", lambda _: None)
    monkeypatch.setattr(
        cluster_inspection, "time", SimpleNamespace(time=lambda: cluster.now, monotonic=lambda: cluster.now)
    )
    monkeypatch.setattr(ray, "wait", cluster.wait)
    monkeypatch.setattr(ray, "get", cluster.get)
    monkeypatch.setattr(ray, "kill", lambda _: None)
    found = inspect_cluster(None)
    assert [one.what for one in found.findings] == [f"{SILENT} cannot be asked"]
    assert [(one.machine.host, one.clock_error, one.clock_doubt) for one in found.nodes] == [
        ("10.0.0.1", 7.0, TAKES / 2),
        ("10.0.0.3", 7.0, TAKES / 2),
    ]
