"""A worker that Ray kills because memory runs out: a cause of its own, with a budget of its own."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from frail import Frail
from running import eventually, module_path, new_job

import roost

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOM = 3 * 2**30  # bytes above what the machine uses now, before Ray kills: other programs come and go


def test_out_of_memory_is_a_cause_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()
    if memory.available < 2 * ROOM:
        pytest.fail(f"this test needs {2 * ROOM:,} bytes of free memory")
    monkeypatch.setenv("PYTHONPATH", module_path())
    monkeypatch.setenv(
        "RAY_memory_usage_threshold", f"{(memory.total - memory.available + ROOM) / memory.total:.3f}"
    )
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    job = {
        "cluster": {"component_placement": {"frail": "0"}},
        "supervise": {"frail": {"policy": "one_for_one", "restarts": {"crash": 0, "out_of_memory": 1}}},
    }
    with (
        roost.embedded("1x1") as address,
        roost.Cluster(num_nodes=1, address=address, job=new_job("memory")) as cluster,
        cluster.launch(roost.plan(job, cluster), {"frail": Frail}) as run,
    ):
        group = run["frail"]
        with pytest.raises(roost.WorkerDied) as caught:
            group.fills_memory(2 * ROOM).wait(timeout=120)
        assert "it is restarted (restart 1 of 1)" in caught.value.findings[0].remedy
        group.wait_recovered(60)
        (pid,) = group.pid().wait(timeout=60)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: run.events[-1].action == "given up", 60, "no crash is allowed")
        assert [(one.cause, one.action) for one in run.events if one.cause] == [
            ("out of memory", "restarting"),
            ("out of memory", "restarted"),
            ("crash", "given up"),
        ]
