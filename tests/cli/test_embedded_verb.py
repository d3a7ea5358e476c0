"""`roost embedded`, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from roost.engine.connection.embedded import EmbeddedCluster

SCRIPT = Path(sys.executable).parent / "roost"
# What another program does with the address.
USER = """
import os, sys, roost

class Finder(roost.Worker):
    def device(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]

with roost.Cluster(num_nodes=1, address=sys.argv[1], timeout=60) as cluster:
    group = Finder.create_group().launch(cluster, roost.PackedPlacementStrategy(1, 1))
    print(cluster.nodes[0].accelerators.count, group.device().wait(timeout=60))
"""


class Verb:
    """`roost embedded 1x2`, with a temporary directory of its own."""

    def __init__(self) -> None:
        self.place = tempfile.TemporaryDirectory(prefix="re-")
        self.process = subprocess.Popen(
            [SCRIPT, "embedded", "1x2"],
            env={**os.environ, "TMPDIR": self.place.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes: list[psutil.Process] = []

    def first_line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        self.processes = psutil.Process(self.process.pid).children(recursive=True)
        return line

    def leaves_nothing(self, within: float = 30.0) -> None:
        """No process of its Ray, and no file."""
        assert self.processes
        deadline = time.monotonic() + within
        while left := [*filter(_runs, self.processes), *Path(self.place.name).iterdir()]:
            assert time.monotonic() < deadline, f"after {within:g} s: {left}"
            time.sleep(0.05)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.place.cleanup()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def verb() -> Iterator[Verb]:
    made = Verb()
    yield made
    made.close()


@pytest.mark.ray
def test_the_address_can_be_used_until_it_is_interrupted(verb: Verb) -> None:
    address = verb.first_line().strip()
    user = subprocess.run([sys.executable, "-c", USER, address], capture_output=True, text=True, timeout=120)
    assert (user.returncode, user.stdout) == (0, "2 ['1']\n"), user.stderr
    verb.process.send_signal(signal.SIGINT)
    out, errors = verb.process.communicate(timeout=60)
    assert (verb.process.returncode, out, errors) == (0, "", "running; Ctrl-C ends it\n")
    verb.leaves_nothing()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_it_takes_its_ray_along_however_it_ends(verb: Verb, number: int, code: int) -> None:
    assert verb.first_line()
    verb.process.send_signal(number)
    verb.process.communicate(timeout=60)
    assert verb.process.returncode == code
    verb.leaves_nothing()


def test_as_json_until_it_is_terminated(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def start(_: Any) -> str:
        calls.append("start")
        os.kill(os.getpid(), signal.SIGTERM)  # it is noted, and ends the wait
        return "127.0.0.2:5"

    monkeypatch.setattr(EmbeddedCluster, "start", start)
    monkeypatch.setattr(EmbeddedCluster, "stop", lambda _: calls.append("stop"))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        done = cli("embedded", "1x2", "--json")
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert done.code == 0
    assert done.data == {"format_version": 1, "address": "127.0.0.2:5"}
    assert calls == ["start", "stop"]


@pytest.mark.parametrize("shape", ["2by4", "0x4", "1x", ""])
def test_a_bad_shape_is_refused(cli: Any, shape: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    done = cli("embedded", shape)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error[RI101]")
    assert "Traceback" not in done.err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_shape_is_wrong_usage(cli: Any) -> None:
    done = cli("embedded")
    assert done.code == 2
    assert "Missing argument 'SHAPE'" in done.err
