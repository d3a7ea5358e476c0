"""Random faults, seeded, for minutes: `make soak`. ROOST_SOAK_SECONDS and ROOST_SEED choose how long and which."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest
import ray
from frail import Frail
from running import eventually, new_job

import roost
from roost.testing.faults import Faults
from roost.testing.soundness import (
    Footprint,
    assert_no_device_twice,
    assert_no_growth,
    assert_one_process_per_rank,
)

pytestmark = [pytest.mark.ray, pytest.mark.soak]

SECONDS = float(os.environ.get("ROOST_SOAK_SECONDS", "600"))
SEED = int(os.environ.get("ROOST_SEED", "1"))
JOB = {
    "cluster": {"component_placement": {"one": "0-1", "all": "2-3", "mixed": "4-5"}},
    "supervise": {
        "one": {"policy": "one_for_one", "restarts": 100_000, "ping": "0.5s"},
        "all": {"policy": "one_for_all", "restarts": 100_000, "ping": "0.5s"},
        "mixed": {"policy": "one_for_one", "restarts": 100_000, "ping": "0.5s"},
    },
}


@pytest.fixture
def cluster() -> Iterator[roost.Cluster]:
    with (
        roost.embedded("3x2") as address,
        roost.Cluster(num_nodes=3, address=address, job=new_job("soak")) as made,
    ):
        yield made


def test_a_run_survives_random_faults(cluster: roost.Cluster) -> None:
    faults, plan = Faults(SEED), roost.plan(JOB, cluster)
    run = cluster.launch(plan, {"one": Frail, "all": Frail, "mixed": Frail})
    assert_one_process_per_rank(run)
    before, began, done = Footprint.now(), time.monotonic(), 0
    while time.monotonic() - began < SECONDS:
        victim = faults.victim(run)
        group = run[victim.component]
        kind = faults.random.choice(["idle", "busy", "stopped", "exit", "twice"])
        if kind == "busy":
            group.execute_on(victim.rank).blocks()
        if kind == "exit":
            group.execute_on(victim.rank).says_and_dies("on purpose")
        elif kind == "stopped":
            with faults.stopped(victim):
                eventually(lambda done=done: _failures(run) > done, 60, "the hang is seen")
        else:
            faults.kill(victim)
        if kind == "twice":
            other = faults.victim(run)
            if other.pid != victim.pid:
                with contextlib.suppress(
                    ProcessLookupError
                ):  # it may be ended already, as a peer of the first
                    faults.kill(other)
        eventually(lambda done=done: _failures(run) > done, 60, f"{kind} of {victim} is seen")
        for one in run.groups.values():
            one.wait_recovered(120)
        assert_one_process_per_rank(run, within=60)
        assert_no_device_twice(run)
        done = _failures(run)
    print(f"seed {SEED}: {done} failures in {time.monotonic() - began:.0f} s, every rank is back")
    assert_no_growth(before, allowed=2)
    run.shutdown()

    def free() -> bool:
        return ray.available_resources().get("GPU") == ray.cluster_resources()["GPU"]

    eventually(free, 60, "every accelerator is free again")


def _failures(run: roost.Run) -> int:
    return sum(event.action == "restarting" for event in run.events)
