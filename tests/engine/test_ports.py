"""The shelf of a node: ports are held until they are released, and only who was given one can listen there."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from remains import is_free

import roost
from roost.engine.ports import port_shelf
from roost.engine.ports.port_ranges import (
    ALLOWED,
    allowed_ports,
    ephemeral_ports,
    rotated,
    shuffled,
)
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.process_facts import Owner, Process, this_process

NONE = range(0)


@pytest.fixture
def shelf() -> Iterator[Callable[..., PortShelf]]:
    made: list[PortShelf] = []

    def make(*args: Any, **kwargs: Any) -> PortShelf:
        made.append(PortShelf(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def ten(shelf: Callable[..., PortShelf]) -> range:
    """Ten ports in a row that are free."""
    finder = shelf()
    first, *_ = finder.take(10, consecutive=True)
    finder.close()
    return range(first, first + 10)


def listener(port: int) -> socket.socket:
    """As servers and rendezvous stores listen."""
    server = socket.socket()
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


# -- holding -----------------------------------------------------------------------------------------------


def test_no_two_shelves_get_one_port(shelf: Callable[..., PortShelf], ten: range) -> None:
    """Pitfall: ports are probed, closed and handed out: two runs on one host get the same one."""
    ours, theirs = shelf(ten, NONE), shelf(ten, NONE)
    assert sorted(ours.take(6) + theirs.take(4)) == list(ten)
    with pytest.raises(roost.ClusterError) as caught:
        theirs.take()
    assert caught.value.codes == ("RE117",)


def test_the_lessee_can_listen_and_be_reached(shelf: Callable[..., PortShelf]) -> None:
    (port,) = shelf().take()
    with listener(port) as server, socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
    with listener(port):  # and again, after a restart
        pass


def test_the_kernel_gives_a_held_port_to_nobody(shelf: Callable[..., PortShelf]) -> None:
    (port,) = shelf().take()
    for family, anywhere in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")):
        with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
            other.bind((anywhere, port))


def test_without_ipv6_ports_are_held_on_ipv4(
    shelf: Callable[..., PortShelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoIPv6(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "switched off")
            super().bind(address)

    monkeypatch.setattr(port_shelf.socket, "socket", NoIPv6)
    (port,) = shelf().take()
    monkeypatch.undo()
    assert not is_free(port)


def test_releases_are_exact(shelf: Callable[..., PortShelf], ten: range) -> None:
    one = shelf(ten, NONE)
    mine, theirs = one.take(3, owner="me"), one.take(2, owner="you")
    loose = one.take(2)
    one.release([mine[0], 1])
    assert one.held == sorted(mine[1:] + theirs + loose)
    assert one.release_owner("me") == sorted(mine[1:])
    assert one.release_owner("me") == one.release_owner("nobody") == []
    assert one.held == sorted(theirs + loose)
    assert set(one.owners) == {"you", None}
    one.release(theirs + loose)
    assert (one.held, one.owners) == ([], [])
    assert all(map(is_free, ten))


def test_all_or_nothing(shelf: Callable[..., PortShelf], ten: range) -> None:
    one = shelf(ten, NONE)
    one.take(4)
    for consecutive in (False, True):
        with pytest.raises(roost.ClusterError, match="7 "):
            one.take(7, consecutive)
    assert len(one.held) == 4
    assert len(one.take(6)) == 6


def test_a_port_just_given_back_is_the_last_to_be_given_out(
    shelf: Callable[..., PortShelf], ten: range
) -> None:
    """Pitfall: a relaunched group gets the dead group's port."""
    one = shelf(ten, NONE)
    for _ in range(20):
        (dead,) = one.take()
        one.release([dead])
        (new,) = one.take()
        assert new != dead
        one.release([new])
    assert len(one.take(10)) == 10


def test_many_threads_take_and_release(shelf: Callable[..., PortShelf]) -> None:
    one, out, lock = shelf(), set[int](), threading.Lock()

    def use(number: int) -> None:
        ports = one.take(1 + number % 3, number % 2 == 0, owner=number)
        with lock:
            assert out.isdisjoint(ports)
            out.update(ports)
        if number % 4:
            with lock:
                out.difference_update(ports)
            assert one.release_owner(number) == sorted(ports)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(400)))
    assert one.held == sorted(out)


# -- which ports -------------------------------------------------------------------------------------------


def test_leases_stay_outside_the_kernels_own_range(shelf: Callable[..., PortShelf]) -> None:
    ports = shelf().take(200) + shelf().take(50, consecutive=True)
    assert len(set(ports)) == 250
    assert all(port in ALLOWED and port not in ephemeral_ports() for port in ports)


@pytest.mark.parametrize("consecutive", [False, True])
def test_only_when_others_are_exhausted_come_ephemeral_ports(
    shelf: Callable[..., PortShelf], ten: range, consecutive: bool
) -> None:
    inside = ten[2:6]
    one = shelf(ten, inside)
    assert set(one.take(4, consecutive) + one.take(2, consecutive)) == set(ten) - set(inside)
    assert set(one.take(4, consecutive)) == set(inside)


def test_a_block_may_lie_across_the_border_when_it_must(shelf: Callable[..., PortShelf], ten: range) -> None:
    assert shelf(ten, ten[4:6]).take(8, consecutive=True)[7] in ten


def test_a_block_is_found_wherever_it_is(shelf: Callable[..., PortShelf], ten: range) -> None:
    """Whatever the random start, the only run that is long enough is found."""
    for first in range(8):
        one = shelf(ten, NONE)
        blockers = [listener(port) for port in ten if port not in range(ten[first], ten[first] + 3)]
        try:
            for _ in range(12):
                block = one.take(3, consecutive=True)
                assert block == list(ten[first : first + 3])
                one.release(block)
            with pytest.raises(roost.ClusterError, match="4 consecutive ports are not free"):
                one.take(4, consecutive=True)
        finally:
            for blocker in blockers:
                blocker.close()


@pytest.mark.parametrize("pieces", [[range(7)], [range(3), range(10, 14)], [range(5, 6)], []])
def test_every_candidate_is_tried_once(pieces: list[range]) -> None:
    everything = sorted(port for piece in pieces for port in piece)
    for _ in range(30):
        assert sorted(shuffled(pieces)) == everything
    late = everything[2:0:-1]
    assert list(shuffled(pieces, last=[-1, *late, 99]))[len(everything) - len(late) :] == late
    for count in (1, 2, 3, 1, 2, 3):
        walked = list(rotated(pieces, count))
        assert sum(map(len, walked)) <= len(everything) + count - 1
        for piece in pieces:
            for first in piece[: max(0, len(piece) - count + 1)]:
                assert any(first in walk and first + count - 1 in walk for walk in walked)


def test_running_out_ends_and_says_why(shelf: Callable[..., PortShelf], ten: range) -> None:
    """Pitfall: scanning past 65535 never ends."""
    one, other = shelf(ten, NONE), shelf(ten, NONE)
    one.take(6)
    other.take(4)
    with pytest.raises(roost.ClusterError) as caught:
        one.take()
    assert str(caught.value) == (
        f"error[RE117]: no port is free in {ten[0]}-{ten[-1]} on {socket.gethostname()}\n"
        "  = why: this job holds 6 of these 10 ports, and the others are in use\n"
        "  = help: release leases, or end what listens there (`ss -ltn`), "
        "or widen ROOST_PORT_RANGE on the node"
    )
    top = shelf(range(65_530, 65_536), NONE)
    with pytest.raises(roost.ClusterError, match="7 consecutive ports are not free in 65530-65535"):
        top.take(7, consecutive=True)


def test_the_nodes_environment_limits_the_range(
    shelf: Callable[..., PortShelf], ten: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_PORT_RANGE", f" {ten[0]} - {ten[-1]} ")
    assert sorted(shelf().take(10)) == list(ten)


@pytest.mark.parametrize(
    "text",
    ["21000", "21099-21000", "21000-", "a-b", "-5-6", "20000-65536", "99999-100000", "1-2-3", "²1000-21099"],
)
def test_a_range_that_is_none_is_a_clear_error(text: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        allowed_ports({"ROOST_PORT_RANGE": text})
    assert caught.value.codes == ("RC104",)
    assert f"ROOST_PORT_RANGE={text!r}" in str(caught.value)
    assert "write it as 21000-21099" in str(caught.value)


def test_rays_own_ports_are_never_leased() -> None:
    with pytest.raises(roost.ConfigurationError, match="below 20000 are the ports of Ray's own workers"):
        allowed_ports({"ROOST_PORT_RANGE": "10000-20000"})


@pytest.mark.parametrize("count", [0, -1, 10_001, True, 2.0, "3", None])
def test_absurd_counts(shelf: Callable[..., PortShelf], count: Any) -> None:
    for consecutive in (False, True):
        with pytest.raises(roost.ConfigurationError, match="a lease is of 1 to 10,000 ports"):
            shelf().take(count, consecutive)


# -- descriptors -------------------------------------------------------------------------------------------


def in_a_child(body: str) -> str:
    """Limits are of a process; this one needs its own."""
    program = f"import resource, roost\nfrom roost.engine.ports.port_shelf import PortShelf\n{body}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_soft_limit_of_descriptors_is_raised() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    said = in_a_child(
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, {min(hard, 4096)}))\n"
        "print(len(PortShelf().take(200)))\n"
    )
    assert said == "200\n"


def test_running_out_of_descriptors_says_so_and_leaves_nothing_behind() -> None:
    said = in_a_child(
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "shelf = PortShelf()\n"
        "shelf.take(20)\n"
        "try:\n    shelf.take(60)\n"
        "except roost.ClusterError as error:\n    print(error)\n"
        "print(len(shelf.held), len(shelf.take(20)))\n"
    )
    assert said == (
        f"error[RE117]: 60 more ports cannot be held on {socket.gethostname()}, besides 20 of this job\n"
        "  = why: each needs a file descriptor, and there are no more\n"
        "  = help: raise the limit of open files (`ulimit -Hn`) where Ray is started, or release leases\n"
        "20 20\n"
    )


# -- owners ------------------------------------------------------------------------------------------------


def test_a_process_is_alive_until_it_ends() -> None:
    child = subprocess.Popen(["sleep", "60"])
    stat = f"/proc/{child.pid}/stat"
    with open(stat) as lines:  # noqa: PTH123
        started = int(lines.read().rpartition(")")[2].split()[19])
    process = Process(pid=child.pid, started=started)
    assert process.alive()
    assert not Process(pid=child.pid, started=started + 1).alive()  # the pid was used again
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert not process.alive()
    child.wait()
    assert not process.alive()
    assert this_process().alive()
    assert this_process().pid == os.getpid()


def test_two_leases_of_one_process_are_two_owners() -> None:
    assert Owner(process=this_process()) != Owner(process=this_process())
