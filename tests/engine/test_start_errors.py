"""What is advised when a process cannot start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from roost.engine.job import node_inspection
from roost.engine.job.node_inspection import NodeInspection
from roost.engine.ray_backend import starting

pytestmark = pytest.mark.installed


@pytest.fixture
def start() -> Iterator[Any]:
    """Somebody listens on the port that was leased for the group."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield SimpleNamespace(
            order=SimpleNamespace(name="actor"),
            master_addr="127.0.0.1",
            master_port=server.getsockname()[1],
            seat_text=lambda rank: f"rank {rank}",
        )


@pytest.mark.parametrize(
    ("rank", "text", "is_meant"),
    [
        (0, "[Errno 98] Address already in use", True),
        (3, "[Errno 98] Address already in use", False),  # of another port: rank 0 listens as it should
        (3, "EADDRINUSE at 127.0.0.1:{port}", True),
        (3, "EADDRINUSE at 127.0.0.1:1{port}", False),
    ],
)
def test_a_port_is_blamed_only_if_it_was_meant(
    start: Any, monkeypatch: pytest.MonkeyPatch, rank: int, text: str, is_meant: bool
) -> None:
    cause = OSError(text.format(port=start.master_port))
    monkeypatch.setattr(starting, "cause_of", lambda _: cause)
    failed = starting._failed(start, rank, None, "it was taken down")
    assert ("something listens on port" in failed.findings[0].remedy) is is_meant


DIED = (
    "The actor died unexpectedly before finishing this task.\n\tpid: 77\n\tip: 127.0.0.2\nThe actor is dead"
)
DETAIL = "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker"


@pytest.mark.parametrize(
    ("said", "logged", "why"),
    [
        (
            f"{DIED}. {DETAIL} exits unexpectedly. {DETAIL} exits with an exit code 4.",
            "",
            "ended with exit code 4",
        ),
        (
            f"{DIED}. {DETAIL} is gone. End of file.",
            "*** SIGSEGV received at time=1",
            "was killed by SIGSEGV",
        ),
        (f"{DIED}. {DETAIL} is gone. End of file.", "step 3", "ended, and Ray says: Worker is gone"),
        (f"{DIED}. {DETAIL} is gone.\n", "", "ended, and Ray says: Worker is gone"),
        (f"{DIED} because its node is gone.", "", ""),
        ("The actor died early.", "", ""),
    ],
)
def test_a_process_that_ended_while_it_started(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, logged: str, why: str
) -> None:
    log = tmp_path / "worker-5-77.err"
    log.write_text(logged)
    monkeypatch.setattr(node_inspection, "logs_folder", lambda: str(tmp_path))
    agent = NodeInspection()
    asked = SimpleNamespace(remote=lambda *what: asyncio.run(agent.loss_at_start(*what)))
    monkeypatch.setattr(ray, "get", lambda found, timeout: found)
    start.site = SimpleNamespace(
        job="job", live=[SimpleNamespace(agent=SimpleNamespace(loss_at_start=asked))]
    )
    start.order.placements = [SimpleNamespace(cluster_node_rank=0)]
    for name in ("check_head", "order_against"):
        monkeypatch.setattr(starting, name, lambda *_: None)
    (finding,) = starting._failed(start, 0, ray.exceptions.RayActorError(error_msg=said), "it ended").findings
    if not why:
        assert finding.why == said.splitlines()[0]
        return
    assert finding.why.startswith(f"pid 77 {why}; its log {log} ")
    assert finding.why.endswith(f" ends: {logged}" if logged else " is empty")
