"""An embedded Ray on a busy machine: Ray gives a node 30 seconds to start, and roost tries again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import eventually

import roost
from roost.engine.connection import embedded

pytestmark = pytest.mark.ray

# In the child: the nodes it starts seem not to come up, as often as there are files called slow*.
SLOW = """
import glob, os, sys
left = glob.glob(os.path.join(os.path.dirname(__file__), "slow*"))
if left and "roost.engine.connection.embedded" in " ".join(sys.orig_argv):
    os.remove(left[0])
    import ray._private.node, ray._private.services, time

    class Rushing:
        def __getattr__(self, name):
            return getattr(time, name)

        def monotonic(self, hours=[0]):
            hours[0] += 3600
            return time.monotonic() + hours[0]

    def missing(*_):
        raise RuntimeError("not there yet")

    ray._private.services.get_node = missing
    ray._private.node.time = Rushing()
    if os.path.exists(os.path.join(os.path.dirname(__file__), "careless")):
        node = ray._private.node.Node
        node.kill_all_processes = node.start_reaper_process = lambda *_, **__: None
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Make the next starts too slow; the directories of all starts."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    made: list[str] = []
    make = tempfile.mkdtemp

    def noted(*args: Any, **options: Any) -> str:
        made.append(make(*args, **options))
        return made[-1]

    def prepare(times: int) -> list[str]:
        for number in range(times):
            (tmp_path / f"slow{number}").touch()
        monkeypatch.setattr(embedded.tempfile, "mkdtemp", noted)
        return made

    return prepare


def processes_in(directory: str) -> list[str]:
    return [
        " ".join(process.info["cmdline"])[:80]
        for process in psutil.process_iter(["cmdline"])
        if directory in " ".join(process.info["cmdline"] or ())
    ]


def assert_nothing_left(directories: list[str]) -> None:
    for directory in directories:
        eventually(
            lambda directory=directory: not processes_in(directory), 20, f"nothing runs in {directory}"
        )
        assert not Path(directory).exists()


def test_a_slow_start_is_tried_again(slow: Callable[[int], list[str]]) -> None:
    directories = slow(1)
    with roost.embedded("1x1") as address:
        assert address
        assert len(directories) == 2
        assert_nothing_left(directories[:1])
    assert_nothing_left(directories)


def test_processes_that_ray_leaves_behind_are_ended(slow: Callable[[int], list[str]], tmp_path: Path) -> None:
    """Ray waits a second for each of its processes, and a reaper kills the rest later. Here neither does."""
    (tmp_path / "careless").touch()
    directories = slow(1)
    nodes = embedded.EmbeddedCluster("1x1")
    with pytest.raises(EOFError):
        nodes._start()
    nodes.stop()
    assert processes_in(directories[0]) == []
    assert not Path(directories[0]).exists()


def test_it_is_given_up_in_the_end(slow: Callable[[int], list[str]]) -> None:
    directories = slow(embedded.TRIES)
    with pytest.raises(
        roost.ClusterError, match="the embedded Ray of 1 node, 1 accelerator did not start"
    ) as caught:
        roost.embedded("1x1").start()
    assert embedded.TOO_SLOW in str(caught.value)
    assert len(directories) == embedded.TRIES
    assert_nothing_left(directories)
