"""Planning on a running cluster: what it is, what is held there, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from crew import Reporter

import roost
from roost.engine.reservation.cluster_snapshot import take_snapshot

pytestmark = pytest.mark.ray


def plan_live(address: str, job: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "roost"), "plan", str(job), "--live", *arguments],
        env={**os.environ, "RAY_ADDRESS": address, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def job_file(place: Path, rules: str) -> Path:
    path = place / "job.yaml"
    path.write_text(f"cluster: {{component_placement: {rules}}}\n")
    return path


def named_actors() -> set[str]:
    return {entry["namespace"] for entry in ray.util.list_named_actors(all_namespaces=True)}


def test_a_snapshot_sees_what_a_job_would_and_leaves_nothing(cluster: Any) -> None:
    before = named_actors()
    found = take_snapshot()
    assert found.inventory.nodes == cluster.inventory.nodes
    assert found.holders == ()
    assert named_actors() == before
    assert ray.is_initialized()  # it was the test's connection


def test_the_plan_is_that_of_the_cluster(address: str, tmp_path: Path, cluster: Any) -> None:
    job = job_file(tmp_path, "{actor: 0-11}")
    done = plan_live(address, job, "--json")
    assert (done.returncode, json.loads(done.stdout)["findings"][0]["code"]) == (0, "RW104")
    plan = roost.Plan.from_dict(json.loads(done.stdout))
    assert plan.inventory.nodes == cluster.inventory.nodes
    assert plan.digest == roost.plan(job, roost.Inventory.parse("3x4")).digest


def test_who_holds_what_is_told_and_the_plan_is_shown(address: str, tmp_path: Path, clusters: Any) -> None:
    cluster = clusters(num_nodes=1)
    Reporter.create_group().launch(cluster, roost.PackedPlacementStrategy(1, 2), name="there")
    job = job_file(tmp_path, "{actor: 0-1}")
    done = plan_live(address, job, "-o", str(tmp_path / "plan.json"))
    assert done.returncode == 3
    assert "A0 A1" in done.stdout
    assert "error[RE107]: node 0" in done.stderr
    assert f"2 needed, 2 of 4 free; job {cluster.job!r} holds accelerator 1" in done.stderr
    assert "RE107" in [finding.code for finding in roost.load_plan(tmp_path / "plan.json").findings]
    assert f"held: node 0: 1-2 by job {cluster.job!r}\n" in done.stdout


def test_what_others_hold_is_drawn_as_held_and_not_advised(
    address: str, tmp_path: Path, clusters: Any
) -> None:
    cluster = clusters()
    Reporter.create_group().launch(cluster, roost.PackedPlacementStrategy(1, 2), name="there")
    job, picture = job_file(tmp_path, '{actor: "0,3-4"}'), tmp_path / "plan.svg"
    done = plan_live(address, job, "--svg", str(picture), "-o", str(tmp_path / "plan.json"))
    assert done.returncode == 0, done.stderr
    assert "A0 #  #  A1\n" in done.stdout
    assert f"held: node 0: 1-2 by job {cluster.job!r}\n" in done.stdout
    assert "12 accelerators: 3 used, 2 held by others, 7 idle, 0 shared" in done.stdout
    assert "warning[RW102]: 7 of 12 accelerators are idle\n  = why: node 1: 1-3; node 2: 0-3\n" in done.stderr
    advice = [one.what for one in roost.load_plan(tmp_path / "plan.json").findings if one.code == "RW102"]
    assert advice == ["7 of 12 accelerators are idle"]
    assert picture.read_text().count("accelerator 1: held by job") == 1


def test_work_without_a_placement_group_is_seen(connected: str) -> None:
    @ray.remote(num_gpus=3, num_cpus=0)
    class Hoarder:
        def there(self) -> str:
            return ray.get_runtime_context().get_node_id()

    hoarder = Hoarder.remote()
    try:
        ray.get(hoarder.there.remote(), timeout=60)
        held = take_snapshot().holders
    finally:
        ray.kill(hoarder)
    assert [(one.name, one.count, one.devices) for one in held] == [
        ("work outside placement groups", 3, None)
    ]
