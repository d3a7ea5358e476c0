"""Servers as children: they become healthy or say why not, and end with all they started."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from process_tree import PROGRAMS
from running import eventually

from roost.errors import LaunchError
from roost.rl.server_process import ServerFailed, ServerProcess

LOG = "the worker's log has its output"


@pytest.fixture
def port() -> Iterator[int]:
    """Held by a socket that never listens, as leased ports are."""
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield holder.getsockname()[1]


@pytest.fixture
def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/health"


@pytest.fixture
def serve(port: int) -> Iterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def start(what: str = "", env: dict[str, str] | None = None) -> ServerProcess:
        words = [sys.executable, str(PROGRAMS / "server.py"), str(port), what]
        started.append(ServerProcess.start(words, env or {}))
        return started[-1]

    yield start
    for server in started:
        server.stop(0)


@contextlib.contextmanager
def stderr_to(fd: int) -> Iterator[None]:
    """Where this process and its children write. Not a fixture: pytest would set its own again for the test."""
    before = os.dup(2)
    os.dup2(fd, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def output_in(directory: Path) -> Iterator[Path]:
    """A file, as in a worker."""
    path = directory / "worker.err"
    with path.open("ab", buffering=0) as file, stderr_to(file.fileno()):
        file.write(b"from before\n")
        yield path


@pytest.mark.parametrize("what", ["", "late", "busy first"])
def test_a_server_becomes_healthy(serve: Callable[..., ServerProcess], url: str, what: str) -> None:
    server = serve(what)
    assert not server.is_healthy(url) or what == ""
    server.wait_healthy(url, 60)
    assert server.running
    assert server.exit_code is None
    assert server.is_healthy(url)
    assert server.is_healthy(None)
    server.stop()
    assert not server.running
    assert not server.is_healthy(url)
    assert not server.is_healthy(None)
    assert server.exit_code == -signal.SIGTERM
    server.stop()


def test_a_server_that_is_not_asked(serve: Callable[..., ServerProcess]) -> None:
    server = serve("never")
    server.wait_healthy(None, 60)
    assert server.running


@pytest.mark.parametrize(
    ("what", "how", "code", "last", "remedy"),
    [
        ("exit", "exited with 3", 3, "its last line: ValueError: no such model; api_key=******", LOG),
        (
            *("killed", "was killed by SIGKILL", -9, "its last line: serving on PORT, killed"),
            f"was the machine out of memory? {LOG}",
        ),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_server_that_ends(
    serve: Callable[..., ServerProcess],
    tmp_path: Path,
    port: int,
    url: str,
    what: str,
    how: str,
    code: int,
    last: str,
    remedy: str,
    asked: bool,
) -> None:
    with output_in(tmp_path):
        server = serve(what)
        if not asked:
            eventually(lambda: not server.running, 60, "it ends")
        with pytest.raises(ServerFailed) as caught:
            server.wait_healthy(url if asked else None, 600)
    [finding] = caught.value.findings
    assert (finding.code, finding.what, finding.why, finding.remedy) == (
        "RE120",
        f"the server server.py {how} before it was healthy",
        last.replace("PORT", str(port)),
        remedy,
    )
    assert (server.running, server.exit_code) == (False, code)


def test_what_is_said_of_its_output(
    serve: Callable[..., ServerProcess], tmp_path: Path, port: int, url: str
) -> None:
    lines = f"serving on {port}, exit\nValueError: no such model; api_key=******"
    with output_in(tmp_path) as output:
        server = serve("exit")
        with pytest.raises(LaunchError) as caught:
            server.wait_healthy(url, 60)
        assert server.tail() == lines
        assert server.tail(1) == lines.splitlines()[-1]
        assert server.tail(0) == ""
        output.write_text("cut\n")
        assert server.tail() == "cut"
        output.unlink()
        assert server.tail() == "cut"
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert str(error).endswith(f"{LOG}\n\nits last lines:\n{lines}")
        assert "canary" not in str(error)


def test_secrets_it_was_told_do_not_show(tmp_path: Path, port: int, url: str) -> None:
    """Whatever it calls them when it prints them."""
    canaries = [f"canary{number}" * 3 for number in range(5)]
    words = [sys.executable, str(PROGRAMS / "server.py"), str(port), "tells", "--api-key", canaries[0]]
    words += [f"--auth-token={canaries[1]}", f'{{"password": "{canaries[2]}", "model": "seen"}}']
    key = f"-----BEGIN-----\n{canaries[4]}\n-----END-----"
    env = {"HF_TOKEN": canaries[3], "DEPLOY_KEY": key, "PLAIN": "plain", "SHORT_KEY": "1"}
    with output_in(tmp_path) as output:
        server = ServerProcess.start(words, env)
        with pytest.raises(ServerFailed) as caught:
            server.wait_healthy(url, 60)
        told = output.read_text()
        assert all(canary in told.replace("\x1b[31m", "").replace("\x1b[0m", "") for canary in canaries)
        shown = server.tail()
    assert "canary" not in shown + str(caught.value) + repr(caught.value) + caught.value.tail
    assert shown.splitlines()[1:3] == ["on stdout: ***", "key in use: ***!"]
    assert shown.splitlines()[-1].endswith("*** plain 1")
    assert '"model": "seen"' in shown
    assert "its last line: " in caught.value.findings[0].why


def test_half_a_secret_at_the_edge_of_what_is_read(tmp_path: Path) -> None:
    secret = "canary" * 10
    with output_in(tmp_path) as output:
        server = ServerProcess.start(["sleep", "100"], {"KEY": secret})
        with output.open("a") as file:
            file.write(secret + "x" * (64 * 1024 - 12))
        shown = server.tail()
        server.stop(0)
    assert "anary" not in shown
    assert shown.startswith("xxx")


def test_both_streams_are_one(tmp_path: Path) -> None:
    with output_in(tmp_path):
        server = ServerProcess.start(["sh", "-c", "echo out; echo err >&2; echo out again"], {})
        eventually(lambda: not server.running, 60, "it ends")
        assert server.tail() == "out\nerr\nout again"


def test_the_end_of_a_long_output(serve: Callable[..., ServerProcess], tmp_path: Path) -> None:
    with output_in(tmp_path) as output:
        server = serve("silent")
        with output.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(100_000))
            file.write("x" * 600 + "\x07\n" + "\a\ty\r")
        *lines, long, last = server.tail().splitlines()
    assert lines == [f"line {number}" for number in range(99_982, 100_000)]
    assert long == "x" * 497 + "..."
    assert last == "\N{REPLACEMENT CHARACTER}    y"


def test_output_that_is_not_in_a_file(serve: Callable[..., ServerProcess], url: str) -> None:
    read, write = os.pipe()
    with stderr_to(write):
        server = serve("exit")
        with pytest.raises(ServerFailed) as caught:
            server.wait_healthy(url, 60)
    os.close(read)
    os.close(write)
    assert server.tail() == caught.value.tail == ""
    assert caught.value.findings[0].why == ""


@pytest.mark.parametrize(("what", "answer"), [("never", "connection refused"), ("always busy", "status 503")])
def test_a_server_that_is_never_healthy(
    serve: Callable[..., ServerProcess], url: str, what: str, answer: str
) -> None:
    server = serve(what)
    if what == "always busy":
        eventually(lambda: "status 503" in why_late(server, url), 60, "it answers")
    assert why_late(server, url) == f"GET {url}: {answer}"
    assert server.running
    server.stop()
    assert server.exit_code == -signal.SIGTERM


def why_late(server: ServerProcess, url: str) -> str:
    with pytest.raises(ServerFailed) as caught:
        server.wait_healthy(url, 0.25)
    [finding] = caught.value.findings
    assert finding.code == "RE120"
    assert finding.what == f"the server {server.name} is not healthy after 0.25 s"
    assert finding.remedy == (
        "does it listen there? if it only needs longer, raise start_within; the worker's log has its output"
    )
    return finding.why


def test_an_answer_of_somebody_else(serve: Callable[..., ServerProcess], url: str) -> None:
    """The port is answered, but not by the server that was started: that one has ended."""
    serve().wait_healthy(url, 60)
    second = serve("exit")
    eventually(lambda: not second.running, 60, "it ends")
    with pytest.raises(ServerFailed, match="exited with 3 before it was healthy"):
        second.wait_healthy(url, 60)


def test_what_a_server_is_given(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "1")
    note = tmp_path / "note"
    words = f'ls -l /proc/self/fd > {note}.fds; echo "$INHERITED $ADDED" > {note}; read line || echo end >> {note}'
    with (tmp_path / "open").open("w") as open_file:
        os.set_inheritable(open_file.fileno(), True)
        server = ServerProcess.start(["sh", "-c", words], {"ADDED": "2"})
        eventually(lambda: not server.running, 60, "it ends")
    assert note.read_text() == "1 2\nend\n"
    assert str(tmp_path / "open") not in Path(f"{note}.fds").read_text()
    assert server.exit_code == 0


# -- stopping ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["alive", "killed"])
def test_a_server_ends_with_all_it_started(
    serve: Callable[..., ServerProcess], tmp_path: Path, url: str, first: str
) -> None:
    """Also with those that left its tree, or were left behind when it died."""
    with output_in(tmp_path) as output:
        server = serve("family")
        server.wait_healthy(url, 60)
        children = [psutil.Process(int(pid)) for pid in re.findall(r"child (\d+)", output.read_text())]
    assert len(children) == 3
    children += [grandchild for child in children for grandchild in child.children()]
    if first == "killed":
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.running, 60, "it ends")
    with subprocess.Popen(["sleep", "100"]) as bystander:
        server.stop(grace=0.1)
        alive = bystander.poll() is None
        bystander.kill()
    assert alive
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_a_deaf_server(serve: Callable[..., ServerProcess], url: str) -> None:
    server = serve("deaf")
    server.wait_healthy(url, 60)
    server.stop(grace=0.1)
    assert server.exit_code == -signal.SIGKILL


def test_orphans_of_a_server_are_collected(tmp_path: Path) -> None:
    """They come to the engine, and would stay zombies until its end."""
    program = f"""
import os, subprocess, sys
from roost.engine.processes.confinement import confine
from roost.rl.server_process import ServerProcess
confine()
server = ServerProcess.start(["sh", "-c", "(setsid sh -c 'echo $$ > {tmp_path}/orphan; exec sleep 100' &); sleep 100; :"], {{}})
while not os.path.exists("{tmp_path}/orphan"): server.wait_healthy(None, 1)
server.stop()
print(open(f"/proc/self/task/{{os.getpid()}}/children").read().split())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/sleep", "100"], "sleep"),
        ([sys.executable, "-u", "-m", "timeit", "-s", "1"], "timeit"),
        ([sys.executable, "-u", str(PROGRAMS / "server.py"), "1", "never"], "server.py"),
        ([sys.executable, "-m"], Path(sys.executable).name),
    ],
)
def test_the_name_of_a_server(words: list[str], name: str) -> None:
    server = ServerProcess.start(words, {})
    server.stop(0)
    assert server.name == name


# -- programs that cannot be run --------------------------------------------------------------------------


def test_programs_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print()\n")
    (tmp_path / "orphan.py").write_text("#!/nowhere/python\n")
    (tmp_path / "orphan.py").chmod(0o755)
    (tmp_path / "empty.bin").write_bytes(b"\1\2\3\0")
    (tmp_path / "empty.bin").chmod(0o755)
    said = {}
    for name in ("no-such-program", "missing", "plain.py", "orphan.py", "empty.bin", ""):
        program = name if name == "no-such-program" else f"{tmp_path}/{name}"
        with pytest.raises(LaunchError) as caught:
            ServerProcess.start([program, "--api-key", "canary"], {"PATH": "/bin:/nowhere", "KEY": "canary"})
        assert "canary" not in str(caught.value)
        said[name] = str(caught.value).replace(str(tmp_path), "DIR")
    start = "error[RE120]: the server's program"
    assert said == {
        "no-such-program": f"{start} 'no-such-program' cannot be run\n"
        "  = why: it is in no directory of PATH: /bin:/nowhere\n"
        "  = help: install it here, or write its full path",
        "missing": f"{start} 'DIR/missing' cannot be run\n"
        "  = why: there is no such file\n  = help: the path must be right on the engine's node",
        "plain.py": f"{start} 'DIR/plain.py' cannot be run\n"
        "  = why: it is not executable for this user\n"
        "  = help: `chmod +x` it, or start it with its interpreter: `python server.py`",
        "orphan.py": f"{start} 'DIR/orphan.py' cannot be run\n"
        "  = why: its first line names an interpreter that is not there\n"
        "  = help: the path must be right on the engine's node",
        "empty.bin": f"{start} 'DIR/empty.bin' cannot be run\n"
        "  = why: it is neither a program nor names one\n"
        "  = help: start it with its interpreter: `python server.py`",
        "": f"{start} 'DIR/' cannot be run\n"
        "  = why: it is a directory\n"
        "  = help: `chmod +x` it, or start it with its interpreter: `python server.py`",
    }
