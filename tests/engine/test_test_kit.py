"""The kit for programs that break things on purpose: `roost.testing`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from roost.testing import faults
from roost.testing.faults import Faults
from roost.testing.soundness import assert_no_device_twice, assert_one_process_per_rank


@contextmanager
def titled(title: str) -> Iterator[int]:
    """A process with this title, whose parent is no Ray node. Its number."""
    command = [title, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def of(*processes: dict[str, Any], charges: dict[str, dict[str, float]] | None = None) -> Any:
    """A run of such processes."""
    seen = [SimpleNamespace(**{"component": "test-kit", "state": "idle", **one}) for one in processes]
    plan = SimpleNamespace(occupancy=dict.fromkeys(charges or {}, ""), charges=charges or {})
    return SimpleNamespace(status=lambda: seen, plan=plan)


def test_a_process_that_outlived_its_node_is_found() -> None:
    run = of({"rank": 0, "pid": os.getpid()})  # a process of another parent
    with titled("ray::test-kit:0.step") as orphan, pytest.raises(AssertionError) as found:
        assert_one_process_per_rank(run, within=0)
    assert str(found.value).endswith(f"test-kit:0 is pid {os.getpid()}, and there are [{orphan}]")
    with titled("ray::test-kit:01"):
        assert_one_process_per_rank(run, within=0)


def process(rank: int, device: int, visible: str, node: int = 0) -> dict[str, Any]:
    places = {"planned_node": node, "node": node, "devices": (device,), "visible": visible}
    return {"rank": rank, "pid": rank, "hardware": "accelerator", **places}


def test_an_accelerator_that_was_granted_twice_is_found() -> None:
    shared = process(0, 0, "GPU-a"), process(1, 0, "GPU-a"), process(2, 1, "GPU-b"), process(3, 0, "GPU-a", 1)
    assert_no_device_twice(of(*shared))
    with pytest.raises(AssertionError, match="node 0 device 1 and node 0 device 0 are both GPU-a of node 0"):
        assert_no_device_twice(of(process(0, 0, "GPU-a"), process(1, 1, "GPU-a")))


def test_memory_that_cannot_be_filled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_HOLD_MEMORY", "import os; os._exit(3)")
    with pytest.raises(MemoryError, match="could not be held: exit code 3"), Faults().memory_filled(10):
        pytest.fail("nothing holds the memory")
