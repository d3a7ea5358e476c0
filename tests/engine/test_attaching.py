"""A process that cannot attach to a job has no job open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import roost
from roost.engine.job import open_jobs
from roost.engine.job.managers import NodeManager
from roost.engine.ray_backend import ray_backend
from roost.engine.ray_backend.ray_backend import RayBackend
from roost.errors import JobEnded

pytestmark = pytest.mark.installed


def test_a_process_that_cannot_attach_has_no_job_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    layout = {"facts": [SimpleNamespace(node_id="node")], "nodes": (), "groups": {}}
    manager = SimpleNamespace(get_layout=lambda: layout)

    def gone(*_: Any) -> Any:
        raise JobEnded(code="RE106", what="the agent was killed")

    monkeypatch.setattr(open_jobs, "_open", [])
    monkeypatch.setattr(NodeManager, "get_proxy", lambda _: manager)
    monkeypatch.setattr(
        ray_backend,
        "connect",
        lambda *_, **__: SimpleNamespace(address="10.0.0.1:6379", close=lambda: closed.append(True)),
    )
    monkeypatch.setattr(ray_backend, "find_actor", lambda *_: None)
    monkeypatch.setattr(ray_backend, "agent_of", gone)
    with pytest.raises(roost.ClusterError, match="the agent was killed"):
        RayBackend.attach(None, "job")
    assert open_jobs.own_job() is None
    assert closed == [True]
