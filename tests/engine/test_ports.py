"""Leased ports are held until they are released, and only who was given one can listen there."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

import roost
from roost.engine import agent


@pytest.fixture
def held() -> Iterator[dict[int, socket.socket]]:
    sockets: dict[int, socket.socket] = {}
    yield sockets
    for one in sockets.values():
        one.close()


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


def test_no_two_holders_get_one_port(held: dict[int, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall: ports are probed, closed and handed out: two runs on one host get the same one."""
    port, _ = agent.hold_port(held)
    other: dict[int, socket.socket] = {}
    monkeypatch.setattr(agent.random, "sample", lambda *_: [port])
    with pytest.raises(roost.ClusterError) as caught:
        agent.hold_port(other)
    assert caught.value.codes == ("RE117",)
    assert not other


def test_the_lessee_can_listen_and_be_reached(held: dict[int, socket.socket]) -> None:
    port, _ = agent.hold_port(held)
    with listener(port) as server, socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
    with listener(port):  # and again, after a restart
        pass


def test_the_kernel_gives_a_held_port_to_nobody(held: dict[int, socket.socket]) -> None:
    port, _ = agent.hold_port(held)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))


def test_released_ports_are_free() -> None:
    node = agent.NodeAgent()
    ports = node.lease_ports(3)
    assert len(set(ports)) == 3
    node.release_ports([ports[0], 1])
    with socket.socket() as other:
        other.bind(("", ports[0]))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", ports[1]))
    node.release_ports(ports)
    node.release_ports(ports)


def test_leases_stay_below_the_kernels_own_range(held: dict[int, socket.socket]) -> None:
    ports = [agent.hold_port(held)[0] for _ in range(20)]
    assert len(set(ports)) == 20
    assert all(20_000 <= port < agent._ephemeral_start() for port in ports)


def test_running_out_is_an_error(held: dict[int, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall: scanning past 65535 never ends."""
    port, _ = agent.hold_port(held)
    monkeypatch.setattr(random, "sample", lambda *_: [port, port])
    with pytest.raises(roost.ClusterError, match="no free port between 20000"):
        agent.hold_port({})
