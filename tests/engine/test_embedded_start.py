"""An embedded Ray that does not start, as on a busy machine: roost tries again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from running import eventually

import roost
from roost.engine.connection import embedded
from roost.engine.connection.embedded import EmbeddedCluster

pytestmark = pytest.mark.ray

# In the child: the nodes it starts seem not to come up, as often as there are files called slow*.
SLOW = """
import glob, os, sys
left = glob.glob(os.path.join(os.path.dirname(__file__), "slow*"))
if left and "roost.engine.connection.embedded" in " ".join(sys.orig_argv):
    os.remove(left[0])
    import ray._private.node, ray._private.services, time

    def refuse(*_, **__):
        raise Exception("The current node timed out during startup.")

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
    if os.path.exists(os.path.join(os.path.dirname(__file__), "at-once")):
        ray._private.node.Node.__init__ = refuse
    else:
        node = ray._private.node.Node
        node.kill_all_processes = node.start_reaper_process = lambda *_, **__: None
"""


# In the child: the node's process ends as soon as it is started, as often as there are files called slow*.
ENDING = """
import glob, os, sys
left = glob.glob(os.path.join(os.path.dirname(__file__), "slow*"))
if left and "roost.engine.connection.embedded" in " ".join(sys.orig_argv):
    os.remove(left[0])
    import ray._private.services as services
    start = services.start_raylet

    def end(*args, **kwargs):
        started = start(*args, **kwargs)
        started.process.kill()
        return started

    services.start_raylet = end
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Make the next starts too slow; the directories of all starts."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    made: list[str] = []
    environment = embedded.environment_for_nodes

    def noted(environ: Mapping[str, str], directory: str) -> dict[str, str]:
        made.append(directory)
        return environment(environ, directory)

    def prepare(times: int) -> list[str]:
        for number in range(times):
            (tmp_path / f"slow{number}").touch()
        monkeypatch.setattr(embedded, "environment_for_nodes", noted)
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


@pytest.mark.slow
def test_a_slow_start_is_tried_again_and_leaves_no_process(slow: Callable[[int], list[str]]) -> None:
    """Ray waits a second for each of its processes, and a reaper kills the rest later. Here neither does."""
    directories = slow(1)
    with roost.embedded("1x1") as address:
        assert address
        assert len(directories) == 2
        assert processes_in(directories[0]) == []
        assert not Path(directories[0]).exists()
    assert_nothing_left(directories)


def test_a_node_that_ends_while_it_starts_is_not_waited_for(
    slow: Callable[[int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself waits for it for two minutes, or as long as it is told."""
    (tmp_path / "sitecustomize.py").write_text(ENDING)
    monkeypatch.setattr(embedded, "NODE_WITHIN", 100_000)
    directories = slow(1)
    with roost.embedded("1x1") as address:
        assert address
        assert len(directories) == 2
        assert processes_in(directories[0]) == []
    assert_nothing_left(directories)


def test_a_child_that_ended_before_it_read_its_line_is_cleared_away(tmp_path: Path) -> None:
    cluster, directory = EmbeddedCluster("1x1"), tmp_path / "roost-1"
    directory.mkdir()
    with subprocess.Popen(["true"], stdin=PIPE, stdout=PIPE, text=True) as child:
        assert child.stdin is not None
        child.wait()
        child.stdin.write("the nodes\n")  # it stays in the buffer until the pipe is closed
        cluster._child, cluster._directory = child, str(directory)
        cluster.stop()
    assert not directory.exists()


def test_it_is_given_up_in_the_end(slow: Callable[[int], list[str]], tmp_path: Path) -> None:
    (tmp_path / "at-once").touch()
    directories = slow(embedded.TRIES)
    with pytest.raises(
        roost.ClusterError, match="the embedded Ray of 1 node, 1 accelerator did not start"
    ) as caught:
        roost.embedded("1x1").start()
    assert embedded.TOO_SLOW in str(caught.value)
    assert len(directories) == embedded.TRIES
    assert_nothing_left(directories)
