"""Programs of the older system run as they were written, imports aside."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pool_program
import pytest
from running import PROGRAMS, Program, module_path, new_job

import roost

pytestmark = pytest.mark.ray


def test_they_answer_what_their_documents_promise(run: Callable[..., Program], tmp_path: Path) -> None:
    paths = os.pathsep.join([module_path(), str(PROGRAMS / "standins")])
    # Other jobs run on this Ray too. Hydra writes what it was called with into a folder.
    environ = {"PYTHONPATH": paths, "ROOST_JOB": new_job("older")}
    program = run("older_programs", f"hydra.run.dir={tmp_path}", env=environ)
    said = {name: rest for name, *rest in (program.answer() for _ in range(10))}
    assert program.end() == 0
    assert said["config"] == [[None, None, None, None]]
    assert "Hello from TestWorker rank" in program.output  # Ray shows one of lines that are alike
    assert said["flexible"] == [[2, 1, 1]]
    assert said["packed"] == [[1, 1, 1, 1]]
    assert said["chunked"] == [[2, 2]]
    assert said["strided"] == [[2, 2]]
    assert said["node"] == [[0, 1, 2, 3]]
    assert said["allocate"] == [["positional", "keyword", "2", "0"]]
    assert said["found"] == said["allocate"]
    assert said["attach"] == [True, True, True, 4, True]
    everything = "0,1,2,3"
    assert said["older"] == [[1, 2], [everything, everything], [[0, 0], [1, 0]]]
    assert "[older:1] INFO rank 1 of 2" in program.output


SIZES = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 1, "rollout_num_gpus": 1}
NO_MODE = {"debug_train_only": False, "debug_rollout_only": False, "colocate": False}
# The mode, the number of bundles, and where those of the rollout begin.
POOLS = [("debug_train_only", 2, 0), ("debug_rollout_only", 1, 0), ("colocate", 2, 0), ("", 3, 2)]


def test_a_program_that_divides_the_bundles_itself(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {cluster.job: cluster})
    made: list[Any] = []
    real = roost.create_placement_groups
    monkeypatch.setattr(roost, "create_placement_groups", lambda args: made.append(real(args)) or made[-1])
    for mode, size, offset in POOLS:
        args = argparse.Namespace(**SIZES, **{**NO_MODE, **({mode: True} if mode else {})})
        pgs = pool_program.create_placement_groups(args)
        positions = made[-1]["actor"]
        made[-1].release()
        (pg, actor), (same, rollout) = pgs["actor"], pgs["rollout"]
        assert (pg, pg.bundle_specs) == (same, [{"GPU": 1, "CPU": 1}] * size)
        assert (sorted(actor), rollout) == ([*range(size)], actor[offset:])
        assert (positions.nodes, positions.devices) == ([0] * size, [*range(size)])


def test_a_program_that_searches_ports_itself_is_given_none_of_those_leased(cluster: roost.Cluster) -> None:
    lease = cluster.lease_ports(0, 4, consecutive=True)
    try:
        found = pool_program._get_current_node_ip_and_free_port(lease.ports[0], consecutive=2)
    finally:
        lease.release()
    assert found[0] == cluster.node_infos[0].ip
    assert found[1] > lease.ports[-1]
