"""Engines on three hosts with addresses of their own, eight accelerators each."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.netns]
HEAD, SECOND, THIRD = "10.77.0.200", "10.77.0.9", "10.77.0.10"
FIRST_NAMES = (0, 8, 0)  # the second host calls its accelerators 8-15


@pytest.fixture(scope="module")
def said(on_hosts: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = on_hosts["natural"].said
    return told


def test_the_pool_is_in_the_order_of_the_hosts(said: dict[str, Any]) -> None:
    assert said["nodes"] == [HEAD, SECOND, THIRD]
    assert said["order"] == [
        [node, str(first + device)] for node, first in enumerate(FIRST_NAMES) for device in range(8)
    ]


def test_every_engine_is_told_its_own_host(said: dict[str, Any]) -> None:
    """Pitfall: with actor 4 + rollout 12 GPUs at 4 per engine, one engine is given the wrong node's address."""
    assert [(one["host"], one["devices"]) for one in said["split"]] == [
        (HEAD, ["4", "5", "6", "7"]),
        (SECOND, ["8", "9", "10", "11"]),
        (SECOND, ["12", "13", "14", "15"]),
    ]
    for one in said["split"]:
        assert one["dist_init_addr"] == f"{one['host']}:{one['dist_init_ports'][0]}"
        assert len(one["listened"]) == 10  # it could bind them all, on that very address


def test_sixteen_on_hosts_of_eight_are_two_processes_with_one_rendezvous(said: dict[str, Any]) -> None:
    first, second = said["wide"]
    assert (first["host"], second["host"]) == (HEAD, SECOND)
    assert (first["node_rank"], second["node_rank"]) == (0, 1)
    assert first["dist_init_addr"] == second["dist_init_addr"] == f"{HEAD}:{first['dist_init_ports'][0]}"
    assert len(second["listened"]) == 2


def test_twelve_on_hosts_of_eight_is_refused(said: dict[str, Any]) -> None:
    """Pitfall: a 12-GPU engine on 8-GPU nodes silently becomes one node."""
    assert "RP110" in said["twelve"]
    assert (
        "rollout: engine 0 would straddle nodes 0 and 1 (accelerators 0-7 of node 0, 0-3 of node 1)"
        in (said["twelve"])
    )
    assert "12 is not a multiple of 8" in said["twelve"]


def test_a_command_serves_other_hosts_on_its_leased_port(said: dict[str, Any]) -> None:
    endpoint, flags = said["endpoint"], said["answer"]["flags"]
    assert endpoint["host"] == SECOND
    assert flags["--host"] == SECOND
    assert flags["--port"] == str(endpoint["port"])
