"""A host that is cut off from the network: all its ranks are named, and nothing is restarted there."""

from __future__ import annotations

import time

import pytest
from hosts import Hosts
from running import Program, new_job

from roost.testing.faults import Faults

pytestmark = [pytest.mark.ray, pytest.mark.netns, pytest.mark.soak]

SHORT = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


def test_the_ranks_of_a_host_that_is_cut_off_are_named(hosts: Hosts) -> None:
    try:
        for number in range(2):
            hosts.start_ray(number, "--num-gpus=2", **SHORT)
        environ: dict[str, str | None] = {**hosts.environment(0), "RAY_ADDRESS": hosts.address, **SHORT}
        program = Program("cut_off", new_job("cut"), env=environ, prefix=hosts.inside(0))
        try:
            program.answer(120)
            began = time.time()
            with Faults().cut_off(hosts.names[1]):
                said = program.answer(120)
            print(f"a host that was cut off was seen after {said['seen'] - began:.1f} s")
            lost = [tuple(event) for event in said["events"]]
            assert {(rank, node, cause) for rank, node, cause, _ in lost} == {
                (2, 1, "node lost"),
                (3, 1, "node lost"),
            }
            assert {action for *_, action in lost} == {"given up"}
        finally:
            program.kill()
    finally:
        hosts.stop_ray()
