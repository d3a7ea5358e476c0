"""What is advised when a process cannot start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

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
