"""What an engine starts ends with it, whatever ends it, and nobody else does."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from process_tree import PROGRAMS, Engine, keepers_of, started, those_with
from running import eventually

import roost
from roost.engine.processes import confinement, keeper

WITHIN = 60.0  # seconds; moments on a quiet machine
KINDS = (
    *("plain", "session", "deaf", "grandchild", "cleared", "cleared-daemon"),
    *("daemon", "forked-daemon"),
)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(name: str = "notes") -> Engine:
        notes = tmp_path / name
        notes.mkdir()
        made.append(Engine(notes))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user and the same parent."""
    with started("sleep", 1000) as process:
        yield process


def assert_all_gone(engine: Engine) -> None:
    eventually(lambda: not engine.left(), WITHIN, f"these end: {engine.left()}")


def end(engine: Engine, how: str) -> None:
    if how.startswith("SIG"):
        engine.process.send_signal(getattr(signal, how))
    else:
        engine.tell(*how.split())
    engine.process.wait(30)


def slowly(*ways: str) -> list[Any]:
    return [pytest.param(way, marks=pytest.mark.slow) for way in ways]


@pytest.mark.parametrize(
    "how", ["SIGKILL", "exit 0", "raise", *slowly("SIGTERM", "SIGSEGV", "exit 3", "abort")]
)
def test_nothing_of_an_engine_is_left(
    engines: Callable[..., Engine], bystander: subprocess.Popen[bytes], how: str
) -> None:
    engine, neighbour = engines(), engines("neighbour")
    there = neighbour.have("plain", "daemon")
    assert len(set(engine.have(*KINDS).values())) == len(KINDS)
    assert len(engine.left()) >= len(KINDS) + 1
    end(engine, how)
    assert_all_gone(engine)
    assert bystander.poll() is None
    assert all(psutil.pid_exists(pid) for pid in there.values())
    assert keepers_of(neighbour.pid)
    assert neighbour.ask("collect") == 7


def test_children_the_keeper_has_never_seen(engines: Callable[..., Engine]) -> None:
    engine = engines()
    engine.keeper.suspend()
    engine.have(*KINDS)
    engine.kill()
    assert len(engine.left()) > len(KINDS)
    engine.keeper.resume()
    assert_all_gone(engine)


def test_a_daemon_without_any_mark_is_known_by_its_place(engines: Callable[..., Engine]) -> None:
    """It came back to the engine when its parent ended, and was seen there."""
    engine = engines()
    pid = engine.have("unmarked")["unmarked"]
    assert psutil.Process(pid).ppid() == engine.pid
    assert keeper.mark_on(pid) == 0
    engine.seen()
    engine.kill()
    assert_all_gone(engine)


@pytest.mark.parametrize("kind", ["mother", "runaway"])
def test_a_child_that_forks_all_the_time(engines: Callable[..., Engine], kind: str) -> None:
    engine = engines()
    engine.have(kind)
    engine.seen()
    engine.kill()
    assert_all_gone(engine)


def test_an_engine_inside_an_engine(engines: Callable[..., Engine], tmp_path: Path) -> None:
    outer = engines()
    daemon = outer.have("daemon")["daemon"]  # the inner one notes its own in the same place
    program = f"""
import subprocess, sys
from roost.engine.processes.confinement import confine
confine()
inner = subprocess.Popen([sys.executable, {str(PROGRAMS / "engine.py")!r}, {str(outer.notes)!r}], stdin=-1, stdout=-1)
inner.stdin.write(b"start unmarked\\nstart daemon\\nstart cleared\\n"); inner.stdin.flush()
[inner.stdout.readline() for _ in range(4)]
print(inner.pid, flush=True)
sys.stdin.read()
"""
    with started(sys.executable, "-c", program, stdin=-1, stdout=-1, text=True) as middle:
        assert middle.stdout
        inner = int(middle.stdout.readline())
        outer.noted("unmarked")
        outer.noted("cleared")
        [inner_keeper] = keepers_of(inner)
        assert inner_keeper.ppid() == middle.pid
        middle.kill()
        middle.wait()
        left = lambda: [*keepers_of(middle.pid), *keepers_of(inner), *inner_children(outer)]  # noqa: E731
        eventually(lambda: not left(), WITHIN, f"these end: {left()}")
    assert psutil.pid_exists(daemon)


def inner_children(outer: Engine) -> list[psutil.Process]:
    below = {outer.pid, *(process.pid for process in psutil.Process(outer.pid).children(recursive=True))}
    return [process for process in those_with(str(outer.notes)) if process.pid not in below]


def test_a_keeper_stands_apart(engines: Callable[..., Engine]) -> None:
    engine = engines()
    mine = engine.keeper
    family = psutil.Process(engine.pid).children(recursive=True)
    assert mine.pid not in [process.pid for process in family]
    assert os.getsid(mine.pid) not in (os.getsid(engine.pid), os.getsid(0))
    assert os.getpgid(mine.pid) not in (os.getpgid(engine.pid), os.getpgid(0))
    assert mine.cwd() == "/"
    assert set(mine.environ()) <= {"LD_LIBRARY_PATH"}

    def only_nothing_is_open() -> bool:  # once it has closed what it used to say that it is ready
        open_files = sorted(Path(f"/proc/{mine.pid}/fd").iterdir(), key=lambda fd: int(fd.name))
        try:
            targets = [os.readlink(fd) for fd in open_files]  # noqa: PTH115
        except FileNotFoundError:  # it was closed just now
            return False
        return [target for target in targets if "pidfd" not in target] == [os.devnull] * 3

    eventually(only_nothing_is_open, 30, "the keeper has no file of the engine open")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        mine.send_signal(number)
    engine.have("daemon")
    engine.kill()
    assert_all_gone(engine)


def test_a_keeper_ends_with_an_engine_that_has_no_children(engines: Callable[..., Engine]) -> None:
    engine = engines()
    end(engine, "exit 0")
    assert_all_gone(engine)


def test_a_keeper_is_not_the_first_to_die_when_memory_runs_out(tmp_path: Path) -> None:
    """Ray's workers are; what they start inherits that."""
    program = (
        "import os, sys; open('/proc/self/oom_score_adj', 'w').write('1000')\n"
        f"os.execv(sys.executable, [sys.executable, {str(PROGRAMS / 'engine.py')!r}, {str(tmp_path)!r}])"
    )
    with started(sys.executable, "-c", program, stdin=-1, stdout=-1) as engine:
        assert engine.stdout
        engine.stdout.readline()
        [mine] = keepers_of(engine.pid)
        scores = [Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in (engine.pid, mine.pid)]
    assert scores == ["1000", "0"]
    eventually(lambda: not keepers_of(engine.pid), WITHIN, "the keeper ends")


def test_the_engine_goes_on_as_before() -> None:
    """Its handler for ended children is still its own, and it is told how they ended."""
    program = """
import json, os, signal, subprocess, sys
told = []
handler = lambda *_: told.append(1)
signal.signal(signal.SIGCHLD, handler)
from roost.engine.processes.confinement import confine
confine()
told.clear()
codes = [subprocess.run(["sh", "-c", words]).returncode for words in ("exit 7", "kill -9 $$")]
mark = subprocess.run(["sh", "-c", "echo $ROOST_CONFINED"], capture_output=True, text=True).stdout.strip()
same = signal.getsignal(signal.SIGCHLD) is handler
print(json.dumps([codes, len(told) >= 2, same, len(mark), mark == os.environ["ROOST_CONFINED"]]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[7, -9], True, True, 32, True]


@pytest.mark.parametrize(
    ("executable", "why"),
    [
        ("/nowhere/python", "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/python'"),
        ("/bin/false", "it ended with 1: "),
        ("/bin/echo", f"it ended with 0: -I -S {keeper.__file__}"),
    ],
)
def test_without_a_keeper_there_is_no_engine(
    monkeypatch: pytest.MonkeyPatch, executable: str, why: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(roost.LaunchError) as caught:
        confinement.confine()
    [finding] = caught.value.findings
    assert finding.code == "RE120"
    assert (
        finding.what
        == f"the keeper of process {os.getpid()} could not be started, so its children could outlive it"
    )
    assert finding.why.startswith(why)
    assert finding.remedy == f"does {executable} run here, and may this user start more processes?"
    assert keeper.VARIABLE not in os.environ


def test_a_keeper_that_is_never_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(confinement, "START_WITHIN", 0.1)
    with pytest.raises(roost.LaunchError, match=r"it was not ready in 0\.1 s"):
        confinement.confine()
    assert not [child for child in psutil.Process().children() if child.name() in ("slow", "sleep")]


def test_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(keeper.VARIABLE, "")
    monkeypatch.setattr(confinement, "_confined", 0)
    monkeypatch.setattr(confinement, "_proc_is_ours", lambda: False)
    with caplog.at_level(logging.WARNING, "roost"):
        confinement.confine()
        confinement.confine()
    assert caplog.messages == [
        f"children of process {os.getpid()} may outlive it: there is no /proc here to find them in"
    ]
    assert os.environ[keeper.VARIABLE]


def test_where_there_is_no_prctl() -> None:
    program = """
import logging
from roost.engine.processes import confinement
logging.basicConfig(format="%(message)s")
confinement.ctypes.CDLL = lambda *_: object()
confinement.confine()
confinement.confine()
"""
    with started(sys.executable, "-c", program, stderr=-1, text=True) as engine:
        said = engine.communicate(timeout=60)[1]
    assert said == f"daemons started by process {engine.pid} may outlive it: there is no prctl here\n"
    eventually(lambda: not keepers_of(engine.pid), WITHIN, "the keeper ends")


def test_who_connects_and_tells_nothing_keeps_no_worker_from_its_keeper() -> None:
    node = f"test-{os.getpid()}"
    program = f"""
import subprocess, sys
from roost.engine.processes.confinement import leave_nothing
leave_nothing({node!r})
print(subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=-3).pid, flush=True)
sys.stdin.read()
"""
    worker = lambda: started(sys.executable, "-c", program, stdin=-1, stdout=-1, text=True)  # noqa: E731
    with worker() as first, socket.socket(socket.AF_UNIX) as silent:
        children = [int(first.stdout.readline())]  # type: ignore[union-attr]
        silent.connect(f"\0roost-keeper-{node}")
        with worker() as second:
            children.append(int(second.stdout.readline()))  # type: ignore[union-attr]
            assert all(map(psutil.pid_exists, children))
    eventually(lambda: not any(map(psutil.pid_exists, children)), WITHIN, "the children end")


# -- how processes are known ------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [True, False])
def test_a_family(engines: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, listed: bool) -> None:
    monkeypatch.setattr(keeper, "CHILDREN_LISTED", listed)
    engine = engines()
    engine.have("grandchild", "daemon")
    root = {engine.pid: start_of(engine.pid)}
    # A daemon's parent ends at once; until the engine has collected it, it is still listed.
    eventually(lambda: len(living_below(engine.pid)) == 5, 30, "all run, and the daemon's parent has ended")
    eventually(
        lambda: keeper.family(root) == root | living_below(engine.pid),
        30,
        "the family is what psutil finds",
    )
    assert keeper.family({engine.pid: root[engine.pid] + 1}) == {}


def living_below(pid: int) -> dict[int, int]:
    """Numbers and start times."""
    found = {c.pid: keeper.status_of(c.pid) for c in psutil.Process(pid).children(recursive=True)}
    return {number: status.start for number, status in found.items() if status and not status.ended}


def start_of(pid: int) -> int:
    status = keeper.status_of(pid)
    assert status
    return status.start


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_number_that_passed_to_another_process(
    bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    start = start_of(bystander.pid)
    keeper.send(bystander.pid, start - 1, signal.SIGTERM)  # it would end by the first of the two signals
    keeper.send(bystander.pid, start, signal.SIGKILL)
    assert bystander.wait(30) == -signal.SIGKILL
    keeper.send(bystander.pid, start, signal.SIGKILL)


def test_who_is_spared(engines: Callable[..., Engine], bystander: subprocess.Popen[bytes]) -> None:
    engine = engines()
    assert keeper.is_keeper(engine.keeper.pid)
    assert not keeper.is_keeper(engine.pid)
    roots = {pid: start_of(pid) for pid in (engine.keeper.pid, bystander.pid)}
    assert keeper.kill_families(roots, {bystander.pid}) == {}
    assert engine.keeper.is_running()
    assert bystander.poll() is None


def test_a_name_with_parentheses(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z (1 2"
    odd.symlink_to("/bin/sleep")
    with started(odd, 1000) as process:
        status: Any = eventually(lambda: keeper.status_of(process.pid), 30, "it runs")
        assert (status.parent, status.ended) == (os.getpid(), False)
        process.kill()
        eventually(lambda: (now := keeper.status_of(process.pid)) and now.ended, 30, "it is a zombie")


def test_marks_of_two_engines_differ() -> None:
    tokens = [f"{number:011x}" + "0" * 21 for number in (0, 1, 2**44 - 1)]
    marks = {keeper.mark_of(token, number) for token in tokens for number in (0, 1, 2**16 - 1)}
    assert len(marks) == 9
    assert all(2**61 <= mark < 2**62 for mark in marks)
